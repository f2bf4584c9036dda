"""Tensor.backward and autograd.backward."""

# --- a scalar
x = torch.tensor(3.0, requires_grad=True)
y = x**2
print(y.backward(), x.grad)

# --- a vector summed
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x**2).sum().backward()
print(x.grad)

# --- a vector needs a gradient
x = torch.tensor([1.0, 2.0], requires_grad=True)
error(lambda: (x * 2).backward())
error(lambda: torch.autograd.grad(x * 2, x))
(x * 2).backward(torch.tensor([1.0, 10.0]))
print(x.grad)
(x * 2).backward(gradient=torch.ones(2))
print(x.grad)

# --- one element is a scalar, whatever its shape
x = torch.tensor([[3.0]], requires_grad=True)
(x**2).backward()
print(x.grad)

# --- accumulation over calls
x = torch.tensor([1.0, 2.0], requires_grad=True)
for _ in range(3):
    (x * 2).sum().backward()
    print(x.grad)
x.grad.zero_()
print(x.grad)
(x * 5).sum().backward()
print(x.grad)
x.grad = None
print(x.grad)

# --- accumulation over paths
x = torch.tensor(2.0, requires_grad=True)
a = x * 3
b = a * a + x + a
b.backward()
print(x.grad)

# --- accumulation into the same tensor
x = torch.tensor([1.0], requires_grad=True)
(x * 2).backward()
grad = x.grad
(x * 2).backward()
print(grad, grad is x.grad)

# --- a second backward needs retain_graph
x = torch.tensor([2.0], requires_grad=True)
y = (x * x).sum()
y.backward()
error(lambda: y.backward())
print(x.grad)

# --- retain_graph
x = torch.tensor([2.0], requires_grad=True)
y = (x * x).sum()
y.backward(retain_graph=True)
y.backward()
print(x.grad)
error(lambda: y.backward(), first="Trying to backward through the graph a second time")

# --- graphs that saved nothing can be used again
x = torch.tensor([2.0], requires_grad=True)
y = (x + x).sum()
y.backward()
y.backward()
print(x.grad)

# --- parts shared with a graph that was freed
x = torch.tensor([2.0], requires_grad=True)
shared = x * x
shared.sum().backward()
error(lambda: (shared * 3).sum().backward(), first="Trying to backward through the graph a second time")

# --- tensors that do not require grad
error(lambda: torch.ones(1).backward())
error(lambda: torch.ones(2).sum().backward())
x = torch.ones(1, requires_grad=True)
error(lambda: x.detach().backward())

# --- backward of a leaf
x = torch.tensor(2.0, requires_grad=True)
x.backward()
print(x.grad)
x.backward(torch.tensor(5.0))
print(x.grad)

# --- a gradient of the wrong shape
x = torch.ones(2, requires_grad=True)
error(lambda: (x * 2).backward(torch.ones(3)))
error(lambda: x.sum().backward(torch.ones(2)), first="Mismatch in shape: grad_output[0] has a shape of")
error(lambda: (x * 2).backward(torch.tensor(1.0)))

# --- a gradient of the wrong type
x = torch.ones(2, requires_grad=True)
error(lambda: torch.autograd.backward([x.sum()], [5.0]))

# --- inputs
x = torch.tensor(2.0, requires_grad=True)
w = torch.tensor(3.0, requires_grad=True)
y = x * w
y.backward(inputs=[x])
print(x.grad, w.grad)
(x * w).backward(inputs=w)
print(x.grad, w.grad)
error(lambda: (x * w).backward(inputs=[]))

# --- inputs that are not leaves
x = torch.tensor(2.0, requires_grad=True)
h = x * 3
y = h * h
y.backward(inputs=[h])
print(warned(lambda: h.grad), x.grad)

# --- several tensors at once
x = torch.tensor([1.0, 2.0], requires_grad=True)
a, b = (x * 2).sum(), x * 3
torch.autograd.backward([a, b], [None, torch.tensor([1.0, 10.0])])
print(x.grad)
torch.autograd.backward(x.sum())
print(x.grad)
error(lambda: torch.autograd.backward([x.sum(), x * 2]))
error(lambda: torch.autograd.backward([x.sum(), x.sum()], [None]), first="got 2 tensors and 1 gradients")

# --- backward with create_graph keeps a graph of the gradient
x = torch.tensor(3.0, requires_grad=True)
y = x**3
warned(lambda: y.backward(create_graph=True), first="Using backward() with create_graph=True will create a reference")
print(x.grad, x.grad.requires_grad)
grad = x.grad
x.grad = None
grad.backward()
print(x.grad)

# --- gradients of float32 leaves are float32
x = torch.ones(2, dtype=torch.float32, requires_grad=True)
(x.double() * 3).sum().backward()
print(x.grad)

# --- broadcasting is undone
x = torch.ones(3, requires_grad=True)
b = torch.tensor(2.0, requires_grad=True)
(torch.ones(2, 3) * x * b).sum().backward()
print(x.grad, b.grad)

# --- unused tensors keep their grad
x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
(x * 2).backward()
print(y.grad)
