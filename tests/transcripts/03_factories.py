"""Functions that make tensors."""

# --- tensor of numbers and lists
print(torch.tensor(1.5), torch.tensor([1, 2]), torch.tensor([1.0, 2]), torch.tensor([[True, False]]), torch.tensor([]))
for value in (1, 1.0, True, 1j, [1], [1.0, 2], []):
    t = torch.tensor(value)
    print(t.dtype, tuple(t.shape))

# --- tensor with a dtype
print(torch.tensor([1, 2], dtype=torch.float32), torch.tensor([1.9, -1.9], dtype=torch.int64))
print(torch.tensor([0, 1, 2], dtype=torch.bool), torch.tensor([1.0], dtype=torch.complex128))

# --- zeros ones full empty
print(torch.zeros(2), torch.ones(2, 3), torch.full((2,), 7.0), torch.full((2,), 7), torch.zeros((1, 2)))
print(tuple(torch.empty(2, 3).shape), torch.zeros(2, dtype=torch.int64), torch.ones([2]))
print(torch.zeros(()), torch.ones(2, requires_grad=True))

# --- like
x = torch.ones(2, requires_grad=True)
print(torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 3), torch.empty_like(x).shape[0])
print(torch.zeros_like(x).requires_grad, torch.ones_like(x, dtype=torch.int64), torch.zeros_like(x, requires_grad=True))

# --- arange and linspace
print(torch.arange(3), torch.arange(3.0), torch.arange(1, 4), torch.arange(0, 1, 0.25))
print(torch.linspace(0, 1, 5), torch.linspace(1, 2, steps=3, requires_grad=True), torch.logspace(0, 2, 3))
print(torch.arange(3).dtype, torch.arange(3.0).dtype, torch.linspace(0, 1, 2).dtype)

# --- eye and diagonals
print(torch.eye(2), torch.eye(2, 3), torch.diag(torch.tensor([1.0, 2.0])), torch.eye(2, dtype=torch.int64).dtype)

# --- random numbers have the shapes and ranges asked for
torch.manual_seed(0)
x, n = torch.rand(2, 3), torch.randn(1000)
print(tuple(x.shape), x.dtype, bool((x >= 0).all()), bool((x < 1).all()), x.requires_grad)
print(tuple(n.shape), bool(n.mean().abs() < 0.2), bool((n.std() - 1).abs() < 0.2))
i = torch.randint(0, 10, (4,))
print(tuple(i.shape), i.dtype, bool((i >= 0).all()), bool((i < 10).all()))
print(tuple(torch.randint(5, (2, 2)).shape), sorted(torch.randperm(4).tolist()))
print(
    torch.rand(2, requires_grad=True).requires_grad, tuple(torch.randn_like(x).shape), tuple(torch.rand_like(x).shape)
)

# --- a seed repeats
torch.manual_seed(1)
a = torch.randn(3)
torch.manual_seed(1)
b = torch.randn(3)
print(torch.equal(a, b), torch.equal(b, torch.randn(3)))

# --- as_tensor gives the tensor itself
x = torch.ones(2, requires_grad=True)
print(torch.as_tensor(x) is x, torch.as_tensor([1, 2]), torch.as_tensor(2.0))

# --- tensor of a tensor warns and copies
x = torch.ones(2, requires_grad=True)
y = warned(lambda: torch.tensor(x), first="To copy construct from a tensor, it is recommended to use")
print(y, y.requires_grad)

# --- new tensors from a tensor
x = torch.ones(2, dtype=torch.float32)
print(x.new_zeros(2), x.new_ones(1, 2), x.new_full((2,), 5.0), x.new_tensor([1, 2]), tuple(x.new_empty(3).shape))

# --- only floating and complex tensors may require grad
error(lambda: torch.tensor([1, 2], requires_grad=True))
error(lambda: torch.ones(2, dtype=torch.bool, requires_grad=True))
error(lambda: torch.arange(3, requires_grad=True))
error(lambda: torch.ones(2, dtype=torch.int64).requires_grad_())
error(lambda: setattr(torch.zeros(2, dtype=torch.int32), "requires_grad", True))
print(torch.tensor(1j, requires_grad=True), torch.ones(1, dtype=torch.float32, requires_grad=True).dtype)

# --- dtypes have names and facts
print(torch.float32, torch.float64, torch.int64, torch.bool, torch.complex128, torch.uint8)
print(torch.double == torch.float64, torch.float == torch.float32, torch.long == torch.int64, torch.int == torch.int32)
print(torch.finfo(torch.float64).eps, float(torch.finfo(torch.float32).max), torch.iinfo(torch.int32).max)

# --- promotion
i, f = torch.tensor([1, 2]), torch.tensor([1.0, 2.0])
print(
    (i + f).dtype, (i / i).dtype, (i // i).dtype, (i * 2.5).dtype, (f * 2).dtype, (f > 1).dtype, (f.float() * 2.5).dtype
)
print(torch.result_type(i, f), torch.promote_types(torch.int32, torch.int64), (f.float() + f).dtype, i.sum().dtype)

# --- ragged and foreign input is refused
error(lambda: torch.tensor([[1.0], [1.0, 2.0]]), first="expected sequence of length 1 at dim 1 (got 2)")
for value in ("text", [1.0, "text"], None):
    try:
        torch.tensor(value)
    except (TypeError, RuntimeError):
        print("refused")

# --- the default dtype
print(torch.get_default_dtype())
torch.set_default_dtype(torch.float32)
print(torch.ones(1).dtype, torch.tensor(1.0).dtype, torch.tensor([1]).dtype)
torch.set_default_dtype(torch.float64)
print(torch.ones(1).dtype, torch.tensor(1.0))
