"""Examples of the kind that introduce automatic differentiation."""

import math

# --- a function of one variable
x = torch.tensor(2.0, requires_grad=True)
y = x**2 + 3 * x + 1
print(y)
y.backward()
print(x.grad)

# --- a loss of two parameters
a = torch.tensor([2.0, 3.0], requires_grad=True)
b = torch.tensor([6.0, 4.0], requires_grad=True)
Q = 3 * a**3 - b**2
external_grad = torch.tensor([1.0, 1.0])
Q.backward(gradient=external_grad)
print(Q)
print(9 * a**2 == a.grad)
print(-2 * b == b.grad)

# --- a linear layer with binary cross entropy
x = torch.ones(5)
y = torch.zeros(3)
w = torch.linspace(-1, 1, 15).reshape(5, 3).requires_grad_()
b = torch.tensor([0.1, 0.2, 0.3], requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
print(f"Gradient function for z = {z.grad_fn}")
print(f"Gradient function for loss = {loss.grad_fn}")
loss.backward()
print(w.grad)
print(b.grad)

# --- tracking switched off
x = torch.ones(5)
w = torch.ones(5, 3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
z = torch.matmul(x, w) + b
print(z.requires_grad)
with torch.no_grad():
    z = torch.matmul(x, w) + b
print(z.requires_grad)
z_det = (torch.matmul(x, w) + b).detach()
print(z_det.requires_grad)

# --- vector Jacobian products accumulate
inp = torch.eye(4, 5, requires_grad=True)
out = (inp + 1).pow(2).t()
out.backward(torch.ones_like(out), retain_graph=True)
print(f"First call\n{inp.grad}")
out.backward(torch.ones_like(out), retain_graph=True)
print(f"\nSecond call\n{inp.grad}")
inp.grad.zero_()
out.backward(torch.ones_like(out), retain_graph=True)
print(f"\nCall after zeroing gradients\n{inp.grad}")

# --- a sine step by step
a = torch.linspace(0.0, 2.0 * math.pi, steps=5, requires_grad=True)
b = torch.sin(a)
c = 2 * b
d = c + 1
out = d.sum()
print(b, c, d, out, sep="\n")
print("d:", d.grad_fn, d.grad_fn.next_functions)
print(d.grad_fn.next_functions[0][0].next_functions)
print(d.grad_fn.next_functions[0][0].next_functions[0][0].next_functions)
print(d.grad_fn.next_functions[0][0].next_functions[0][0].next_functions[0][0].next_functions)
print("a:", a.grad_fn)
out.backward()
print(a.grad)

# --- which tensors get a gradient
x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([3.0, 4.0])
h = x * w
y = h.sum()
y.backward()
for name, t in (("x", x), ("w", w), ("h", h), ("y", y)):
    print(name, t.is_leaf, t.requires_grad, t.grad_fn)
print(x.grad, w.grad)

# --- fitting a polynomial
xs = torch.linspace(-1, 1, 9)
ys = 0.5 - 2 * xs + 3 * xs**2
a, b, c = (torch.zeros((), requires_grad=True) for _ in range(3))
for step in range(300):
    prediction = a + b * xs + c * xs**2
    loss = (prediction - ys).pow(2).sum()
    if step % 100 == 0:
        print(step, f"{loss.item():.6f}")
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c):
            p -= 0.05 * p.grad
            p.grad = None
print(f"y = {a.item():.3f} + {b.item():.3f} x + {c.item():.3f} x^2")

# --- a two-layer network
X = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
Y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
w1 = torch.tensor([[1.0, -1.0, 0.5], [0.8, -0.6, -1.0]], requires_grad=True)
b1 = torch.zeros(3, requires_grad=True)
w2 = torch.tensor([[0.7], [0.9], [-0.4]], requires_grad=True)
b2 = torch.zeros(1, requires_grad=True)
for step in range(200):
    hidden = torch.tanh(X @ w1 + b1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(hidden @ w2 + b2, Y)
    loss.backward()
    with torch.no_grad():
        for p in (w1, b1, w2, b2):
            p -= 1.0 * p.grad
            p.grad.zero_()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
print(((hidden @ w2 + b2) > 0).flatten())

# --- freezing parameters
w1 = torch.tensor([1.0, 2.0], requires_grad=True)
w2 = torch.tensor([3.0, 4.0], requires_grad=True)
w1.requires_grad_(False)
(w1 * w2).sum().backward()
print(w1.grad, w2.grad)

# --- gradients of intermediate values by retain_grad
x = torch.tensor(1.0, requires_grad=True)
a = x + 2
b = a * a * 3
a.retain_grad()
b.retain_grad()
b.mean().backward()
print(x.grad, a.grad, b.grad)

# --- a loop whose length depends on values
x = torch.tensor([1.0, 1.0], requires_grad=True)
y = x * 2
steps = 0
while y.norm() < 1000:
    y = y * 2
    steps += 1
y.backward(torch.tensor([1.0, 0.1]))
print(steps, y, x.grad)


# --- branches
def f(t):
    return t.sum() if t.sum() > 0 else (t**2).sum()


for values in ([1.0, 2.0], [-1.0, -2.0]):
    x = torch.tensor(values, requires_grad=True)
    f(x).backward()
    print(x.grad)

# --- Newton's method with second derivatives
x = torch.tensor(2.0, requires_grad=True)
for _ in range(4):
    y = x**4 - 3 * x**2 + x
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    with torch.no_grad():
        x -= first / second
    print(f"{x.item():.6f}")

# --- the Jacobian row by row
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = torch.stack([x[0] * x[1], x[1] * x[2], x.prod()])
rows = [torch.autograd.grad(y, x, torch.eye(3)[n], retain_graph=True)[0] for n in range(3)]
print(torch.stack(rows))


# --- the Rosenbrock function
def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


x = torch.tensor([-1.2, 1.0, 0.5], requires_grad=True)
rosenbrock(x).backward()
print(rosenbrock(x), x.grad)
print(torch.autograd.functional.hessian(rosenbrock, x.detach()))

# --- a shared parameter and a detached branch
w = torch.tensor(2.0, requires_grad=True)
x = torch.tensor([1.0, 2.0])
student = w * x
teacher = (w * x * 1.5).detach()
((student - teacher) ** 2).sum().backward()
print(w.grad)

# --- recurrent use of one matrix
w = torch.tensor([[0.5, 0.1], [-0.2, 0.3]], requires_grad=True)
h = torch.ones(2)
for _ in range(3):
    h = torch.tanh(w @ h)
h.sum().backward()
print(h, w.grad)

# --- an embedding looked up and updated
table = torch.arange(6.0).reshape(3, 2).requires_grad_()
picked = table[torch.tensor([0, 2, 0])]
(picked * torch.tensor([[1.0], [10.0], [100.0]])).sum().backward()
print(picked, table.grad, sep="\n")

# --- broadcasting
a = torch.ones(3, 1, requires_grad=True)
b = torch.arange(4.0).requires_grad_()
(a * b + 1).sum().backward()
print(a.grad.flatten(), b.grad, tuple((a * b).shape))
