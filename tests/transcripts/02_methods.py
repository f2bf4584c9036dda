"""Methods of tensors that concern autograd, and ways back to Python and NumPy."""

import copy
import pickle

import numpy as np

# --- detach shares memory and forgets history
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
d = y.detach()
print(d, d.requires_grad, d.is_leaf, d.grad_fn)
d[0] = 100.0
print(y, y._version, d._version)

# --- detach in place
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
print(y.detach_() is y, y.requires_grad, y.grad_fn, y.is_leaf)

# --- detach cuts the gradient
x = torch.tensor(3.0, requires_grad=True)
(x * x.detach()).backward()
print(x.grad)

# --- clone copies memory and keeps history
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x.clone()
print(y, y.is_leaf, y.requires_grad, y.grad_fn.name(), y._version)
with torch.no_grad():
    y[0] = 7.0
print(x)
(y * 3).sum().backward()
print(x.grad)

# --- item and tolist
print(torch.tensor(2.5).item(), torch.tensor([4]).item(), torch.tensor([[True]]).item())
print(torch.tensor([[1.0, 2.0]]).tolist(), torch.tensor(3).tolist(), torch.tensor([True, False]).tolist())
print(type(torch.tensor(2.5).item()).__name__, type(torch.tensor(2).item()).__name__)
error(lambda: torch.ones(2).item())

# --- item of a tensor that requires grad is a number
x = torch.tensor(2.0, requires_grad=True)
print((x * 2).item(), x.tolist(), (x * torch.ones(2)).tolist())

# --- float int bool index
x = torch.tensor(2.0)
print(float(x), int(x), bool(x), int(torch.tensor(3)), [10, 20, 30][torch.tensor(1)], bool(torch.tensor(0.0)))
error(lambda: bool(torch.ones(2)))
error(lambda: [1, 2][torch.tensor(1.0)])

# --- numpy shares memory
x = torch.zeros(3)
a = x.numpy()
a[1] = 5.0
x[2] = 7.0
print(x, a.tolist(), type(a).__name__, a.dtype)

# --- numpy of a tensor that requires grad is an error
x = torch.zeros(3, requires_grad=True)
error(lambda: x.numpy())
error(lambda: (x * 2).numpy())
print(x.detach().numpy().tolist())
with torch.no_grad():
    print((x + 1).numpy().tolist())

# --- from_numpy shares memory
a = np.array([1.0, 2.0])
x = torch.from_numpy(a)
a[0] = 9.0
print(x, x.dtype, x.requires_grad)
x.mul_(10)
print(a.tolist())
print(torch.tensor(a), torch.as_tensor(a).data_ptr() == x.data_ptr())

# --- len and iteration
x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
print(len(x))
for row in x:
    print(row)
error(lambda: len(torch.tensor(1.0)))
error(lambda: list(torch.tensor(1.0)))

# --- comparison gives boolean tensors without history
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
mask = x > 1.5
print(mask, mask.dtype, mask.requires_grad, (x == 2).tolist(), (x != 2).tolist(), (x <= 2).tolist())

# --- conversion of dtype is differentiable
x = torch.tensor([1.5, 2.5], requires_grad=True)
y = x.float()
print(y.dtype, y.grad_fn.name(), x.double() is x, x.to(torch.float64) is x)
y.sum().backward()
print(x.grad, x.grad.dtype)
print(x.int(), x.long().requires_grad, x.bool())

# --- to and type conversions of plain tensors
x = torch.tensor([0.0, 1.7, -1.7])
print(x.int(), x.long(), x.bool(), x.float().dtype, x.to(torch.int32).dtype, x.type(torch.int16).dtype)

# --- view_as reshape flatten
x = torch.arange(6.0, requires_grad=True)
print(x.view(2, 3), x.view(3, -1).shape[1], x.view_as(torch.ones(3, 2)).shape[0])
print(x.reshape(2, 3).grad_fn.name(), x.view(2, 3).flatten().shape[0], x.view(1, 6).squeeze(0).shape[0])
error(lambda: x.view(4, 2))
error(lambda: x.reshape(-1, -1), first="only one dimension can be inferred")

# --- contiguous
x = torch.arange(6.0).view(2, 3)
print(x.is_contiguous(), x.t().is_contiguous(), x.t().contiguous().is_contiguous(), x.contiguous() is x)
error(lambda: x.t().view(6), first="view size is not compatible with input tensor's size and stride")
print(x.t().reshape(6))

# --- equality of tensors
a = torch.tensor([1.0, 2.0])
print(torch.equal(a, a.clone()), torch.equal(a, a + 1), torch.allclose(a, a + 1e-12), a is a.clone())
print({a: "tensors are keys by identity"}[a], hash(a) == hash(a))

# --- deepcopy and pickle of leaves
x = torch.tensor([1.0, 2.0], requires_grad=True)
(x * 2).sum().backward()
y = copy.deepcopy(x)
print(y, y.requires_grad, y.grad, y.is_leaf)
z = pickle.loads(pickle.dumps(x))
print(z, z.requires_grad)
error(lambda: copy.deepcopy(x * 2), first="Only Tensors created explicitly by the user")
