"""autograd.grad: gradients as results instead of in .grad."""

# --- one output, one input
x = torch.tensor(3.0, requires_grad=True)
y = x**2
print(torch.autograd.grad(y, x), x.grad)

# --- several inputs
x = torch.tensor(3.0, requires_grad=True)
w = torch.tensor(4.0, requires_grad=True)
print(torch.autograd.grad(x * w, [x, w]))
print(torch.autograd.grad(outputs=x * w, inputs=(w,)))
print(torch.autograd.grad([x * w], (x, w), grad_outputs=[torch.tensor(10.0)]))

# --- several outputs add up
x = torch.tensor([1.0, 2.0], requires_grad=True)
print(torch.autograd.grad([x.sum(), (x**2).sum()], x))
print(torch.autograd.grad([x * 2, x.sum()], x, grad_outputs=[torch.tensor([1.0, 10.0]), None]))

# --- grad_outputs weigh the outputs
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x**2
print(torch.autograd.grad(y, x, grad_outputs=torch.tensor([1.0, 0.5])))
error(lambda: torch.autograd.grad(x**2, x))
error(lambda: torch.autograd.grad(x**2, x, grad_outputs=torch.ones(3)))
error(lambda: torch.autograd.grad(x**2, x, grad_outputs=torch.ones(2, 1)))
error(lambda: torch.autograd.grad([x, x], x, grad_outputs=[torch.ones(2)]), first="got 2 tensors and 1 gradients")

# --- intermediate results as inputs
x = torch.tensor(2.0, requires_grad=True)
h = x**2
y = h**3
print(torch.autograd.grad(y, h, retain_graph=True))
print(torch.autograd.grad(y, [x, h]))

# --- an output with respect to itself
x = torch.tensor([2.0, 3.0], requires_grad=True)
y = x.sum()
print(torch.autograd.grad(y, y))
print(torch.autograd.grad(x, x, torch.tensor([5.0, 7.0])))

# --- unused inputs are an error
x = torch.tensor(2.0, requires_grad=True)
z = torch.tensor(5.0, requires_grad=True)
error(lambda: torch.autograd.grad(x * 2, z))
error(lambda: torch.autograd.grad(x * 2, [x, z]))
print(torch.autograd.grad(x * 2, [x, z], allow_unused=True))

# --- materialize_grads gives zeros
x = torch.tensor(2.0, requires_grad=True)
z = torch.tensor([5.0, 6.0], requires_grad=True)
print(torch.autograd.grad(x * 2, [x, z], materialize_grads=True))
error(lambda: torch.autograd.grad(x * 2, [x, z], allow_unused=False, materialize_grads=True))

# --- inputs that do not require grad
x = torch.tensor(2.0, requires_grad=True)
error(lambda: torch.autograd.grad(x * 2, torch.tensor(1.0)))
error(lambda: torch.autograd.grad(x * 2, [x, torch.tensor(1.0)]))
error(lambda: torch.autograd.grad(torch.tensor(1.0), x))

# --- buffers are freed
x = torch.tensor(2.0, requires_grad=True)
y = x * x
torch.autograd.grad(y, x)
error(lambda: torch.autograd.grad(y, x), first="Trying to backward through the graph a second time")

# --- retain_graph
x = torch.tensor(2.0, requires_grad=True)
y = x * x
print(torch.autograd.grad(y, x, retain_graph=True), torch.autograd.grad(y, x))

# --- create_graph
x = torch.tensor(2.0, requires_grad=True)
y = x**3
(first,) = torch.autograd.grad(y, x, create_graph=True)
(second,) = torch.autograd.grad(first, x, create_graph=True)
(third,) = torch.autograd.grad(second, x, create_graph=True)
print(first.item(), second.item(), third.item(), first.requires_grad, first.is_leaf)

# --- is_grads_batched
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x**2
print(torch.autograd.grad(y, x, grad_outputs=torch.eye(3), is_grads_batched=True))
y = torch.stack([x.sum(), (x * x).sum()])
print(torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True, retain_graph=True))
error(lambda: torch.autograd.grad(y, x, torch.ones(2, 3), is_grads_batched=True), first="If `is_grads_batched=True`")

# --- is_grads_batched through several operations
x = torch.tensor([0.5, 1.0], requires_grad=True)
w = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
y = torch.tanh(w @ x)
(jacobian,) = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
expected = (1 - torch.tanh(w @ x.detach()) ** 2)[:, None] * w
print(tuple(jacobian.shape), torch.allclose(jacobian, expected))

# --- grad leaves .grad alone
x = torch.tensor(2.0, requires_grad=True)
(x * 3).backward()
torch.autograd.grad(x * 5, x)
print(x.grad)

# --- the same input twice
x = torch.tensor(2.0, requires_grad=True)
print(torch.autograd.grad(x * 3, [x, x]))

# --- gradients in no_grad
x = torch.tensor(2.0, requires_grad=True)
y = x * x
with torch.no_grad():
    print(torch.autograd.grad(y, x))

# --- grad of a view of an input is not the input
x = torch.tensor([1.0, 2.0], requires_grad=True)
v = x[0]
y = (x * 2).sum()
error(lambda: torch.autograd.grad(y, v), first="The differentiated Tensor at index 0 appears to not have been used")
y = (v * 2).sum()
print(torch.autograd.grad(y, v))

# --- the results are tuples of tensors without history
x = torch.tensor([1.0, 2.0], requires_grad=True)
grads = torch.autograd.grad((x**2).sum(), x)
print(type(grads).__name__, len(grads), grads[0].requires_grad, grads[0].grad_fn, grads[0].is_leaf)

# --- a gradient penalty
x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, -0.5], requires_grad=True)
out = (w * x**2).sum()
(gx,) = torch.autograd.grad(out, x, create_graph=True)
penalty = (gx.norm() - 1) ** 2
penalty.backward()
print(w.grad, x.grad)
