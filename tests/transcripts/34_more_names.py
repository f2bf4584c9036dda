"""Losses with margins, and names of the package that are also nn.functional's or a Tensor's."""

F = torch.nn.functional
x = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], requires_grad=True)
y = torch.tensor([[1.0, 0.5, -0.5], [-1.0, 2.0, 0.75]], requires_grad=True)
z = torch.tensor([[0.25, 1.5, 1.0], [0.5, 0.75, 2.0]], requires_grad=True)
signs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])


def twice(loss, *inputs):
    value = loss()
    first = torch.autograd.grad(value, inputs, create_graph=True)
    print(value.detach(), *[g.detach() for g in first])
    print(*torch.autograd.grad(sum((g * g).sum() for g in first), inputs, allow_unused=True, materialize_grads=True))


# --- ranks
for margin in (0.0, 0.75):
    for how in ("mean", "sum"):
        twice(lambda m=margin, h=how: F.margin_ranking_loss(x, y, signs, m, reduction=h) ** 2, x, y)
print(F.margin_ranking_loss(x, y, signs, reduction="none").detach())
print(error(lambda: F.margin_ranking_loss(x, y, signs[0]), until="margin_ranking_loss"))
print(error(lambda: F.margin_ranking_loss(x, y, signs, reduction="median")))

# --- embeddings
twice(lambda: F.hinge_embedding_loss(x * x, signs, margin=2.0), x)
twice(lambda: F.cosine_embedding_loss(x, y, torch.tensor([1.0, -1.0])), x, y)
twice(lambda: F.cosine_embedding_loss(x[0], y[1], torch.tensor(-1.0), margin=-0.9), x, y)
print(error(lambda: F.cosine_embedding_loss(x, y, signs)))

# --- triplets
twice(lambda: F.triplet_margin_loss(x, y, z, margin=2.0), x, y, z)
twice(lambda: F.triplet_margin_loss(x, y, z, margin=3.0, swap=True, reduction="sum"), x, y, z)
print(error(lambda: F.triplet_margin_loss(x, y, z, margin=0.0)))

# --- logarithms
counts = torch.tensor([[0.0, 1.0, 3.0], [2.0, 5.0, 1.0]])
twice(lambda: F.soft_margin_loss(x, signs), x)
twice(lambda: F.poisson_nll_loss(x, counts), x)
twice(lambda: F.poisson_nll_loss(x.exp(), counts, log_input=False, full=True), x)
twice(lambda: F.gaussian_nll_loss(x, y, z, full=True), x, y, z)
twice(lambda: F.gaussian_nll_loss(x, y, z[:, 0], eps=0.3, reduction="sum"), x, y, z)

# --- running integrals
print(torch.cumulative_trapezoid(x).detach(), torch.cumulative_trapezoid(x, dim=0, dx=0.5).detach())
print(torch.cumulative_trapezoid(x, torch.tensor([0.0, 1.0, 4.0])).detach(), torch.cumulative_trapezoid(x[:, :0]).shape)
twice(lambda: (torch.cumulative_trapezoid(x, z) ** 2).sum(), x, z)

# --- equations of arrays
A = (torch.arange(36.0).sin().reshape(6, 6) + 3 * torch.eye(6)).reshape(2, 3, 6).requires_grad_()
twice(lambda: (torch.linalg.tensorsolve(A, x) ** 2).sum(), A, x)
print(torch.linalg.tensorinv(A).shape, torch.linalg.tensorinv(A.detach().reshape(6, 2, 3), ind=1).shape)
print(torch.linalg.tensorsolve(A.detach().movedim(2, 0), x.detach(), dims=(0,)).shape)
print(error(lambda: torch.linalg.tensorinv(A, ind=1)), error(lambda: torch.linalg.tensorinv(A, ind=0)))
print(torch.linalg.vander(torch.tensor([1, 2, 3])), torch.linalg.vander(x.detach(), N=2).shape)
print(error(lambda: torch.linalg.vander(x, N=1)))
twice(lambda: (torch.linalg.vander(x[0]) ** 2).sum(), x)

# --- names
print(torch.pi, torch.e, torch.inf, torch.nan, torch.newaxis)
print(torch.clone(x).grad_fn.name(), torch.detach(x).requires_grad)
print(torch.cosine_similarity(x, y).detach(), torch.layer_norm(x, (3,)).detach(), torch.dropout(x, 0.5, False).detach())
for f in (torch.angle, torch.i0, torch.msort):
    out = torch.zeros(2, 3)
    print(f(x.detach(), out=out) is out, out)
print(error(lambda: torch.angle(x, out=torch.zeros(2, 3))))
