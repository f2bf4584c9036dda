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
