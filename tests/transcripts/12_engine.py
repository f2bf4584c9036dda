"""The engine: order, depth, threads, errors in the middle, and derivatives of any order."""

import threading

# --- derivatives of higher order
x = torch.tensor(0.5, requires_grad=True)
y = torch.sin(x)
for order in range(1, 6):
    (y,) = torch.autograd.grad(y, x, create_graph=True)
    print(order, f"{y.item():.6f}")

# --- derivatives of a power down to zero
x = torch.tensor(2.0, requires_grad=True)
y = x**4
for _ in range(4):
    (y,) = torch.autograd.grad(y, x, create_graph=True)
    print(y.item())

# --- x.grad is differentiable
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = (x**3).sum()
warned(lambda: torch.autograd.backward(y, inputs=x, create_graph=True), first="Using backward() with create_graph=True")
print(x.grad, x.grad.requires_grad)
print(torch.autograd.grad(x.grad.sum(), x))
x.grad = None

# --- x.grad accumulates out of place while it has history
x = torch.tensor([1.0, 2.0], requires_grad=True)
warned(lambda: (x**3).sum().backward(create_graph=True), first="Using backward() with create_graph=True")
first = x.grad
warned(lambda: (x**2).sum().backward(create_graph=True), first="Using backward() with create_graph=True")
print(x.grad.detach(), x.grad is first, first.detach())
x.grad = None

# --- Hessian times vector
x = torch.tensor([1.0, 2.0], requires_grad=True)
v = torch.tensor([1.0, -1.0])
y = (x[0] ** 2 * x[1]) + x[1] ** 3
(gradient,) = torch.autograd.grad(y, x, create_graph=True)
print(gradient.detach())
print(torch.autograd.grad(gradient, x, grad_outputs=v))

# --- mixed derivatives
x = torch.tensor(1.0, requires_grad=True)
y = torch.tensor(2.0, requires_grad=True)
f = x**2 * y**3
(fx,) = torch.autograd.grad(f, x, create_graph=True)
(fxy,) = torch.autograd.grad(fx, y, create_graph=True)
(fxyy,) = torch.autograd.grad(fxy, y)
print(fx.item(), fxy.item(), fxyy.item())

# --- a chain of 100000 operations
x = torch.tensor(1.0, requires_grad=True)
y = x
for _ in range(100_000):
    y = y + 1
y.backward()
print(y.item(), x.grad)

# --- a deep chain that saves values
x = torch.tensor(1.0, requires_grad=True)
y = x
for _ in range(20_000):
    y = y * 1.0001
y.backward()
print(f"{x.grad.item():.6f}")
del y

# --- many paths
x = torch.tensor(1.0, requires_grad=True)
y = x
for _ in range(60):
    y = y + y
y.backward()
print(x.grad.item() == 2.0**60)

# --- an error in the middle leaves other gradients as they are
x = torch.tensor(1.0, requires_grad=True)
w = torch.tensor(2.0, requires_grad=True)


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("in the middle")


error(lambda: Fails.apply(x * w).backward())
print(x.grad, w.grad)
(x * w).backward()
print(x.grad, w.grad)

# --- an error in a hook
x = torch.tensor(1.0, requires_grad=True)
y = x * 2


def hook(grad):
    raise KeyError("hook")


y.register_hook(hook)
error(lambda: (y * 3).backward())
print(x.grad)

# --- the order is that of creation, latest first
x = torch.tensor(1.0, requires_grad=True)
a, b, c = x * 2, x * 3, x * 4
for name, t in (("a", a), ("b", b), ("c", c)):
    t.register_hook(lambda grad, name=name: print(name, grad.item()))
(a + c + b).backward()
print(x.grad)

# --- the order is the same every time
orders = set()
for _ in range(5):
    x = torch.tensor(1.0, requires_grad=True)
    parts = [x * n for n in range(1, 6)]
    order = []
    for n, part in enumerate(parts):
        part.register_hook(lambda grad, n=n, order=order: order.append(n))
    sum(parts).backward()
    orders.add(tuple(order))
print(orders)

# --- a node waits for all that depends on it
x = torch.tensor(2.0, requires_grad=True)
h = x * 3
h.register_hook(lambda grad: print("h", grad.item()))
(h * h + h.exp() * 0 + h).backward()
print(x.grad)

# --- backward within backward
x = torch.tensor(2.0, requires_grad=True)


class Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (inner,) = torch.autograd.grad(y**2, y)
        return grad * inner


(Inner.apply(x) * 3).backward()
print(x.grad)

# --- backward from several threads
x = torch.ones(3, requires_grad=True)
results = []


def work(n):
    (grad,) = torch.autograd.grad((x * n).sum(), x)
    results.append((n, grad.tolist()))


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results))

# --- threads add into one grad
x = torch.zeros(2, requires_grad=True)
threads = [threading.Thread(target=lambda: (x * 2).sum().backward()) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(x.grad)

# --- gradients where nothing flows are absent
x = torch.tensor([1.0, 2.0], requires_grad=True)
z = torch.tensor([1.0, 2.0], requires_grad=True)
y = torch.where(torch.tensor([True, False]), x, z.detach())
y.sum().backward()
print(x.grad, z.grad)

# --- conventions at points without a derivative
for name, at in (("abs", 0.0), ("relu", 0.0), ("sign", 0.0), ("sqrt", 0.0), ("round", 0.5), ("floor", 1.0)):
    x = torch.tensor(at, requires_grad=True)
    getattr(x, name)().backward()
    print(name, x.grad.item())
x = torch.tensor([1.0, 1.0], requires_grad=True)
x.max().backward()
print(x.grad)
y = torch.tensor([1.0, 2.0], requires_grad=True)
torch.maximum(y, torch.tensor([1.0, 1.0])).sum().backward()
print(y.grad)
z = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
z.clamp(0.0, 1.0).sum().backward()
print(z.grad)

# --- inf passes through products
x = torch.tensor([0.0, 1.0], requires_grad=True)
(x * torch.tensor([float("inf"), 2.0])).sum().backward()
print(x.grad)
