"""In-place operations."""

# --- methods with an underscore
x = torch.tensor([1.0, 4.0])
for name, *arguments in (("add_", 1), ("mul_", 2), ("sub_", 1), ("div_", 2), ("pow_", 2), ("clamp_", 1, 5), ("sqrt_",)):
    getattr(x, name)(*arguments)
    print(name, x, x._version)
for name in ("neg_", "abs_", "exp_", "log_", "floor_", "zero_", "cos_"):
    getattr(x, name)()
    print(name, x, x._version)
print(x.fill_(7.0), x._version)

# --- operators
x = torch.tensor([1.0, 2.0])
same = x
x += 1
x *= 2
x -= 1
x /= 2
x **= 2
print(x, x is same, x._version)

# --- the same tensor is returned
x = torch.ones(2)
print(x.add_(1) is x, x.requires_grad_() is x, x.detach().zero_()._version)

# --- a result updated in place takes the new node
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
print(y.grad_fn.name())
y.add_(1)
print(y.grad_fn.name(), y.grad_fn.next_functions[0][0].name(), y._version, y.is_leaf)
y *= y.detach() * 0 + 3
y.sum().backward()
print(y, x.grad)

# --- a leaf that requires grad cannot be updated
x = torch.ones(2, requires_grad=True)
error(lambda: x.add_(1))
error(lambda: x.mul_(2))
error(lambda: x.zero_())
error(lambda: x.__setitem__(0, 5.0))


def update():
    y = x
    y += 1


error(update)
with torch.no_grad():
    x.add_(1)
print(x, x._version)

# --- a view of a leaf cannot be updated
x = torch.ones(3, requires_grad=True)
error(lambda: x[0].zero_())
error(lambda: x.view(3, 1).mul_(2))
error(lambda: x[1:].add_(1))

# --- a plain tensor begins to require grad
x = torch.ones(2, requires_grad=True)
y = torch.zeros(2)
y.add_(x)
print(y, y.requires_grad, y.is_leaf)
y.sum().backward()
print(x.grad)

# --- assignment to items
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = torch.zeros(3)
y[0] = x[2] * 2
y[1:] = x[:2]
print(y)
(y * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
print(x.grad)

# --- assignment cuts what stood there
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x * 2
y[0] = 0.0
print(y)
y.sum().backward()
print(x.grad)

# --- updates of slices
x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
y = x * 1
y[1:3] += x[:2]
y[0] *= 5
print(y.detach(), y._version)
y.sum().backward()
print(x.grad)

# --- masked_fill and masks
x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
y = x * 2
y.masked_fill_(y < 0, 0.0)
print(y)
z = x * 1
z[z > 2] = 10.0
print(z.detach())
(y + z).sum().backward()
print(x.grad)

# --- index_put
x = torch.zeros(4)
v = torch.tensor([1.0, 2.0], requires_grad=True)
x.index_put_((torch.tensor([1, 3]),), v)
print(x)
x[torch.tensor([0, 1])] = v * 10
print(x.detach())
(x * torch.arange(4.0)).sum().backward()
print(v.grad)

# --- index_add scatter index_fill copy
x = torch.zeros(3)
v = torch.tensor([1.0, 2.0], requires_grad=True)
i = torch.tensor([0, 0])
x.index_add_(0, i, v)
print(x)
x.scatter_add_(0, torch.tensor([1, 2]), v)
print(x)
x.index_fill_(0, torch.tensor([2]), 5.0)
print(x)
x.sum().backward()
print(v.grad)

# --- copy
x = torch.zeros(2, requires_grad=True)
y = x * 1
source = torch.tensor([3.0, 4.0], requires_grad=True)
y.copy_(source)
print(y)
(y * 2).sum().backward()
print(x.grad, source.grad)
print(
    torch.zeros(2, 2).copy_(torch.tensor([1.0, 2.0])), torch.zeros(2, dtype=torch.int64).copy_(torch.tensor([1.9, 2.9]))
)

# --- fill and zero cut the gradient
x = torch.ones(2, requires_grad=True)
y = x * 2
y.zero_()
print(y)
y.sum().backward()
print(x.grad)
z = x.clone().fill_(3.0)
z.sum().backward()
print(x.grad)

# --- a gradient is zeroed
x = torch.tensor([1.0, 2.0], requires_grad=True)
(x * 3).sum().backward()
g = x.grad
print(x.grad.zero_(), x.grad is g, x.grad._version)
(x * 3).sum().backward()
print(x.grad)

# --- dtype and shape must fit
x = torch.tensor([1, 2])
error(lambda: x.add_(1.5))
error(lambda: x.div_(2))
error(lambda: torch.ones(2).add_(torch.ones(3)), first="The size of tensor a (2) must match the size of tensor b (3)")
error(lambda: torch.ones(2).add_(torch.ones(2, 2)))

# --- expanded tensors cannot be written
x = torch.ones(1).expand(3)
error(lambda: x.add_(1))
print(x.clone().add_(1))

# --- detach in place
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x * 2).detach_()
print(y, y.is_leaf)
y.add_(1)
print(y.requires_grad)

# --- requires_grad of a result cannot be switched off
x = torch.ones(2, requires_grad=True)
y = x * 2
error(lambda: setattr(y, "requires_grad", False), first="you can only change requires_grad flags of leaf variables.")
error(lambda: y.requires_grad_(False), first="you can only change requires_grad flags of leaf variables.")
print(y.requires_grad_().requires_grad)

# --- a tensor updated by itself
x = torch.tensor([2.0, 3.0], requires_grad=True)
y = x * 1
y += y
print(y)
y.sum().backward()
print(x.grad)

# --- unary functions in place
x = torch.tensor([0.25, 1.0], requires_grad=True)
for name in ("exp_", "sqrt_", "sigmoid_", "tanh_", "relu_", "neg_", "reciprocal_"):
    x.grad = None
    y = getattr(x * 1, name)()
    y.sum().backward()
    expected = torch.autograd.grad(getattr(x, name[:-1])().sum(), x)[0]
    print(name, y.grad_fn.name(), torch.allclose(x.grad, expected))

# --- out-of-place operations on updated values
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x**2
z = y + 1
y += 1
w = y * z
w.sum().backward()
print(x.grad)
