"""Updates in place of views: of a tensor without dimensions, of an expanded one."""

# --- views of a tensor without dimensions
for name, way in (
    ("view", lambda y: y.view(-1)),
    ("reshape", lambda y: y.reshape(-1)),
    ("unsqueeze", lambda y: y.unsqueeze(0)),
    ("index", lambda y: y[None]),
    ("ellipsis", lambda y: y[...]),
    ("ravel", lambda y: y.ravel()),
    ("squeeze", lambda y: y.squeeze()),
    ("expand", lambda y: y.expand(1, 1)),
    ("detach", lambda y: y.detach()),
):

    def f(x, way=way):
        y = x.clone()
        way(y).sin_()
        return y

    x = torch.tensor(0.7, requires_grad=True)
    y = f(x)
    y.backward()
    print(name, y.item(), x.grad, torch.func.grad(f)(torch.tensor(0.7)), torch.func.vmap(f)(torch.tensor([0.7, 0.2])))

# --- expanded tensors
x = torch.arange(6.0).reshape(2, 3).requires_grad_()
y = x * 1
print(y.expand(1, 2, 3).grad_fn.name(), y.expand(2, 3).grad_fn.name())
y.expand(1, 2, 3).sin_()
y.T.expand(-1, 2).mul_(3.0)
y.sum().backward()
print(y, x.grad)
error(lambda: (x[:1] * 1).expand(2, 3).sin_(), first="unsupported operation: more than one element")

# --- what is retained adds up over two passes
for way in (lambda v: v[...], lambda v: v.flatten(), lambda v: v):
    x = torch.tensor([0.4], requires_grad=True)
    v = x * 1
    v.retain_grad()
    w = way(v)
    before = w.sum()
    v.exp_()
    (g,) = torch.autograd.grad((w * 0.5).sum() * w.sum() + before * 0.3, [x], create_graph=True)
    print(v.grad)
    (g * g).sum().backward()
    print(v.grad, x.grad)

# --- updates that change nothing which was saved
F = torch.nn.functional
for name, f in (
    ("max_pool2d", lambda h: F.max_pool2d(h, 2)),
    ("max_pool1d", lambda h: F.max_pool1d(h[0], 2)),
    ("max_pool3d", lambda h: F.max_pool3d(h[None], 2)),
    ("adaptive", lambda h: F.adaptive_max_pool2d(h, 2)),
    ("maximum", lambda h: torch.maximum(h, h.flip(-1))),
    ("max", lambda h: h.max(1)[0]),
    ("erfinv", lambda h: torch.erfinv(h / 2)),
):
    x = torch.sin(torch.arange(32.0)).reshape(1, 2, 4, 4).requires_grad_()
    y = f(x * 1)
    y += 1
    (y * y.detach()).sum().backward()
    print(name, x.grad)
    with torch.no_grad():
        y += 1

# --- hooks after accumulation update their leaf
p = torch.ones(3, requires_grad=True)


def step(q):
    q.sub_(0.25 * q.grad)
    q.grad = None
    print("hook", torch.is_grad_enabled())


p.register_post_accumulate_grad_hook(step)
for _ in range(2):
    (p * 2).sum().backward()
    print(p, p.grad)
