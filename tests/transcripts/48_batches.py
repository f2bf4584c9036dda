"""What `torch.vmap` refuses, what its results may be, and derivatives in unusual modes."""

# --- dimensions of arguments
x = torch.arange(6.0).reshape(3, 2)


def product(a, b):
    return a * b


def total(pair):
    return pair[0] + pair[1]


for vmap in (torch.vmap, torch.func.vmap):
    error(lambda: vmap(product)(x, x.T))
    error(lambda: vmap(total, in_dims=((0, 0),))((x, x.T)))
    for dims in ((0,), (0, 0, 0)):
        error(lambda: vmap(product, dims)(x, x), until="of `inputs`")
    for dims in (([0],), ((0, 0),), ({"a": 0},)):
        error(lambda: vmap(total, dims)([x, x]), until="of `inputs`")
    error(lambda: vmap(torch.sum)(x, 0))
    error(lambda: vmap(total, ([0, 0],))([x, 1.0]))
    for dims in (2, -3, 5):
        error(lambda: vmap(torch.neg, (dims,))(x))
    error(lambda: vmap(torch.neg)(torch.tensor(1.0)))
error(lambda: torch.func.vmap(product, [0, 0])(x, x))
error(lambda: torch.func.vmap(lambda: torch.ones(2))())
error(lambda: torch.func.vmap(total, (None,))(1), until=" over")
print(torch.vmap(lambda a, b: a * b)(x, b=x[0]), torch.vmap(lambda a, *, scale=1: a * scale)(x, scale=2.0))

# --- dimensions of results, and results that are no Tensors
x = torch.arange(6.0).reshape(3, 2)
for vmap in (torch.vmap, torch.func.vmap):
    for count, dims in ((1, (0, 0)), (3, (0, 0, 0, 0)), (2, (0,)), (3, (0, 0))):
        results = (x,) * count if count > 1 else x
        error(lambda: vmap(lambda a: results, out_dims=dims)(x), until="of `outputs`")
    for dim in (2, -3, (0, 2)):
        error(lambda: vmap(lambda a: (a, a) if type(dim) is tuple else a, out_dims=dim)(x))
    error(lambda: vmap(torch.neg, out_dims=None)(x))
    error(lambda: vmap(lambda a: 3.14)(x), until="type <class 'float'>")
    print(vmap(lambda a: (a, "text", None, 2), out_dims=(1, None, None, None))(x))
    print(vmap(lambda a: torch.arange(2), out_dims=None)(x), vmap(lambda a: torch.tensor(2.5))(x))
    print(vmap(lambda a: "text", out_dims=None)(x), vmap(lambda a: {"a": (a, "b")}, out_dims={"a": (0, None)})(x))
y = x.clone()
print(torch.vmap(lambda a: (a.add_(1), "text")[1], out_dims=None)(y), y)

# --- zero gradients have no history
func, x, y = torch.func, torch.arange(2.0), torch.ones(2)
print(func.grad(lambda a: (a["x"] ** 2).sum())({"x": x, "y": y}), func.vjp(lambda a, b: (y, b), x, y)[1]((x, x)))
print(func.grad(func.grad(lambda a: a * 2))(x[1]), func.jacrev(lambda a, b: a, argnums=(0, 1))(x, y))

# --- a function of a cotangent is differentiated within other transforms
func, x = torch.func, torch.tensor(0.5, requires_grad=True)
output, pull = func.vjp(func.grad(lambda a: -torch.cos(a) * a), x)
y = torch.tensor(0.25)
second = func.grad(lambda ct: pull(ct)[0])(y)
print(second.detach(), torch.autograd.grad(second, x))
print(
    func.vmap(lambda ct: pull(ct)[0])(torch.arange(3.0)).detach(), func.hessian(lambda ct: pull(ct)[0] ** 2)(y).detach()
)

# --- derivatives of functions while gradients are off
func, x = torch.func, torch.tensor(2.0, requires_grad=True)
with torch.no_grad():
    output, pull = func.vjp(lambda a: a**2, x)
(gradient,) = pull(torch.tensor(1.0))
print(output, gradient.requires_grad, torch.autograd.grad(gradient, x))
x = torch.arange(3.0)
with torch.inference_mode():
    output, pull = func.vjp(lambda a: (a**2).sum(), x)
    results = [output, pull(torch.tensor(1.0))[0], *func.jvp(lambda a: a**2, (x,), (x,)), func.grad(torch.sum)(x)]
    results += [func.vjp(lambda a: a**2, torch.arange(2.0))[1](torch.ones(2))[0], func.jacrev(torch.sin)(x)]
    print(torch.is_inference_mode_enabled())
for result in results:
    print(result, result.requires_grad)

