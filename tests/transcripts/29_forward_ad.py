"""Dual Tensors: forward mode."""

fw = torch.autograd.forward_ad


def moved(x):
    """The tangent of what was computed."""
    return fw.unpack_dual(x).tangent


def dual(values, tangent):
    return fw.make_dual(torch.tensor(values), torch.tensor(tangent))


# --- levels
print(fw.enter_dual_level())
error(lambda: fw.enter_dual_level(), until=" at the moment")
error(lambda: fw.exit_dual_level(level=3))
fw.exit_dual_level(level=0)
error(lambda: fw.exit_dual_level(), first="Dual level must be a positive number.")
with fw.dual_level() as level:
    print(level)
print(fw.unpack_dual(torch.ones(2)))

# --- making and unpacking
x, t = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 2.0])
error(lambda: fw.make_dual(x, t))
with fw.dual_level():
    d = fw.make_dual(x, t)
    print(d, d.requires_grad, d.is_leaf, d._is_view(), d._base is x)
    primal, tangent = fw.unpack_dual(d)
    print(primal, tangent is t, fw.unpack_dual(primal), fw.unpack_dual(x))
    error(lambda: fw.make_dual(d, t))
    error(lambda: fw.make_dual(x, torch.ones(2)))
    error(lambda: fw.make_dual(torch.tensor([1, 2, 3]), t))
    error(lambda: fw.make_dual(x, torch.tensor([1, 2, 3])))
print(d, fw.unpack_dual(d))

# --- what has a tangent
with fw.dual_level():
    d = dual([1.0, 2.0, 3.0], [1.0, 0.0, 2.0])
    for y in (d * d, d.sum(), d[1:], d[0], d.clone(), d.reshape(3, 1), d.exp().log(), 2**d, d / (d + 1), -d):
        print(y, moved(y))
    for y in (d.detach(), d.data, d > 1, torch.zeros_like(d), torch.ones(3) * 2):
        print(y, moved(y))
    with torch.no_grad():
        print(moved(d * d))
    print(moved(d.to(torch.float32)), moved(torch.where(d > 1, d, 0.0)), moved(torch.relu(d - 2)))

# --- several results and functions of several operations
with fw.dual_level():
    d = dual([[1.0, 2.0], [3.0, 5.0]], [[1.0, 0.0], [2.0, 1.0]])
    print([moved(y) for y in d.unbind(0)], [moved(y) for y in d.split(1, 1)])
    print(moved(torch.stack([d[0], d[1]], 1)), moved(torch.cat([d, torch.ones(1, 2)])))
    print(moved(d.max(1).values), moved(torch.softmax(d, 1)), moved(d.std()))
    print(moved(torch.nn.functional.mse_loss(d, torch.ones(2, 2))), moved(d @ d), moved(d.logsumexp(0)))
    print(moved(torch.linalg.eigh(d + d.T)[0]), moved(torch.linalg.inv(d)), moved(d.cumsum(1)))

# --- complex numbers
with fw.dual_level():
    c = dual([1 + 1j, 2.0 + 0j], [1j, 1.0 + 0j])
    for y in (c.abs(), c * c, c.real, c.imag, c.exp(), c.conj(), c.sin()):
        print(moved(y))

# --- updates in place
with fw.dual_level():
    t = torch.tensor([1.0, 0.0, 2.0])
    y = fw.make_dual(torch.tensor([1.0, 2.0, 3.0]), t)
    y.mul_(3.0)
    print(fw.unpack_dual(y), t)
    d = dual([1.0, 2.0, 3.0], [1.0, 0.0, 2.0])
    y = dual([1.0, 2.0, 3.0], [1.0, 0.0, 2.0])
    part = y[1:]
    part.mul_(d[1:])
    print(fw.unpack_dual(y), fw.unpack_dual(part))
    z = torch.zeros(3)
    part = z[1:]
    part.copy_(d[1:])
    print(fw.unpack_dual(z), fw.unpack_dual(part))
    z = torch.zeros(3)
    part = z[1:]
    z.copy_(d)
    print(fw.unpack_dual(part))
    y.fill_(2.0)
    print(fw.unpack_dual(y))
    x = torch.tensor([1.0, 2.0])
    y = fw.make_dual(x, torch.ones(2))
    y.mul_(2.0)
    print(x, fw.unpack_dual(x))

