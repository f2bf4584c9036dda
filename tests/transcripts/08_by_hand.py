"""Calling nodes by hand: a node takes cotangents of its outputs and gives those of its inputs."""

# --- a product
a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
c = a * b
print(c.grad_fn(torch.tensor(1.0)))
print(c.grad_fn(torch.tensor(10.0)))

# --- inputs without gradient get None
a = torch.tensor(2.0, requires_grad=True)
print((a * torch.tensor(3.0)).grad_fn(torch.tensor(1.0)))
print((torch.tensor(3.0) * a).grad_fn(torch.tensor(1.0)))
print((a + 1).grad_fn(torch.tensor(1.0)))

# --- functions of one input give one tensor
x = torch.tensor([0.0, 1.0], requires_grad=True)
print(x.exp().grad_fn(torch.ones(2)))
print((x**2).grad_fn(torch.ones(2)))
print(x.sum().grad_fn(torch.tensor(2.0)))
print((-x).grad_fn(torch.tensor([1.0, 2.0])))

# --- down to AccumulateGrad
a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
c = a * b
grads = c.grad_fn(torch.tensor(1.0))
for (node, _), grad in zip(c.grad_fn.next_functions, grads):
    print(node(grad))
print(a.grad, b.grad)

# --- AccumulateGrad adds
a = torch.tensor([1.0, 2.0], requires_grad=True)
node = (a * 1).grad_fn.next_functions[0][0]
node(torch.tensor([1.0, 1.0]))
node(torch.tensor([10.0, 20.0]))
print(a.grad)

# --- a chain as in the picture of the tape
x = torch.tensor(3.0, requires_grad=True)
y = (x * x).exp().log()
grad, node = torch.tensor(1.0), y.grad_fn
while node.name() != "MulBackward0":
    grad = node(grad)
    print(node.name(), grad.detach())
    node = node.next_functions[0][0]
left, right = node(grad)
print((left + right).detach())
y.backward()
print(x.grad)

# --- a whole graph by hand gives what backward gives
x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([3.0, -1.0], requires_grad=True)


def sweep(node, *grads):
    result = node(*grads)
    results = result if isinstance(result, tuple) else (result,)
    for (following, number), grad in zip(node.next_functions, results):
        if following is not None and grad is not None:
            assert number == 0
            sweep(following, grad)


loss = (w * x.tanh() + x).sum()
sweep(loss.grad_fn, torch.tensor(1.0))
print(x.grad.detach(), w.grad.detach())
other = torch.autograd.grad((w * x.tanh() + x).sum(), [x, w])
print(torch.allclose(x.grad, other[0]), torch.allclose(w.grad, other[1]))

# --- a node with several outputs takes a cotangent for each
x = torch.arange(3.0, requires_grad=True)
node = x.unbind()[0].grad_fn
print(node(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)))
print(node(torch.tensor(1.0), None, None))

# --- matrix products
a = torch.tensor([[1.0, 2.0]], requires_grad=True)
b = torch.tensor([[3.0], [4.0]], requires_grad=True)
print([grad.tolist() for grad in (a @ b).grad_fn(torch.ones(1, 1))])

# --- the results of nodes can be differentiated
x = torch.tensor(3.0, requires_grad=True)
node = (x**3).grad_fn
grad = node(torch.tensor(1.0))
print(grad, grad.requires_grad)
(second,) = torch.autograd.grad(grad, x)
print(second)

# --- wrong numbers of cotangents
x = torch.tensor(3.0, requires_grad=True)
node = (x * x).grad_fn
error(lambda: node(), first="expected 1 arguments, got 0")
error(lambda: node(torch.tensor(1.0), torch.tensor(1.0)), first="expected 1 arguments, got 2")

# --- a freed node cannot be called
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x * x).sum()
node = y.grad_fn.next_functions[0][0]
y.backward()
error(lambda: node(torch.ones(2)), first="Trying to backward through the graph a second time")

# --- indexing and joining
x = torch.arange(4.0, requires_grad=True)
print(x[1].grad_fn(torch.tensor(5.0)))
print(x[1:3].grad_fn(torch.tensor([5.0, 6.0])))
print(torch.cat([x, x]).grad_fn(torch.arange(8.0)))
print(torch.stack([x[0], x[1]]).grad_fn(torch.tensor([1.0, 2.0])))