# --- results that are views of mapped arguments
x, y = torch.arange(24.0).reshape(2, 3, 4), torch.arange(24.0, requires_grad=True).reshape(2, 3, 4)
functions = {
    "identity": lambda a: a,
    "transpose": lambda a: a.T,
    "select": lambda a: a[1],
    "slice": lambda a: a[:, 1:3],
    "split": lambda a: a.split(2),
    "unbind": lambda a: a.unbind(-1),
    "reshape": lambda a: a.reshape(-1),
    "unsqueeze": lambda a: a.unsqueeze(0).expand(3, *a.shape),
    "product": lambda a: a * 1,
}
for name, function in functions.items():
    for dims in (0, 1):
        result = torch.vmap(function, dims, dims)(x)
        first = result if isinstance(result, torch.Tensor) else result[0]
        print(name, first.shape, first is x or first._base is x._base)
        first = torch.vmap(function, dims)(y)
        print((first if isinstance(first, torch.Tensor) else first[0]).requires_grad)
torch.vmap(lambda a: a[0], out_dims=-1)(x).mul_(10)
print(x)

# --- updates of what is not mapped
x, y, z = torch.arange(6.0).reshape(3, 2), torch.zeros(2), torch.arange(4.0).reshape(2, 2)
w = torch.tensor([2.0, 3.0], requires_grad=True)


def step(a, shared):
    y.add_(1.0)
    y[0] = 5.0
    z[1].mul_(y)
    shared.copy_(y)
    return a * y + z.sum() * shared


print(torch.vmap(step, in_dims=(0, None))(x, w.detach().clone()), y, z)
error(lambda: torch.vmap(lambda a: y.copy_(a))(x), first="vmap: inplace arithmetic")
gradient = torch.vmap(lambda ct: torch.autograd.grad(w * w, w, ct)[0])(torch.eye(2))
print(gradient, torch.vmap(lambda a: torch.autograd.grad((w**3).sum(), w)[0] * a)(x))

# --- what depends on the values of one example
x = torch.arange(6.0).reshape(3, 2)
for function in (lambda a: a if a.sum() > 3 else -a, lambda a: a[a > 2]):
    try:
        torch.vmap(function)(x)
    except RuntimeError as error_of_values:
        print(str(error_of_values)[:50])

# --- the trace of a matrix
x = torch.arange(8.0).reshape(2, 2, 2)
print(torch.trace(x[1]), torch.vmap(torch.trace)(x), torch.func.grad(torch.trace)(x[0]))
print(torch.vmap(torch.func.grad(lambda a: torch.func.grad(torch.trace)(a * a).sum()))(x))
error(lambda: torch.trace(x), until="matrix")

# --- the memory of an example
x = torch.arange(12.0).reshape(2, 3, 2)
seen = []


def note(a):
    seen.append((a.stride(), a.is_contiguous(), a.contiguous().is_contiguous()))
    return a


for dim in (0, 1, -1):
    torch.vmap(note, dim)(x)
torch.vmap(torch.vmap(note), 1)(torch.zeros(2, 3, 4, 5))
print(seen)
print(
    torch.vmap(torch.vmap(torch.vmap(torch.mul), (1, 0)), (1, 2))(
        torch.ones(3, 2, 2), torch.arange(12.0).reshape(2, 3, 2)
    )
)
y = torch.zeros(3, 4, 2)
print(torch.vmap(lambda a: a.view(2, 4).add_(1.0).sum(1))(y), y.sum())

# --- the batching rule of a Function
told = []


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, factors):
        return x * factors[0] + factors[1]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], *inputs[1])

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[1], None

    @staticmethod
    def vmap(info, in_dims, x, factors):
        told.append((info.batch_size, info.randomness, in_dims, x.shape, factors[0].shape))
        return x * 10.0 * factors[0].reshape(-1, 1) + factors[1], 0


class Rule(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return rule(x)


x, factors = torch.arange(6.0).reshape(3, 2), (torch.arange(3.0), torch.tensor(1.0))
dims = (0, (0, None))
print(torch.vmap(Scaled.apply, dims)(x, factors), told.pop())
print(torch.vmap(lambda a, b: 2 * Scaled.apply(a.sin(), b), dims, randomness="same")(x, factors), told.pop())
y = x.clone().requires_grad_()
(torch.vmap(lambda a, b: Scaled.apply(a * a, b).sum(), dims)(y, factors) * x[:, 0]).sum().backward()
print(y.grad, len(told))
print(Scaled.apply(x[0], (x[1], x[2])), torch.vmap(lambda a: a * Scaled.apply(x[0], (x[1], x[2])))(x), len(told))
for written in (lambda x: x, lambda x: (x, 0, 0), lambda x: (x, (0,)), lambda x: ([x], (0,))):
    rule = written
    error(lambda: torch.vmap(Rule.apply)(x), until=" with pytree" if rule(1) in (1, (1, 0, 0)) else " tuple.")
for written in (lambda x: (x.T, 1), lambda x: ((x[0], x), (None, 0)), lambda x: ({"a": x * 2}, 0)):
    rule = written
    print(torch.vmap(Rule.apply)(x))

# --- a copy is no view
x = torch.arange(6.0).reshape(3, 2)
for copied in (torch.clone, lambda a: (a.clone(), a)[0], lambda a: a[:1].clone()):
    for dims in (0, 1):
        result = torch.vmap(copied, dims, dims)(x[:2])
        print(result._base is x, result.mul_(10.0).sum(), x.sum())
pair = torch.vmap(lambda a: (a, a.clone()))(x)
pair[0].add_(1.0)
print(pair, x)
