"""What `torch.func` refuses on Tensors, and derivatives of the functions that `vjp` and `linearize` return."""

import warnings

# --- argnums name different positional arguments
grad, jacrev, jacfwd = torch.func.grad, torch.func.jacrev, torch.func.jacfwd
x, y = torch.ones(2), torch.arange(2.0)
for argnums in ((0, 0), (0, -2), 2, -3, (), 0.0, ("a",), [0]):
    for transform in (grad, jacrev, jacfwd):
        error(lambda: transform(lambda a, b: (a * b).sum(), argnums=argnums)(x, y))
print(grad(lambda a, b: (a * b).sum(), argnums=-1)(x, y), grad(lambda a, b: (a * b).sum(), argnums=(1,))(x, y))

# --- results of differentiated functions
grad, vjp, jvp = torch.func.grad, torch.func.vjp, torch.func.jvp
x = torch.ones(2)
for output in (2.0, None, "a", (x,), x):
    error(lambda: grad(lambda a: output)(x))
error(lambda: grad(lambda a: a * 2)(x))
error(lambda: grad(lambda a: a.sum(), has_aux=True)(x))
error(lambda: grad(lambda a: (a.sum(), "a"), has_aux=True)(x))
error(lambda: grad(lambda a: a[0].sum())((x, 2.0)))
for output in (1.0, None, "a", (), (x, 1), torch.arange(2)):
    error(lambda: vjp(lambda a: output, x))
for output in (1.0, None, "a", (), (x, 1)):
    error(lambda: jvp(lambda a: output, (x,), (x,)))
error(lambda: vjp(lambda a: a, x, has_aux=True))
error(lambda: vjp(lambda a: (a, 3.0), x, has_aux=True))
error(lambda: vjp(lambda a: (a, a, a), x, has_aux=True))
error(lambda: jvp(lambda a: a, (x,), (x,), has_aux=True))
error(lambda: jvp(lambda a: (a, 1.0), (x,), (x,), has_aux=True))
error(lambda: jvp(lambda a: (a, x), (x,), (x,), strict=True))
print(jvp(lambda a: a * 2, (x,), (x,), strict=True))

# --- cotangents and tangents
x = torch.ones(2)
output, pull = torch.func.vjp(lambda a: a * 2, x)
error(lambda: pull(torch.ones(3)))
output, pull = torch.func.vjp(lambda a: (a * 2, a), x)
error(lambda: pull(x), first="Expected pytree structure of cotangents to be the same as pytree structure of outputs")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    output, push = torch.func.linearize(torch.sin, x)
error(lambda: push(torch.ones(3)))
error(lambda: push(torch.ones(2, dtype=torch.float32)))
jvp = torch.func.jvp
error(lambda: jvp(torch.sin, (x,), (torch.ones(3),)))
error(lambda: jvp(torch.sin, x, x))
error(lambda: jvp(torch.sin, [x], [x]))
error(
    lambda: jvp(torch.sin, (x,), ()), first="jvp(f, primals, tangents): Expected primals and tangents to have the same"
)
error(lambda: jvp(torch.sin, (x, 1.0), (x, 1.0)))

# --- mapped dimensions and results of one example
vmap = torch.func.vmap
x = torch.arange(6.0).reshape(3, 2)


def double(a):
    return a * 2


for dims in ("a", {0}, (0.5,)):
    error(lambda: vmap(double, in_dims=dims)(x))
for dims in (0.5, "a"):
    error(lambda: vmap(double, out_dims=dims)(x))
for output in (3.0, None, "a", (x, 1)):
    error(lambda: vmap(lambda a: output)(x))
