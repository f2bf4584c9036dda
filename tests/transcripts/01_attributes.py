"""Attributes of tensors: leaves, results, views, shapes."""

# --- a leaf that requires grad
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
print(x.requires_grad, x.is_leaf, x.grad, x.grad_fn, x.retains_grad, x.output_nr, x._version, x._base)
print(x.dtype, tuple(x.shape), x.ndim, x.dim(), x.numel(), len(x), x.itemsize, x.nbytes, x.element_size())

# --- a leaf that does not
x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
print(x.requires_grad, x.is_leaf, x.grad, x.grad_fn, x.retains_grad, x.output_nr, x._version, x._base)
print(tuple(x.size()), x.size(0), x.size(-1), x.T.tolist(), x.mT.tolist())

# --- a result
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
print(y.requires_grad, y.is_leaf, y.retains_grad, y.output_nr, y._version, y._base is None)
print(y.grad_fn)
print(type(y.grad_fn).__name__, y.grad_fn.name())

# --- a result of tensors that do not require grad is a leaf
y = torch.tensor([1.0]) * 3
print(y.is_leaf, y.requires_grad, y.grad_fn, y.grad)

# --- one operand that requires grad is enough
a, b = torch.ones(2), torch.ones(2, requires_grad=True)
print((a + a).requires_grad, (a + b).requires_grad, (b.detach() + a).requires_grad)

# --- the grad of a result is absent, and asking for it warns
y = torch.ones(2, requires_grad=True) * 2
grad = warned(lambda: y.grad, first="The .grad attribute of a Tensor that is not a leaf Tensor is being accessed.")
print(grad)
y.retain_grad()
y.sum().backward()
print(y.grad, y.retains_grad)

# --- grad after backward is a leaf of its own
x = torch.tensor([1.0, 2.0], requires_grad=True)
(x**2).sum().backward()
print(x.grad, x.grad.requires_grad, x.grad.is_leaf, x.grad.grad_fn, x.is_leaf)

# --- data is the same memory without history
x = torch.tensor([1.0, 2.0], requires_grad=True)
print(x.data, x.data.requires_grad, x.data.is_leaf, x.data is x)
x.data[0] = 10.0
x.data.mul_(2)
print(x, x._version)
x.data = torch.zeros(3)
print(x, x.requires_grad, x.is_leaf)

# --- views know their base
x = torch.arange(6.0)
v = x.view(2, 3)
w = v[1]
print(v._base is x, w._base is x, w._is_view(), x._is_view(), x._base)
print((x + 1)._is_view(), x.reshape(3, 2)._is_view(), x.clone()._is_view(), x.detach()._is_view())

# --- views of a tensor that requires grad
x = torch.ones(2, 3, requires_grad=True)
v = x.view(6)
print(v._base is x, v.is_leaf, v.requires_grad, v.grad_fn.name())
print(x.detach()._base is None, x.data._base is None)

# --- transposes
x = torch.arange(6.0).reshape(2, 3)
print(x.T, tuple(x.t().shape), tuple(x.mT.shape))
print(tuple(torch.ones(2, 3, 4).mT.shape), tuple(torch.ones(2, 3, 4).transpose(0, 2).shape))
print(tuple(torch.ones(2, 3, 4).permute(2, 0, 1).shape))

# --- setting grad by hand
x = torch.ones(2, requires_grad=True)
x.grad = torch.tensor([5.0, 6.0])
(x * 3).sum().backward()
print(x.grad)
x.grad = None
print(x.grad)
error(lambda: setattr(x, "grad", torch.ones(3)))
error(lambda: setattr(x, "grad", 1.0))

# --- grad_fn and is_leaf cannot be set
x = torch.ones(2, requires_grad=True)
for name in ("is_leaf", "output_nr", "_version", "retains_grad"):
    try:
        setattr(x, name, 1)
    except AttributeError:
        print(name, "cannot be set")

# --- sizes as numbers
x = torch.ones(4, 5)
print(x.shape[0] * x.shape[1], x.shape[-1], list(x.shape), x.shape == (4, 5))
rows, columns = x.shape
print(rows, columns, x.numel(), torch.numel(x), torch.is_tensor(x), torch.is_tensor([1.0]))

# --- is_floating_point and is_complex
for t in (torch.ones(1), torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.complex128), torch.ones(1) > 0):
    print(t.dtype, t.is_floating_point(), t.is_complex(), torch.is_floating_point(t))

# --- requires_grad can be set on leaves
x = torch.zeros(2)
x.requires_grad = True
print(x.requires_grad, x)
x.requires_grad = False
print(x.requires_grad, x)
print(x.requires_grad_() is x, x.requires_grad, x.requires_grad_(False).requires_grad)
