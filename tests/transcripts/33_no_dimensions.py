"""Dimensions of Tensors that have none, reductions of nothing, and what is no dimension."""

import warnings

F = torch.nn.functional
warnings.simplefilter("ignore")

# --- dimensions of a Tensor without any
x = torch.tensor(3.0, requires_grad=True)
print(torch.movedim(x, 0, -1).shape, torch.moveaxis(x, -1, 0).shape, x.unfold(0, 1, 1), x.unfold(-1, 0, 1).shape)
print(torch.linalg.vector_norm(x, 2, 0), torch.linalg.norm(x, 1, -1), torch.linalg.vecdot(x, x, dim=0))
print(error(lambda: torch.roll(x, 1, 0)), torch.roll(x, 1))
(g,) = torch.autograd.grad(torch.linalg.vecdot(x, x, dim=-1), x, create_graph=True)
print(g.item(), torch.autograd.grad(g, x))

# --- what is no dimension
x = torch.ones(2, 3)
for f in (torch.cumsum, torch.softmax, torch.argmax, torch.max, torch.median, torch.sort, torch.unbind, torch.cummax):
    for dim in ((0,), "a", 0.0):
        try:
            print(f(x, dim))
        except TypeError:
            print("TypeError")

# --- no dimensions to reduce
x = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
print(torch.all(x, ()), torch.any(x, []), torch.sum(x, ()), torch.amax(x, ()))

# --- reductions of nothing
x = torch.zeros(0, 3)
for f in (torch.amax, torch.amin):
    print(error(lambda f=f: f(x, (0, 1))), error(lambda f=f: f(x, ())), f(x, 1).shape)
print(error(lambda: torch.mode(x, 0)), torch.mode(x, 1).values.shape)
print(error(lambda: torch.kthvalue(x, 1, 0)), torch.kthvalue(x, 1, 1).values.shape)
print(torch.linalg.cond(torch.zeros(0, 0)), torch.linalg.cond(torch.zeros(2, 0, 0)))
print(torch.quantile(torch.ones(2, 3), torch.tensor([]), 0).shape, torch.quantile(torch.ones(2), torch.tensor([])))

# --- losses of nothing
x, none = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, dtype=torch.int64)
for how in ("mean", "sum", "none"):
    print(F.cross_entropy(x, none, reduction=how).detach(), F.nll_loss(x, none, reduction=how).detach())
F.cross_entropy(x, none).backward()
print(x.grad.shape)

# --- an empty batch leaves running statistics as they are
mean, var = torch.zeros(3), torch.ones(3)
print(F.batch_norm(torch.zeros(0, 3), mean, var, training=True).shape, mean, var)

# --- the zeroth power of a matrix
x = torch.tensor([[1.0, 2.0], [3.0, float("nan")]], requires_grad=True)
y = torch.matrix_power(x, 0)
print(y.detach(), y.grad_fn.name(), torch.autograd.grad(y.sum(), x))

# --- histograms of a hundred bins
print(torch.histogram(torch.tensor([0.0, 1.0, 1.0])).hist.nonzero().tolist())
