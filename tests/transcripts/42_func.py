"""What `torch.func` gives on Tensors: the classes of results, and what `no_grad` around a derivative means."""

# --- derivatives that depend on nothing are Tensors
p = {"w": torch.ones(2, 3), "b": torch.zeros(2)}
x = torch.arange(3.0)


def f(p, z):
    return z @ p["w"].T + p["b"]


def kinds(tree):
    return {k: kinds(v) for k, v in tree.items()} if isinstance(tree, dict) else type(tree).__name__, tree


jacobian = torch.func.jacrev(f)(p, x)
print(kinds(jacobian), jacobian["b"].flatten(0), jacobian["b"].clone())
print(kinds(torch.func.jacfwd(f)(p, x)))
print(kinds(torch.func.hessian(lambda p: f(p, x).sum())(p)))
print(kinds(torch.func.vmap(torch.func.grad(lambda p, z: f(p, z).sum()), (None, 0))(p, x[None])))
print(kinds(torch.func.vmap(torch.func.jacrev(f), (None, 0))(p, x[None])))
print(kinds(torch.func.vmap(lambda x: torch.ones(2))(torch.ones(3))))
print(kinds(torch.func.vmap(lambda y: x)(torch.ones(2))))

# --- no_grad around a derivative stops those around it
grad = torch.func.grad
x = torch.tensor(1.5)


def without(inner):
    def h(x):
        with torch.no_grad():
            s = inner(x)
        return x**3 - s

    return h


print(grad(without(lambda x: x**3))(x))
print(grad(without(grad(lambda t: 0.5 * t * t)))(x))
print(grad(without(lambda x: grad(lambda t: t * x)(torch.ones(()))))(x))
print(grad(without(lambda x: torch.func.grad_and_value(lambda t: t**3)(x)[1]))(x))
print(grad(without(lambda x: torch.func.vjp(lambda t: t**3, x)[0]))(x))
print(grad(without(lambda x: torch.func.vjp(lambda t: t**3, x)[1](x)[0]))(x))
print(grad(without(lambda x: torch.func.jvp(lambda t: t**3, (x,), (x,))[1]))(x))
print(grad(without(torch.func.jacrev(lambda t: t**3)))(x))
print(grad(without(torch.func.jacfwd(lambda t: t**3)))(x))
print(grad(without(torch.func.hessian(lambda t: t**3)))(x))
print(grad(without(grad(grad(lambda t: t**3))))(x))
print(grad(without(torch.enable_grad()(grad(lambda t: t**3))))(x))
print(grad(lambda x: grad(lambda t: t**3 - without(lambda u: u**2)(t))(x))(x))
with torch.no_grad():
    print(grad(lambda t: t**3)(x), grad(grad(lambda t: t**3))(x))

# --- no_grad around a derivative at a leaf
x = torch.tensor(1.5, requires_grad=True)
with torch.no_grad():
    print(torch.func.grad(lambda t: t**3)(x).requires_grad)
print(torch.func.grad(lambda t: t**3)(x).requires_grad)
