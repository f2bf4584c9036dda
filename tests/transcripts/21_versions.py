"""Version counters find values that were changed after they were saved."""

# --- every update counts
x = torch.zeros(2)
print(x._version)
x.add_(1)
x[0] = 3.0
x += 1
x.zero_()
print(x._version)
y = x + 1
print(y._version)

# --- views and detached tensors count together
x = torch.zeros(4)
v, d = x[1:], x.detach()
v.add_(1)
d.add_(1)
x.view(2, 2)[0].add_(1)
print(x._version, v._version, d._version)
print(x.clone()._version, x.data._version)

# --- data counts for itself
x = torch.zeros(2)
x.data.add_(1)
print(x, x._version)

# --- a result that was saved
a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
b = a.exp()
b.add_(1)
error(lambda: b.sum().backward(), until="Hint:")

# --- an operand that was saved
a = torch.tensor([1.0, 2.0], requires_grad=True)
b = torch.tensor([3.0, 4.0])
c = (a * b).sum()
b[0] = 10.0
error(lambda: c.backward(), until="Hint:")

# --- a matrix
a = torch.ones(2, 3, requires_grad=True)
b = torch.ones(3, 2)
c = a @ b
b.mul_(2)
b.mul_(2)
error(lambda: c.sum().backward(), until="Hint:")

# --- an intermediate result
x = torch.ones(2, 3, requires_grad=True)
y = x * 2
z = y.sigmoid()
w = z.sum()
z.mul_(0)
error(lambda: w.backward(), until="Hint:")

# --- scalars and other dtypes
x = torch.tensor(2.0, requires_grad=True)
y = x.exp()
y += 1
error(lambda: y.backward(), until="Hint:")
x = torch.ones(2, dtype=torch.float32, requires_grad=True)
y = x.exp()
y += 1
error(lambda: y.sum().backward(), until="Hint:")

# --- an update through a view
x = torch.ones(4, requires_grad=True)
y = x.exp()
y[0] = 0.0
error(lambda: y.sum().backward(), until="Hint:")

# --- an update of a detached tensor
x = torch.ones(2, requires_grad=True)
y = x.exp()
y.detach().zero_()
error(lambda: y.sum().backward(), until="Hint:")

# --- data escapes the check
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x.sigmoid()
y.data.zero_()
y.sum().backward()
print(x.grad)

# --- a leaf updated between forward and backward
w = torch.tensor([1.0, 2.0], requires_grad=True)
loss = (w**2).sum()
with torch.no_grad():
    w -= 0.1
error(lambda: loss.backward(), until="Hint:")

# --- updates that do not matter are allowed
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x + 1
y.add_(1)
y.mul_(2)
y.sum().backward()
print(x.grad)
z = x.sin()
z.add_(1)
z.sum().backward()
print(x.grad)

# --- updates of what is not saved
a = torch.tensor([1.0, 2.0], requires_grad=True)
b = torch.tensor([3.0, 4.0], requires_grad=True)
c = a.detach().clone()
d = c + b
c.zero_()
d.sum().backward()
print(b.grad)

# --- the update stands before the use
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 1
y.add_(1)
z = y**2
z.sum().backward()
print(x.grad)

# --- a value saved twice
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 1
z = y * y
y.add_(1)
error(lambda: z.sum().backward(), until="Hint:")

# --- a mask
x = torch.tensor([1.0, 2.0], requires_grad=True)
mask = torch.tensor([True, False])
y = torch.where(mask, x, -x)
mask[0] = False
error(lambda: y.sum().backward(), until=": [")

# --- indices
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
i = torch.tensor([0, 2])
y = x[i]
i.add_(0)
error(lambda: y.sum().backward(), until="Hint:")


# --- a custom function that saved its input
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 1
z = Square.apply(y)
y.add_(1)
error(lambda: z.sum().backward(), until="Hint:")
