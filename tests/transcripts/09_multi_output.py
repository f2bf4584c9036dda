"""Operations with several outputs are one node with as many output numbers."""

x = torch.tensor([[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]], requires_grad=True)


def show(*outputs):
    for output in outputs:
        name = output.grad_fn.name() if output.grad_fn is not None else None
        print(name, output.output_nr, output.requires_grad, output)


# --- unbind
show(*x.unbind())
show(*torch.unbind(x, dim=1))
a, b = x.unbind()
print(a.grad_fn is b.grad_fn)
(a * b).sum().backward()
print(x.grad)

# --- split and chunk
show(*x.split(2, dim=1))
show(*x.chunk(3, dim=1))
show(*torch.split(x, [1, 2], dim=1))
first, _ = x.split(2, dim=1)
first.sum().backward()
print(x.grad)

# --- tensor_split and hsplit
print([tuple(part.shape) for part in torch.tensor_split(x, 2, dim=1)], [tuple(p.shape) for p in torch.hsplit(x, 3)])
print([tuple(part.shape) for part in torch.vsplit(x, 2)])
torch.tensor_split(x, 2, dim=1)[1].sum().backward()
print(x.grad)

# --- topk
values, indices = torch.topk(x, 2)
show(values, indices)
values.sum().backward()
print(x.grad)
result = x.topk(1, dim=0)
print(result.values, result.indices, result[0].output_nr)
print(x.detach().topk(2, largest=False).values)

# --- sort
values, indices = x.sort(dim=1)
show(values, indices)
(values * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
print(x.grad)
print(x.detach().sort(descending=True).values, x.argsort(dim=1))

# --- max and min over a dimension
result = x.max(dim=1)
show(result.values, result.indices)
result.values.sum().backward()
print(x.grad)
values, indices = x.min(0, keepdim=True)
show(values, indices)

# --- median mode and kthvalue
for result in (x.median(dim=1), x.mode(dim=1), x.kthvalue(2, dim=1)):
    print(result.values.grad_fn.name(), result.values.output_nr, result.values.tolist(), result.indices.tolist())

# --- cummax and cummin
values, indices = torch.cummax(x, dim=1)
show(values, indices)
values.sum().backward()
print(x.grad)
print(torch.cummin(x, dim=1).values.tolist())

# --- eigh
m = torch.tensor([[2.0, 1.0], [1.0, 2.0]], requires_grad=True)
values, vectors = torch.linalg.eigh(m)
print(values, vectors.grad_fn.name(), values.output_nr, vectors.output_nr, values.grad_fn is vectors.grad_fn)
values[1].backward()
print(m.grad)

# --- svd
m = torch.tensor([[3.0, 0.0], [0.0, 2.0]], requires_grad=True)
u, s, vh = torch.linalg.svd(m)
print([(t.grad_fn.name(), t.output_nr) for t in (u, s, vh)], s.tolist())
s.sum().backward()
print(m.grad)

# --- qr and slogdet
m = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
q, r = torch.linalg.qr(m)
print([(t.grad_fn.name(), t.output_nr) for t in (q, r)], torch.allclose(q @ r, m))
sign, logabs = torch.linalg.slogdet(m)
print(sign, logabs)
logabs.backward()
print(m.grad)

# --- std_mean and var_mean
std, mean = torch.std_mean(x, dim=1)
print([(t.grad_fn.name(), t.output_nr) for t in (std, mean)], mean.tolist())
var, mean = torch.var_mean(x)
print(var, mean, var.output_nr, mean.output_nr)

# --- iteration and unpacking
for n, row in enumerate(x):
    print(n, row.output_nr, row.grad_fn.name())
a, b, c = x[0]
print(a, b.output_nr, c.grad_fn.next_functions[0][0].name())

# --- unused outputs give zeros
a, b, c = x.unbind(1)
(grad,) = torch.autograd.grad(b.sum(), x)
print(grad)

# --- gradients with respect to one of the outputs
a, b = x.unbind()
loss = (a * 2 + b * 3).sum()
print(torch.autograd.grad(loss, [a, b]))

# --- retained gradients of outputs
a, b = x.unbind()
a.retain_grad()
b.retain_grad()
(a * b).sum().backward()
print(a.grad, b.grad)

# --- results with names print them
print(x.max(1))
print(x.detach().sort())
result = torch.aminmax(x, dim=1)
print(result.min, result.max)
values, indices = x.min(dim=1)
print(x.min(dim=1)[0].tolist() == values.tolist(), len(x.max(1)), isinstance(x.max(1), tuple))

# --- gradients flow to values and never to indices
values, indices = x.sort()
print(indices.requires_grad, indices.grad_fn, values.requires_grad)
error(lambda: indices.sum().backward())
