"""Views share memory, versions and history with their base."""

# --- a view sees updates of its base and the base those of its views
x = torch.zeros(4)
v = x[1:3]
v += 1
x[2] = 5.0
print(x, v, x._version, v._version)

# --- an update of a view rebases the history
x = torch.ones(4, requires_grad=True)
y = x * 1
v = y[1:3]
print(v.grad_fn.name(), y.grad_fn.name())
v.mul_(2)
print(y.grad_fn, v.grad_fn.name(), y.detach())
y.sum().backward()
print(x.grad)

# --- updates through slices
x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
y = x * 1
y[1:3] *= 10
y[0] = x[3]
print(y)
y.sum().backward()
print(x.grad)

# --- updates through view
x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
y = x * 1
y.view(2, 2)[0].mul_(3)
print(y)
y.sum().backward()
print(x.grad)

# --- chains of views
x = torch.arange(8.0, requires_grad=True)
y = x * 1
v = y.view(2, 4).t()[1:3].transpose(0, 1)[0]
v.mul_(10)
print(y.detach(), v.detach(), y._version)
print(y.grad_fn.name(), v.grad_fn.name(), v._base is y)
y.sum().backward()
print(x.grad)

# --- a view made before an update of the base
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 1
v = y[0]
print(v.grad_fn.name())
y.mul_(3)
print(v.grad_fn.name(), v)
v.backward()
print(x.grad)

# --- two views of one base
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x * 1
a, b = y[:2], y[1:]
a.mul_(2)
b.add_(a[0])
print(y.detach(), a.detach(), b.detach())
(y * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
print(x.grad)

# --- a plain base starts to require grad
base = torch.zeros(3)
v = base[1:]
x = torch.tensor([1.0, 2.0], requires_grad=True)
v.copy_(x)
print(base, v.requires_grad, base.is_leaf)
(base * 2).sum().backward()
print(x.grad)

# --- a buffer filled piece by piece
out = torch.zeros(3)
x = torch.tensor(2.0, requires_grad=True)
for n in range(3):
    out[n] = x**n
print(out)
out.sum().backward()
print(x.grad)

# --- transposes and diagonals are views
x = torch.ones(2, 2, requires_grad=True)
y = x * 1
y.t()[0].mul_(5)
y.diagonal().add_(1)
print(y.detach())
(y**2).sum().backward()
print(x.grad)

# --- outputs of multi-output views cannot be updated
x = torch.ones(2, 2, requires_grad=True)
y = x * 1
a, b = y.unbind()
error(lambda: a.mul_(2), first="Output 0 of Unbind is a view and is being modified inplace.")
c, d = (x * 1).split(1)
error(lambda: d.mul_(2), first="Output 1 of Split is a view and is being modified inplace.")
error(lambda: (x * 1).chunk(2)[0].zero_(), first="Output 0 of Split is a view and is being modified inplace.")

# --- outputs of multi-output views of plain tensors can
x = torch.ones(2, 2)
a, b = x.unbind()
a.mul_(2)
print(x)

# --- the base of multi-output views is updated
x = torch.ones(2, 2, requires_grad=True)
y = x * 1
a, b = y.unbind()
y.mul_(2)
error(lambda: a.sum(), first="Output 0 of Unbind is a view and its base or another view of its base has been")

# --- views made in no_grad
x = torch.ones(2, requires_grad=True)
y = x * 1
with torch.no_grad():
    v = y.view(2)
error(
    lambda: v.mul_(2), first="A view was created in no_grad mode and is being modified inplace with grad mode enabled."
)
with torch.no_grad():
    v.mul_(2)
print(y, y._version)

# --- views of leaves in no_grad
x = torch.ones(2, requires_grad=True)
with torch.no_grad():
    x[0] = 5.0
    x.view(2).mul_(2)
print(x, x._version)
(x**2).sum().backward()
print(x.grad)

# --- detached views share memory
x = torch.ones(3, requires_grad=True)
d = x.detach()[1:]
d.fill_(4.0)
print(x, x._version, d._version)

# --- reshape views when it can
x = torch.arange(4.0)
print(x.reshape(2, 2)._is_view(), x.view(2, 2).t().reshape(4)._is_view(), x.flatten()._base is x, x[None]._base is x)
print(x.contiguous() is x, x.expand(2, 4)._is_view(), x.squeeze()._is_view(), x[[0, 1]]._is_view(), x[x > 1]._is_view())

# --- gradients through expand and views accumulate
x = torch.tensor([1.0, 2.0], requires_grad=True)
(x.expand(3, 2) * torch.arange(6.0).view(3, 2)).sum().backward()
print(x.grad)
x.grad = None
(x.view(2, 1) * x.view(1, 2)).sum().backward()
print(x.grad)

# --- hooks and retain_grad on views of updated tensors
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x * 1
v = y[1:]
v.mul_(2)
v.retain_grad()
y.retain_grad()
y.sum().backward()
print(y.grad, v.grad, x.grad)

# --- an updated view is used
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x * 1
v = y[1:]
v.mul_(x[0])
(v.sum() + y.sum()).backward()
print(x.grad)

# --- the node of an update through a view
x = torch.ones(4, requires_grad=True)
y = x * 1
y[:2].add_(1)
print(y.grad_fn.name(), [node and node.name() for node, _ in y.grad_fn.next_functions])
y[1:].mul_(x[1:])
print(y.grad_fn.name(), [node and node.name() for node, _ in y.grad_fn.next_functions])
