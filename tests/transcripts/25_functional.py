"""autograd.functional: Jacobians, Hessians and products with them."""

from itertools import product

functional = torch.autograd.functional
x = torch.tensor([1.0, 2.0])
w = torch.tensor([3.0, 4.0])


def exp_reducer(x):
    return x.exp().sum(dim=1)


def mixed(x, y):
    return 2 * x + 3 * y


# --- the Jacobian of a function
print(functional.jacobian(lambda t: t**2, x))
print(functional.jacobian(exp_reducer, torch.zeros(2, 2)))
print(functional.jacobian(lambda t: (t * w).sum(), x))

# --- the Jacobian with several inputs
print(functional.jacobian(mixed, (x, w)))
print(functional.jacobian(lambda a, b: a.sum() * b, (x, w)))

# --- the Jacobian with several outputs
print(functional.jacobian(lambda t: (t**2, t.sum()), x))
print(functional.jacobian(lambda a, b: (a * b, a.sum()), (x, w)))

# --- create_graph
inputs = x.clone().requires_grad_()
jacobian = functional.jacobian(lambda t: t**3, inputs, create_graph=True)
print(jacobian.detach(), jacobian.requires_grad)
print(torch.autograd.grad(jacobian.sum(), inputs))
print(functional.jacobian(lambda t: t**3, inputs).requires_grad)

# --- vectorize and strategy
for vectorize, strategy in (*product((True, False), ("reverse-mode",)), (True, "forward-mode")):
    print(functional.jacobian(lambda t: torch.tanh(t).sum() * t, x, vectorize=vectorize, strategy=strategy))

# --- strict
error(
    lambda: functional.jacobian(lambda t: torch.ones(2), x, strict=True),
    first="Output 0 of the user-provided function does not require",
)
print(functional.jacobian(lambda t: torch.ones(2), x))
error(
    lambda: functional.jacobian(lambda a, b: a * 2, (x, w), strict=True),
    first="Output 0 of the user-provided function is independent of",
)
print(functional.jacobian(lambda a, b: a * 2, (x, w)))

# --- what is not a tensor is refused
error(lambda: functional.jacobian(lambda t: t**2, 5.0))
error(lambda: functional.jacobian(lambda t: 5.0, x))
error(lambda: functional.jacobian(lambda t: t, [x, 5.0]))

# --- the Hessian
print(functional.hessian(lambda t: (t**3).sum(), x))
print(functional.hessian(lambda t: t[0] ** 2 * t[1], x))
print(functional.hessian(lambda t: t.prod(), torch.tensor([[1.0, 2.0]])))

# --- the Hessian with several inputs
print(functional.hessian(lambda a, b: (a * b**2).sum(), (x, w)))

# --- the Hessian needs a scalar
error(lambda: functional.hessian(lambda t: t**2, x))
error(lambda: functional.hessian(lambda t: (t.sum(), t.sum()), x))

# --- arguments of hessian
inputs = x.clone().requires_grad_()
hessian = functional.hessian(lambda t: (t**4).sum(), inputs, create_graph=True)
print(hessian.detach(), torch.autograd.grad(hessian.sum(), inputs))
print(functional.hessian(lambda t: (t**3).sum(), x, vectorize=True))
print(functional.hessian(lambda t: (t**3).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode").detach())
print(functional.hessian(lambda t: (w * t).sum(), x))
error(
    lambda: functional.hessian(lambda t: (w * t).sum(), x, strict=True),
    first="While computing the hessian, found that the jacobian of the user-provided function",
)

# --- vjp
print(functional.vjp(lambda t: t**2, x, torch.tensor([1.0, 10.0])))
print(functional.vjp(lambda t: (t**2).sum(), x))
print(functional.vjp(mixed, (x, w), torch.ones(2)))
error(lambda: functional.vjp(lambda t: t**2, x))
error(lambda: functional.vjp(lambda t: t**2, x, torch.ones(3)), first="v has invalid size: should be")

# --- vjp with a graph and strict
inputs = x.clone().requires_grad_()
value, grad = functional.vjp(lambda t: t**3, inputs, torch.ones(2), create_graph=True)
print(value.requires_grad, grad.requires_grad, torch.autograd.grad(grad.sum(), inputs))
error(
    lambda: functional.vjp(lambda a, b: a * 2, (x, w), torch.ones(2), strict=True),
    first="The output of the user-provided function is independent of input 1.",
)

# --- jvp
print(functional.jvp(lambda t: t**2, x, torch.tensor([1.0, 10.0])))
print(functional.jvp(mixed, (x, w), (torch.ones(2), torch.ones(2))))
print(functional.jvp(lambda t: t**2, torch.tensor(3.0)))
error(lambda: functional.jvp(lambda t: t**2, x))
print(functional.jvp(lambda t: torch.ones(2), x, torch.ones(2)))

# --- jvp with a graph
inputs = x.clone().requires_grad_()
value, tangent = functional.jvp(lambda t: t**3, inputs, torch.ones(2), create_graph=True)
print(value.detach(), tangent.detach(), torch.autograd.grad(tangent.sum(), inputs))

# --- hvp and vhp
v = torch.tensor([1.0, -1.0])
print(functional.hvp(lambda t: t[0] ** 2 * t[1] ** 3, x, v))
print(functional.vhp(lambda t: t[0] ** 2 * t[1] ** 3, x, v))
print(functional.hvp(lambda a, b: (a * b**2).sum(), (x, w), (v, v)))
print(functional.vhp(lambda a, b: (a * b**2).sum(), (x, w), (v, v)))
error(lambda: functional.hvp(lambda t: t**2, x, v))
error(lambda: functional.vhp(lambda t: t.sum() ** 2, x))

# --- hvp and vhp with a graph
inputs = x.clone().requires_grad_()
_, result = functional.vhp(lambda t: (t**4).sum(), inputs, torch.ones(2), create_graph=True)
print(result.detach(), torch.autograd.grad(result.sum(), inputs))
_, result = functional.hvp(lambda t: (t**4).sum(), inputs, torch.ones(2), create_graph=True)
print(result.detach(), torch.autograd.grad(result.sum(), inputs))

# --- the inputs are left alone
inputs = x.clone().requires_grad_()
functional.jacobian(lambda t: t**2, inputs)
functional.hessian(lambda t: (t**2).sum(), inputs)
print(inputs.grad, inputs.is_leaf, x.requires_grad)
