"""In-place forms of views, `out=`, bytes and booleans as indices, and what is left of a dimension of length 0."""

import warnings

# --- in-place forms of views
x = torch.arange(6.0).reshape(2, 3)
print(x.t_(), x._version)
print(x.transpose_(0, 1).shape, x.swapaxes_(0, 1).shape, x.swapdims_(-1, 0).shape)
print(x.unsqueeze_(0).unsqueeze_(-1).shape, x.squeeze_(0).shape, x.squeeze_().shape, x.squeeze_((0, 1)).shape)

# --- in-place forms of views have derivatives
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
y = x * 2
y.t_()
print(y.grad_fn.name(), y.shape, y.is_leaf)
y.unsqueeze_(0).mul_(torch.arange(6.0).reshape(3, 2))
print(y)
y.sum().backward()
print(x.grad)
leaf = torch.ones(2, 3, requires_grad=True)
print(error(lambda: leaf.t_()))
with torch.no_grad():
    print(x.t_().shape, x.requires_grad, x.is_leaf)

# --- views stay views of a Tensor that becomes one
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
y = x * 1
row = y[0]
y.t_()
row.mul_(10.0)
print(y.detach())
y[2] = 7.0
print(row)
(row * 2).sum().backward()
print(x.grad)

# --- a view that becomes another view
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
y = x * 1
row = y[1]
row.unsqueeze_(1)
row *= 3.0
print(row.shape, y)
(y * y).sum().backward()
print(x.grad)

# --- what was saved before
x = torch.arange(4.0).reshape(2, 2).requires_grad_()
y = x * 1
z = y * y
y.t_()
print(error(lambda: z.sum().backward(), until=":"))

# --- out
x = torch.arange(3.0)
out = torch.zeros(3)
print(torch.add(x, 1, out=out) is out, out, out._version)
print(torch.sin(x, out=torch.empty(0)))
print(torch.sum(x.reshape(1, 3), 0, out=out), torch.matmul(x, x, out=torch.tensor(0.0)))
values, indices = torch.max(x.reshape(1, 3), 1, out=(torch.zeros(1), torch.zeros(1, dtype=torch.int64)))
print(values, indices)
print(torch.cat([x, x], out=torch.zeros(6)), torch.linspace(0, 1, 3, out=out))
print(torch.add(x, 1, out=torch.zeros(3, dtype=torch.float32)).dtype)
print(torch.linalg.inv(torch.eye(2), out=torch.zeros(2, 2)))
print(error(lambda: torch.add(x, 1, out=torch.zeros(3, dtype=torch.int64))))

# --- out and derivatives
x = torch.arange(3.0).requires_grad_()
out = torch.zeros(3)
print(error(lambda: torch.mul(x, 2, out=out)))
print(error(lambda: torch.cat([out, x], out=torch.zeros(6))))
with torch.no_grad():
    print(torch.mul(x, 2, out=out), out.requires_grad)
    print(torch.mul(x, 2, out=x).requires_grad, x)

# --- bytes, booleans and None as indices
warnings.simplefilter("ignore")
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
mask = torch.tensor([1, 0], dtype=torch.uint8)
print(x[mask])
print(x[mask, 0], x[:, torch.tensor([1, 0, 1], dtype=torch.uint8)])
print(x[True].shape, x[False].shape, x[None, :, None].shape, x[..., None].shape, x[True, 0].shape, x[0, True].shape)
print(x[torch.tensor(True)].shape, x[torch.tensor(False)].shape, x[0, 0][True], x[0, 0][None], x[0, 0][...])
x[torch.tensor([[1, 0, 1], [0, 0, 1]], dtype=torch.uint8)].sum().backward()
print(x.grad)

# --- nothing
x = torch.zeros(0, 3, requires_grad=True)
print(torch.softmax(x, 0).shape, torch.softmax(x, 1).shape, torch.log_softmax(x, 0).shape)
print(torch.logsumexp(x, 0), torch.logsumexp(x, 1).shape)
torch.softmax(x, 1).sum().backward()
print(x.grad.shape)
print(error(lambda: torch.softmax(x, 2)))

# --- shifts
x = torch.tensor([1, -5, 6])
print(x << 1, x >> 1, 1 << torch.tensor([1, 2]), 64 >> torch.tensor([1, 2]))
x <<= 2
print(x, x.bitwise_right_shift_(1))
