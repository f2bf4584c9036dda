"""Hooks on tensors."""

# --- a hook sees the gradient
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
y.register_hook(lambda grad: print("gradient of y:", grad))
(y * y).sum().backward()
print(x.grad)

# --- a hook replaces the gradient
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 2
y.register_hook(lambda grad: grad * 10)
y.sum().backward()
print(x.grad)

# --- hooks run in the order they were registered
x = torch.tensor(1.0, requires_grad=True)
y = x * 1
y.register_hook(lambda grad: print("first", grad) or grad * 2)
y.register_hook(lambda grad: print("second", grad) or grad + 1)
y.register_hook(lambda grad: print("third", grad))
y.backward()
print(x.grad)

# --- a handle removes the hook
x = torch.tensor(1.0, requires_grad=True)
handle = x.register_hook(lambda grad: grad * 100)
(x * 2).backward()
print(x.grad, type(handle).__name__)
handle.remove()
handle.remove()
(x * 2).backward()
print(x.grad)

# --- a handle is a context manager
x = torch.tensor(1.0, requires_grad=True)
with x.register_hook(lambda grad: grad * 100):
    (x * 2).backward()
print(x.grad)
(x * 2).backward()
print(x.grad)

# --- one of several hooks is removed
x = torch.tensor(1.0, requires_grad=True)
handles = [x.register_hook(lambda grad, n=n: print("hook", n)) for n in range(3)]
handles[1].remove()
(x * 2).backward()

# --- hooks on leaves change what is accumulated
x = torch.tensor([1.0, 2.0], requires_grad=True)
x.register_hook(lambda grad: -grad)
(x * 3).sum().backward()
print(x.grad)
print(torch.autograd.grad((x * 3).sum(), x))

# --- a hook sees the sum over all paths
x = torch.tensor(2.0, requires_grad=True)
h = x * 1
h.register_hook(lambda grad: print("h:", grad))
(h * 2 + h * 3 + h * h).backward()
print(x.grad)

# --- retain_grad sees what hooks have made
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.retain_grad()
y.register_hook(lambda grad: grad * 10)
(y * 3).backward()
print(y.grad, x.grad)

# --- the order of retain_grad and hooks does not matter
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.register_hook(lambda grad: grad * 10)
y.retain_grad()
y.register_hook(lambda grad: grad + 1)
(y * 3).backward()
print(y.grad, x.grad)

# --- retain_grad accumulates and can be asked twice
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.retain_grad()
y.retain_grad()
y.backward(retain_graph=True)
y.backward()
print(y.grad, y.retains_grad, x.grad)

# --- retain_grad of leaves does nothing
x = torch.tensor(1.0, requires_grad=True)
x.retain_grad()
print(x.retains_grad)
error(lambda: torch.tensor(1.0).retain_grad())

# --- hooks need a tensor that requires grad
error(lambda: torch.tensor(1.0).register_hook(print))
error(lambda: torch.tensor(1.0).register_post_accumulate_grad_hook(print))

# --- a hook must return a tensor of the same shape
x = torch.ones(2, requires_grad=True)
y = x * 2
y.register_hook(lambda grad: torch.ones(3))
error(lambda: y.sum().backward(), first="hook '<lambda>' has changed the size of value")
y = x * 2
y.register_hook(lambda grad: 5.0)
error(lambda: y.sum().backward())

# --- gradients must not be changed in place by surprise
x = torch.tensor([1.0, 2.0], requires_grad=True)
seen = []
y = x * 2
y.register_hook(lambda grad: seen.append(grad.clone()))
y.backward(torch.tensor([5.0, 6.0]))
print(seen, x.grad)

# --- hooks run with autograd.grad too
x = torch.tensor(1.0, requires_grad=True)
y = x * 2
y.register_hook(lambda grad: grad * 7)
print(torch.autograd.grad(y * 1, x))
y = x * 2
y.register_hook(lambda grad: grad * 7)
print(torch.autograd.grad(y * 1, y))

# --- hooks see gradients without history unless a graph is made
x = torch.tensor(2.0, requires_grad=True)
y = x**2
y.register_hook(lambda grad: print(grad.requires_grad))
torch.autograd.grad(y * y, x, retain_graph=True)
torch.autograd.grad(y * y, x, create_graph=True)

# --- hooks with create_graph can be differentiated
x = torch.tensor(2.0, requires_grad=True)
y = x**2
y.register_hook(lambda grad: grad * grad)
(first,) = torch.autograd.grad(y * 3, x, create_graph=True)
print(first.item())
print(torch.autograd.grad(first, x))

# --- clipping gradients by a hook
w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
w.register_hook(lambda grad: grad.clamp(-1.5, 1.5))
(w**2).sum().backward()
print(w.grad)

# --- post accumulate hooks see the tensor with its grad
x = torch.tensor([1.0, 2.0], requires_grad=True)
handle = x.register_post_accumulate_grad_hook(lambda p: print("accumulated", p.grad, p is x))
(x * 2).sum().backward()
(x * 3).sum().backward()
handle.remove()
(x * 4).sum().backward()
print(x.grad)

# --- an optimiser step in a post accumulate hook
x = torch.tensor([1.0, 2.0], requires_grad=True)


def step(p):
    with torch.no_grad():
        p.sub_(p.grad, alpha=0.1)
    p.grad = None


x.register_post_accumulate_grad_hook(step)
(x**2).sum().backward()
print(x, x.grad)

# --- post accumulate hooks are for leaves
x = torch.tensor(1.0, requires_grad=True)
error(lambda: (x * 2).register_post_accumulate_grad_hook(print))

# --- post accumulate hooks must return None
x = torch.tensor(1.0, requires_grad=True)
x.register_post_accumulate_grad_hook(lambda p: p.grad)
error(lambda: (x * 2).backward())

# --- tensor hooks come before accumulation, the others after
x = torch.tensor(1.0, requires_grad=True)
x.register_post_accumulate_grad_hook(lambda p: print("post", p.grad))
x.register_hook(lambda grad: print("tensor hook", grad, x.grad))
(x * 2).backward()

# --- post accumulate hooks do not run for autograd.grad
x = torch.tensor(1.0, requires_grad=True)
x.register_post_accumulate_grad_hook(lambda p: print("post", p.grad))
print(torch.autograd.grad(x * 2, x))

# --- hooks registered before and after an in-place update
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 1
y.register_hook(lambda grad: print("before", grad))
y.mul_(3)
y.register_hook(lambda grad: print("after", grad))
y.sum().backward()
print(x.grad)

# --- a hook on a view
x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
v = x[1:]
v.register_hook(lambda grad: grad * 2)
(v.sum() + x.sum()).backward()
print(x.grad)
