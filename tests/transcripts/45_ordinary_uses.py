"""Small things that programs use: keywords, broadcasts, devices, wrappers of optimizers, what is refused."""

x = torch.arange(12.0).reshape(3, 4)

# --- keywords
print(torch.flip(x, dims=(0,)), x.flip(dims=(1,)).tolist(), x.flip(0, 1).tolist())
print(torch.permute(x, dims=(1, 0)).shape, x.permute(dims=(1, 0)).shape, x.permute(1, 0).shape)
print(torch.tile(x[:1, :2], dims=(2, 1)), x[0].tile(dims=(2,)), x[0].tile(2))
print(torch.swapaxes(x, axis0=0, axis1=1).shape, torch.swapdims(x, dim0=0, dim1=1).shape, x.swapaxes(0, 1).shape)

# --- dimensions of size one are broadcast in sums of products
a, b = torch.ones(1, 3, requires_grad=True), torch.arange(6.0).reshape(2, 3).requires_grad_()
for text in ("ij,ij->ij", "ij,ij->i", "ij,ij->", "ij,ij->ji", "ij,kj->ik", "...j,...j->...j"):
    value = torch.einsum(text, a, b)
    print(text, value.detach(), torch.autograd.grad((value * value.detach()).sum(), (a, b)))
print(torch.einsum("ij,ij,j->i", a, b, torch.ones(1)).detach())
print(torch.tensordot(torch.ones(1, 2), torch.ones(3, 2), dims=([0, 1], [0, 1])))
print(torch.tensordot(torch.ones(3, 2), torch.ones(1, 2), dims=([0], [0])))

# --- devices and dtypes
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print(device.type, str(device), x.device.type, x.device == device, torch.device("cpu:0").index, device.index)
print(x.to(device) is x, torch.ones(2, device=device), torch.zeros(1, device=x.device))
print(x.is_cuda, x.is_sparse, x.is_quantized, x.is_meta, isinstance(x.dtype, torch.dtype))

# --- lists as indices
print(
    warned(lambda: x[[[0, 2], [1, 1]]], first="Using a non-tuple sequence for multidimensional indexing is deprecated")
)
print(
    warned(lambda: x[[slice(None), 1]], first="Using a non-tuple sequence for multidimensional indexing is deprecated")
)
print(x[[0, 2]], x[[True, False, True]])
y = torch.zeros(3, 4)
places = [torch.tensor([0, 2]), torch.tensor([1, 1])]
warned(
    lambda: y.__setitem__(places, 5.0), first="Using a non-tuple sequence for multidimensional indexing is deprecated"
)
print(y)


# --- a wrapper of an optimizer
class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner, self.param_groups, self.defaults, self.state = inner, inner.param_groups, inner.defaults, {}

    def step(self, closure=None):
        return self.inner.step()


w = torch.nn.Parameter(torch.ones(2))
optimizer = Lookahead(torch.optim.SGD([w], lr=0.1))
for _ in range(2):
    w.grad = None
    (w * w).sum().backward()
    optimizer.step()
print(w)

# --- dropout of channels of a matrix
print(warned(lambda: torch.nn.Dropout2d(0.0)(torch.ones(2, 3)), first="dropout2d: Received a 2-D input to dropout2d"))
print(warned(lambda: torch.nn.Dropout2d(1.0)(torch.ones(2, 3)), first="dropout2d: Received a 2-D input to dropout2d"))

# --- no dimensions mean all
print(torch.linalg.vector_norm(torch.arange(4.0), dim=()), torch.linalg.vector_norm(x, 1, ()))

# --- what is refused
error(lambda: torch.func.grad(lambda x, y: x * y, argnums=(0, 0))(torch.tensor(2.0), torch.tensor(3.0)))
error(lambda: torch.nn.functional.hardtanh(x, 2.0, 1.0))
error(lambda: torch.isclose(x, x, rtol=-0.4))
error(lambda: torch.isclose(x, x, atol=-0.4))
error(lambda: torch.diff(x, n=-1))
error(lambda: torch.nn.functional.avg_pool2d(torch.ones(1, 2, 2), 2, divisor_override=0))
error(lambda: torch.take_along_dim(x, torch.tensor([[0]], dtype=torch.int32), dim=1))
error(lambda: torch.broadcast_shapes((-1,)))
error(lambda: torch.zeros(()).__setitem__(slice(None), 8.0))
