"""What hooks may give back, what a backward pass has as inputs, and updates of views differentiated again."""

graph = torch.autograd.graph

# --- what hooks on nodes may give back
x = torch.tensor([1.0, 2.0], requires_grad=True)
for hook in (
    lambda inputs, outputs: 5,
    lambda inputs, outputs: list(inputs),
    lambda inputs, outputs: inputs[0],
    lambda inputs, outputs: (),
    lambda inputs, outputs: ("a", None),
    lambda inputs, outputs: (torch.zeros(3), None),
    lambda inputs, outputs: (torch.zeros(2, dtype=torch.float32), None),
    lambda inputs, outputs: (inputs[0], torch.ones(2)),
    lambda inputs, outputs: (None, None),
    lambda inputs, outputs: (inputs[0] * 2, None),
):
    y = x * 3
    y.grad_fn.register_hook(hook)
    x.grad = None
    print(error(y.sum().backward), x.grad)

# --- what hooks before nodes may give back
x = torch.tensor([1.0, 2.0], requires_grad=True)
for hook in (
    lambda outputs: 5,
    lambda outputs: [outputs[0]],
    lambda outputs: outputs[0],
    lambda outputs: (None, None),
    lambda outputs: ("a",),
    lambda outputs: (torch.zeros(3),),
    lambda outputs: (None,),
    lambda outputs: (outputs[0] * 2,),
):
    y = x * 3
    y.grad_fn.register_prehook(hook)
    x.grad = None
    print(error(y.sum().backward), x.grad)

# --- what hooks on Tensors may give back
x = torch.tensor([1.0, 2.0], requires_grad=True)
for hook in (lambda g: 5, lambda g: torch.zeros(3), lambda g: torch.zeros(2, dtype=torch.float32), lambda g: g * 2):
    y = x * 3
    y.register_hook(hook)
    x.grad = None
    print(error(y.sum().backward), x.grad)

# --- hooks on saved tensors run without a tape
x = torch.tensor([1.0, 2.0], requires_grad=True)
modes = []


def pack(t):
    modes.append((torch.is_grad_enabled(), t is x))
    return t.numpy()


with graph.saved_tensors_hooks(pack, torch.from_numpy):
    y = x * x
print(modes)
y.sum().backward()
print(x.grad)
with graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
    print(error(lambda: (x * 1) * x, until="."))
with torch.no_grad():
    print(torch.ones(2, requires_grad=True).numpy())
print(error(lambda: x.numpy(), until="."))

# --- a Tensor among the inputs of backward retains its gradient
a = torch.tensor([1.0], requires_grad=True)
b = torch.tensor([2.0], requires_grad=True)
c = a * b
d = c * c
d.backward(inputs=[c], retain_graph=True)
print(c.grad, c.retains_grad, a.grad)
d.backward(inputs=(c, b), retain_graph=True)
print(c.grad, a.grad, b.grad)
d.backward(retain_graph=True)
print(c.grad, a.grad, b.grad)
row = (a * b)[0:1]
row.retain_grad()
row.mul_(2)
(row * row).sum().backward(inputs=[row])
print(row.grad)

# --- edges among the inputs of backward
a = torch.tensor([1.0], requires_grad=True)
b = torch.tensor([2.0], requires_grad=True)
c = a * b
c.retain_grad()
d = c * c
edge = graph.get_gradient_edge(c)
torch.autograd.backward(d, inputs=[edge], retain_graph=True)
print(c.grad, a.grad)
torch.autograd.backward(d, inputs=[edge, graph.get_gradient_edge(a)], retain_graph=True)
print(c.grad, a.grad, b.grad)
print(edge == graph.get_gradient_edge(c), edge == graph.get_gradient_edge(a), edge == graph.get_gradient_edge(a * b))

# --- what was kept for updates can be forgotten
x = torch.tensor([1.0, 2.0], requires_grad=True)
with graph.allow_mutation_on_saved_tensors() as kept:
    y = x.clone()
    z = (y * y).sum()
    y.mul_(3)
    kept.clear()
    print(error(lambda: z.backward(), until=" context"))

# --- updates of views differentiated three times
for update in (
    lambda v: v.exp_(),
    lambda v: v.sigmoid_(),
    lambda v: v.sqrt_(),
    lambda v: v.reciprocal_(),
    lambda v: v.copysign_(-1.0),
    lambda v: v.hypot_(torch.tensor([1.0, 2.0])),
):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x * 1
    update(y[1:])
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), x, create_graph=True)
    (third,) = torch.autograd.grad((second * y).sum(), x)
    print(first.detach())
    print(second.detach())
    print(third)

# --- views of nothing, updated in place
x = torch.zeros(0, 2)
print(x.t_().shape, x._version, x.unsqueeze_(0).shape, x.squeeze_(0).shape, x.add_(1).shape)
