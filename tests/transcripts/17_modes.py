"""no_grad, enable_grad, set_grad_enabled: as context managers, decorators and functions."""

import threading

# --- no_grad
x = torch.ones(2, requires_grad=True)
with torch.no_grad():
    y = x * 2
    print(y.requires_grad, y.grad_fn, y.is_leaf, torch.is_grad_enabled(), x.requires_grad)
print((x * 2).requires_grad, torch.is_grad_enabled())

# --- tensors made in no_grad may require grad
with torch.no_grad():
    w = torch.ones(2, requires_grad=True)
    print(w.requires_grad, (w * 2).requires_grad)
print((w * 2).requires_grad)

# --- enable_grad within no_grad
x = torch.ones(2, requires_grad=True)
with torch.no_grad():
    with torch.enable_grad():
        print((x * 2).requires_grad, torch.is_grad_enabled())
    print((x * 2).requires_grad, torch.is_grad_enabled())

# --- set_grad_enabled as a context manager
x = torch.ones(2, requires_grad=True)
for mode in (True, False):
    with torch.set_grad_enabled(mode):
        print((x * 2).requires_grad)
print(torch.is_grad_enabled())

# --- set_grad_enabled as a function
x = torch.ones(2, requires_grad=True)
torch.set_grad_enabled(False)
print((x * 2).requires_grad, torch.is_grad_enabled())
torch.set_grad_enabled(True)
print((x * 2).requires_grad, torch.is_grad_enabled())

# --- decorators
x = torch.ones(2, requires_grad=True)


@torch.no_grad()
def without(t):
    """Doc of without."""
    return t * 2, torch.is_grad_enabled()


@torch.no_grad
def bare(t):
    return t * 2


@torch.enable_grad()
def within(t):
    return t * 2


@torch.set_grad_enabled(False)
def switched(t):
    return t * 2


print(without(x)[0].requires_grad, without(x)[1], without.__name__, without.__doc__, bare(x).requires_grad)
print(switched(x).requires_grad, torch.is_grad_enabled())
with torch.no_grad():
    print(within(x).requires_grad)


# --- generators keep the mode to themselves
@torch.no_grad()
def values():
    print("in", torch.is_grad_enabled())
    yield 1
    print("in", torch.is_grad_enabled())
    yield 2


for value in values():
    print(value, torch.is_grad_enabled())


# --- generators that are sent values and closed
@torch.no_grad()
def echo():
    try:
        while True:
            got = yield torch.is_grad_enabled()
            print("got", got, torch.is_grad_enabled())
    finally:
        print("closed", torch.is_grad_enabled())


g = echo()
print(next(g), g.send("a"), torch.is_grad_enabled())
g.close()
print(torch.is_grad_enabled())


# --- errors restore the mode
def fails():
    with torch.no_grad():
        raise ValueError("within no_grad")


error(fails)
print(torch.is_grad_enabled())

# --- a mode object can be used again
mode = torch.no_grad()
for _ in range(2):
    with mode:
        print(torch.is_grad_enabled())
    print(torch.is_grad_enabled())

# --- each thread has its own mode
seen = []


def work():
    seen.append(torch.is_grad_enabled())
    torch.set_grad_enabled(False)
    seen.append(torch.is_grad_enabled())


with torch.no_grad():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(seen, torch.is_grad_enabled())
print(torch.is_grad_enabled())

# --- parameters are updated in no_grad
w = torch.tensor([1.0, 2.0], requires_grad=True)
(w**2).sum().backward()
with torch.no_grad():
    w -= 0.1 * w.grad
print(w, w.grad, w.is_leaf, w._version)

# --- gradient descent
w = torch.tensor(0.0, requires_grad=True)
for _ in range(3):
    loss = (w - 3) ** 2
    loss.backward()
    with torch.no_grad():
        w -= 0.25 * w.grad
        w.grad.zero_()
    print(f"{loss.item():.4f} {w.item():.4f}")

# --- no_grad cuts a part of the graph
x = torch.tensor(3.0, requires_grad=True)
with torch.no_grad():
    constant = x**2
(x * constant).backward()
print(x.grad)

# --- requires_grad can be asked for in no_grad
x = torch.ones(2, requires_grad=True)
with torch.no_grad():
    z = x.detach().requires_grad_()
    print(z.requires_grad, z.is_leaf, (z * 2).requires_grad)
print((z * 2).requires_grad)

# --- results keep the mode they were made in
x = torch.ones(2, requires_grad=True)
y = x * 2
with torch.no_grad():
    print(y.requires_grad, y.grad_fn)
    y.sum()
    print(y.sum().requires_grad)
y.sum().backward()
print(x.grad)