# --- backward over forward
x, t = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 1.0], requires_grad=True)
with fw.dual_level():
    out = moved((fw.make_dual(x, t) ** 3).sum())
    print(torch.autograd.grad(out, [x, t]))
x, t = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 1.0])
with fw.dual_level():
    out = moved(torch.tanh(fw.make_dual(x, t)) * x)
out.square().sum().backward()
print(x.grad)

# --- forward over backward
x = torch.tensor([1.0, 2.0], requires_grad=True)
with fw.dual_level():
    d = fw.make_dual(x, torch.tensor([1.0, 10.0]))
    for y in ((d**3).sum(), (d * d * d).sum(), d.prod(), torch.logsumexp(d, 0), (d / d.sum()).square().sum()):
        (slope,) = torch.autograd.grad(y, d, retain_graph=True)
        print(slope, moved(slope))
    (slope,) = torch.autograd.grad((d.exp() * d).sum(), d, create_graph=True)
    print(torch.autograd.grad(moved(slope).sum(), d))


# --- functions with a rule
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, scale):
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y, x * y)
        ctx.scale = scale
        print("forward", fw.unpack_dual(x).tangent)
        return x * y * scale, x + 1

    @staticmethod
    def jvp(ctx, x_t, y_t, scale):
        x, y, _ = ctx.saved_tensors
        print("jvp", x_t, y_t, scale, torch.is_grad_enabled())
        return (x_t * y + x * y_t) * ctx.scale, x_t

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y * ctx.scale + h, g * x * ctx.scale, None


with fw.dual_level():
    d = fw.make_dual(torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 3.0]))
    a, b = Product.apply(d, torch.tensor([3.0, 4.0]), 2.0)
    print(moved(a), moved(b))
    print(torch.autograd.grad(a.sum(), d))
    a, b = Product.apply(torch.ones(2), torch.ones(2), 1.0)
    print(moved(a), moved(b))


# --- what a rule must give
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


class TwoTangents(Twice):
    @staticmethod
    def jvp(ctx, t):
        return t, t


class Short(Twice):
    @staticmethod
    def jvp(ctx, t):
        return t[:1]


with fw.dual_level():
    d = dual([1.0, 2.0], [1.0, 3.0])
    error(lambda: Twice.apply(d), first="You must implement the jvp function for custom autograd.Function")
    error(lambda: TwoTangents.apply(d), first="Function's jvp returned an invalid number of forward gradients")
    error(lambda: Short.apply(d))


# --- rules for absent tangents and for updates
class Absent(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx, x_t, y_t):
        print(x_t, y_t)
        return x_t * 2


class Update(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def jvp(ctx, t):
        t.mul_(2)
        return t


class Apart(Update):
    @staticmethod
    def jvp(ctx, t):
        return t * 2


with fw.dual_level():
    print(moved(Absent.apply(dual([1.0, 2.0], [1.0, 3.0]), torch.ones(2))))
    d = dual([1.0, 2.0], [1.0, 3.0])
    out = Update.apply(d)
    print(out is d, fw.unpack_dual(d))
    error(lambda: Apart.apply(dual([1.0, 2.0], [1.0, 3.0])))


# --- gradcheck with forward mode
class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2

    @staticmethod
    def jvp(ctx, t):
        return t * 3


check, check_twice = torch.autograd.gradcheck, torch.autograd.gradgradcheck
x = torch.tensor([0.5, 1.5], requires_grad=True)
z = torch.tensor([0.5 + 1j, 1.5], requires_grad=True)
print(check(torch.sin, x, check_forward_ad=True), check(torch.sin, x, check_forward_ad=True, check_backward_ad=False))
print(check(lambda a: a * a, z, check_forward_ad=True), check(torch.abs, z, check_forward_ad=True, fast_mode=True))
print(check_twice(lambda a: a**3, x, check_fwd_over_rev=True))
print(check_twice(torch.sin, x, check_fwd_over_rev=True, check_rev_over_rev=False, check_undefined_grad=False))
words = "Jacobian computed with forward mode mismatch for output 0 with respect to input 0,"
error(lambda: check(Wrong.apply, x, check_forward_ad=True), first=words)
error(lambda: check(Wrong.apply, x, check_forward_ad=True, check_backward_ad=False, fast_mode=True), first=words)
words = "While considering the imaginary part of complex inputs only, " + words
error(lambda: check(Wrong.apply, z, check_forward_ad=True), first=words)
