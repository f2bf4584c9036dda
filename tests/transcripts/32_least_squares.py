"""What linalg.lstsq gives with each driver, of matrices, vectors and stacks of both."""

A = torch.tensor([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.5], [2.0, 2.0]])
B = torch.tensor([[1.0], [2.0], [0.5], [-1.0]])
stack = torch.stack([A, A.flip(0) * 2])

# --- drivers
for driver in (None, "gels", "gelsy", "gelsd", "gelss"):
    for a, b in ((A, B), (A, B[:, 0]), (A.t(), B[:2]), (stack, B.expand(2, 4, 1)), (stack, B[:, 0].expand(2, 4))):
        found = torch.linalg.lstsq(a, b, driver=driver)
        print(driver, found.solution)
        print(found.residuals, found.rank, [v.shape for v in found])

# --- a rank that is not full
low = torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
for driver in ("gelsy", "gelsd", "gelss"):
    found = torch.linalg.lstsq(low, torch.tensor([[1.0], [1.0], [0.0]]), driver=driver)
    print(found.solution, found.residuals, found.rank)

# --- derivatives
for driver in ("gels", "gelsd"):
    for b in (B, B[:, 0]):
        a, b = A.clone().requires_grad_(), b.clone().requires_grad_()
        solution = torch.linalg.lstsq(a, b, driver=driver).solution
        first = torch.autograd.grad((solution**2).sum(), (a, b), create_graph=True)
        print(*[g.detach() for g in first])
        print(*torch.autograd.grad(sum((g**2).sum() for g in first), (a, b)))
