"""What tensors look like."""

# --- scalars and vectors
print(torch.tensor(1.0), torch.tensor(1.25), torch.tensor(3), torch.tensor(True), torch.tensor(1e-10))
print(torch.tensor([1.0, 2.0]), torch.tensor([1.5, 2.25]), torch.tensor([1, -20, 300]), torch.tensor([True, False]))

# --- requires_grad and grad_fn
x = torch.tensor([1.0, 2.0], requires_grad=True)
print(x)
print(x * 2)
print((x * 2).sum())
print(x.exp(), x.detach(), x.grad)
print(x + 1, x - 1, x / 2, x**2, -x, x @ x)

# --- repr is str
x = torch.tensor([1.0, 2.0], requires_grad=True)
print(repr(x) == str(x), f"{x}", f"{x[0]:.2f}", str(x.detach()))

# --- format of single values
x = torch.tensor(2.5, requires_grad=True)
print(f"{x:.3f} {x.item():.1f} {torch.tensor(3):d} {x.detach()}")

# --- matrices
print(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
print(torch.tensor([[1.0, -2.5], [30.0, 4.125]], requires_grad=True))
print(torch.tensor([[1, 2, 3], [40, 50, 60]]))
print(torch.ones(2, 2, requires_grad=True) * 3)

# --- three dimensions
print(torch.arange(8.0).reshape(2, 2, 2))

# --- empty tensors
print(torch.tensor([]), torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))

# --- digits
print(
    torch.tensor([1 / 3, 2 / 3]),
    torch.tensor([1000.5, 0.25]),
    torch.tensor([123456.0]),
    torch.tensor([0.1, 0.12345678]),
)

# --- large and small numbers
print(torch.tensor([1e-6, 1.0]), torch.tensor([1e10, 1.0]), torch.tensor([1e-5]), torch.tensor([1e8, 2e8]))
print(torch.tensor([99999.0, 1.5]), torch.tensor([1e5, 1.5]))

# --- nan and inf
print(torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0]), torch.tensor(float("nan")))
print(torch.tensor([float("inf"), 1.5]), torch.tensor([float("nan")]))

# --- other dtypes are named
print(
    torch.tensor([1.0], dtype=torch.float32), torch.tensor([1], dtype=torch.int32), torch.tensor([1], dtype=torch.uint8)
)
print(torch.ones(2, dtype=torch.float32, requires_grad=True))
print(torch.ones(2, dtype=torch.float32, requires_grad=True) * 2)

# --- complex numbers
print(torch.tensor([1 + 2j, 3 - 4j]), torch.tensor(1j), torch.tensor([0.5 + 0.25j], requires_grad=True))

# --- long vectors wrap
print(torch.arange(30.0))
print(torch.arange(30))

# --- very long vectors are summarised
print(torch.arange(2000.0))
print(torch.zeros(1001, 2)[:, 0])

# --- a long grad_fn goes to the next line
x = torch.arange(10.0, requires_grad=True)
print(x * 1.5)
print(torch.ones(2, 3, requires_grad=True).sigmoid())

# --- nodes print their name
x = torch.ones(2, requires_grad=True)
print((x * 2).grad_fn, x.sum().grad_fn, x[0].grad_fn)
print((x * 2).grad_fn.next_functions)

# --- results of in-place operations and views
x = torch.ones(3, requires_grad=True)
y = x.clone()
y.mul_(2)
print(y)
y[0] = 5.0
print(y, x[1:], x.view(3, 1)[0], x[0])

# --- retained and custom results
x = torch.ones(2, requires_grad=True)
y = x * 2
y.retain_grad()
print(y)
y.register_hook(lambda g: g)
print(y)

# --- mixed signs line up
print(torch.tensor([-1.0, 2.0, -30.0]), torch.tensor([[0.5, -0.25], [-10.0, 100.0]]))