print(vmap(lambda a, scale=2.0, shift=0.0: a * scale + shift)(x, scale=3.0, shift=x[0]))
print(vmap(lambda a, b: a.sum() * b, in_dims=(0, None))(x.to(torch.float32), 3.0))
print(vmap(lambda a: (a, [a.sum(), a]), out_dims=(1, [0, -1]))(x))
print(torch.vmap(lambda a, b: a * b, in_dims=(0, None), out_dims=1)(x, x[1]), torch.vmap(double, chunk_size=2)(x))
print(torch.vmap(lambda a, b=2.0: a * b + 0 * torch.rand(2), 0, 0, "different")(x, b=3.0))

# --- random functions of examples
vmap = torch.func.vmap
x = torch.ones(3, 40)
draws = {
    "randn": lambda a: a + torch.randn(40),
    "rand_like": torch.rand_like,
    "dropout": torch.nn.functional.dropout,
    "bernoulli": lambda a: torch.bernoulli(a * 0.5),
    "normal_": lambda a: a.clone().normal_(),
    "randperm": lambda a: torch.randperm(40) + a,
    "randint": lambda a: torch.randint(100, (40,)) + a,
}
for name, draw in draws.items():
    error(lambda: vmap(draw)(x))
    for randomness in ("same", "different") if name not in ("bernoulli", "normal_") else ("different",):
        result = vmap(draw, randomness=randomness)(x)
        inner = vmap(vmap(draw, randomness=randomness), randomness="different")(torch.ones(2, 3, 40))
        chunks = vmap(draw, randomness=randomness, chunk_size=2)(x)
        print(name, randomness, result.shape, bool((result[0] == result[1]).all()), chunks.shape)
        print(bool((inner[0, 0] == inner[0, 1]).all()), bool((inner[0] == inner[1]).all()))
error(lambda: vmap(draws["randn"], randomness="other")(x))
torch.manual_seed(3)
result = vmap(lambda a: torch.randn(40), randomness="different")(x)
torch.manual_seed(3)
print(bool((result == torch.randn(3, 40)).all()))

# --- derivatives of the functions that vjp and linearize return
func, x = torch.func, torch.arange(3.0) + 1
output, pull = func.vjp(lambda a: a**2 * a.sum(), x)
print(func.vmap(pull)(torch.eye(3)), func.jacrev(lambda ct: pull(ct)[0])(x))
print(func.grad(lambda ct: (pull(ct)[0] ** 2).sum())(x))
print(func.jvp(lambda ct: pull(ct)[0], (x,), (x,)))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    output, push = func.linearize(lambda a: a.sin() * a.sum(), x)
print(func.vmap(push)(torch.eye(3)))

# --- functionalize gives the same function
functionalize = torch.func.functionalize


def update(a):
    b = a.clone()
    b.mul_(a)
    b.add_(1.0)
    return b.sum()


x = torch.arange(6.0).reshape(3, 2)
print(functionalize(update)(x[1]), torch.func.grad(functionalize(update))(x[1]))
print(torch.func.vmap(functionalize(update))(x), functionalize(torch.func.vmap(update))(x))
error(lambda: functionalize(update, remove="views")(x), first="functionalize(f, remove='mutations'): received invalid")

# --- tangents of a dual level pass through gradients
forward = torch.autograd.forward_ad
with forward.dual_level():
    x = forward.make_dual(torch.tensor(2.0), torch.tensor(3.0))
    gradient, value = torch.func.grad_and_value(lambda a: a**4)(x)
    output, pull = torch.func.vjp(torch.sin, x)
    twice = torch.func.grad(torch.func.grad(lambda a: a**4))(x)
    outer = torch.func.grad(lambda a: a * x * x)(torch.tensor(2.0))
    for result in (gradient, value, output, pull(torch.tensor(1.0))[0], twice, outer):
        print(forward.unpack_dual(result).tangent)

# --- a shared parameter has one value
layers = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)])
layers[1].weight = layers[0].weight
model = torch.nn.Sequential(*layers)
values = {"0.weight": torch.eye(2), "1.weight": torch.ones(2, 2)}
error(lambda: torch.func.functional_call(model, values, torch.ones(2)))
print(torch.func.functional_call(model, values, torch.ones(2), tie_weights=False))
