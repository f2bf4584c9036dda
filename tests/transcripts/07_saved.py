"""What nodes save for the backward pass."""

# --- a product saves both operands
a = torch.tensor([2.0, 3.0], requires_grad=True)
b = torch.tensor([5.0, 7.0], requires_grad=True)
c = a * b
print(c.grad_fn._saved_self, c.grad_fn._saved_other)
print(torch.equal(c.grad_fn._saved_self, a), c.grad_fn._saved_self is a)

# --- a product saves only what it needs
a = torch.tensor([2.0, 3.0], requires_grad=True)
c = a * torch.tensor([5.0, 7.0])
print(c.grad_fn._saved_self, c.grad_fn._saved_other)
c = torch.tensor([5.0, 7.0]) * a
print(c.grad_fn._saved_self, c.grad_fn._saved_other)

# --- a product with a number
a = torch.tensor([2.0, 3.0], requires_grad=True)
print((a * 4).grad_fn._saved_self, float((a * 4).grad_fn._saved_other))

# --- results are saved by functions whose derivative needs them
x = torch.tensor([0.25, 1.0], requires_grad=True)
for name in ("exp", "sqrt", "tanh", "sigmoid", "reciprocal", "rsqrt", "tan", "relu", "expm1", "exp2"):
    y = getattr(x, name)()
    print(name, torch.equal(y.grad_fn._saved_result, y), y.grad_fn._saved_result.grad_fn is y.grad_fn)

# --- operands are saved by the others
x = torch.tensor([0.25, 0.5], requires_grad=True)
for name in ("sin", "cos", "log", "log2", "log1p", "asin", "atan", "sinh", "cosh", "abs", "erf", "lgamma"):
    print(name, getattr(x, name)().grad_fn._saved_self)

# --- a power saves its exponent
x = torch.tensor([2.0, 3.0], requires_grad=True)
y = x**3
print(y.grad_fn._saved_exponent, y.grad_fn._saved_self)
y = x**2.5
print(y.grad_fn._saved_exponent)
e = torch.tensor([2.0, 1.0], requires_grad=True)
y = x**e
print(y.grad_fn._saved_self, y.grad_fn._saved_exponent, y.grad_fn._saved_result)
y = 2**x
print(y.grad_fn._saved_self, y.grad_fn._saved_exponent, y.grad_fn._saved_result)

# --- a quotient saves both
a = torch.tensor([6.0], requires_grad=True)
b = torch.tensor([2.0], requires_grad=True)
print((a / b).grad_fn._saved_self, (a / b).grad_fn._saved_other, float((a / 4).grad_fn._saved_other))

# --- matrix products save their factors
a = torch.tensor([[1.0, 2.0]], requires_grad=True)
b = torch.tensor([[3.0], [4.0]], requires_grad=True)
node = (a @ b).grad_fn
print(node._saved_self, node._saved_mat2)
node = torch.dot(a[0], b[:, 0]).grad_fn
print(node._saved_self, node._saved_tensor)
node = torch.mv(b, a[0, :1]).grad_fn
print(node._saved_self, node._saved_vec)

# --- reductions save their dimensions
x = torch.ones(2, 3, requires_grad=True)
node = x.sum(1).grad_fn
print(node._saved_dim, node._saved_keepdim, x.sum((0, 1)).grad_fn._saved_dim)
print(x.sum(1, keepdim=True).grad_fn._saved_keepdim, x.mean(0).grad_fn._saved_dim)

# --- softmax saves its dimension and result
x = torch.tensor([0.0, 0.0], requires_grad=True)
y = x.softmax(0)
print(y.grad_fn._saved_dim, y.grad_fn._saved_result)

# --- sums save nothing of their operands
a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
node = (a + b).grad_fn
print([name for name in dir(node) if name.startswith("_saved")], node._saved_alpha)

# --- maxima save indices
x = torch.tensor([[1.0, 5.0], [7.0, 3.0]], requires_grad=True)
values, indices = x.max(1)
print(
    values.grad_fn._saved_dim == 1, values.grad_fn._saved_indices, torch.equal(values.grad_fn._saved_indices, indices)
)

# --- what is saved is freed by backward
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x * x).sum()
node = y.grad_fn.next_functions[0][0]
print(node._saved_self)
y.backward()
error(lambda: node._saved_self)

# --- what is saved stays with retain_graph
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x * x).sum()
y.backward(retain_graph=True)
print(y.grad_fn.next_functions[0][0]._saved_self)

# --- saved values modified in place are found when they are read
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x.exp()
y.add_(1)
error(lambda: y.grad_fn.next_functions[0][0]._saved_result, until="Hint:")

# --- raw saved values take hooks
x = torch.tensor([2.0, 3.0], requires_grad=True)
y = x.exp()
y.grad_fn._raw_saved_result.register_hooks(lambda t: t.detach() * 10, lambda t: t)
y.sum().backward()
print(x.grad / x.detach().exp())

# --- indexing saves where
x = torch.ones(4, requires_grad=True)
print(x[1].grad_fn._saved_index, x[1].grad_fn._saved_dim, x[1:3].grad_fn._saved_start, x[1:3].grad_fn._saved_end)
print(x.view(2, 2).transpose(0, 1).grad_fn._saved_dim0 == 0)

# --- clamp and where save what decides
x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
node = x.clamp(0, 1).grad_fn
print(node._saved_self, node._saved_min, node._saved_max)
print(torch.where(x > 0, x, -x).grad_fn._saved_condition)
