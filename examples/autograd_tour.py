"""A tour of eager autograd: the tape, the backward pass, hooks, in-place updates, and rules of your own.

Each part prints its results and asserts them. Names and behaviour are PyTorch's; numbers are NumPy's.
"""

import math

import tracegrad as tg


def error_of(fn):
    """Return the first sentence of the error that `fn` raises; no error is an error, too."""
    try:
        fn()
    except RuntimeError as error:
        return str(error).partition(". ")[0]
    raise AssertionError("no error was raised")


print("1. A chain of scalars: operations are recorded, and backward runs the record in reverse")
x = tg.tensor(2.0, requires_grad=True)
y = x**2
z = y.exp() + x
print("z =", z)
(exp_node, _), (leaf_node, _) = z.grad_fn.next_functions
assert exp_node.name() == "ExpBackward0"
assert exp_node._saved_result.item() == y.exp().item()
assert leaf_node.variable is x
z.backward()
print("dz/dx =", x.grad)
assert math.isclose(x.grad.item(), 4 * math.exp(4) + 1)

print("\n2. A vector: a result that is no scalar needs a weight for each element")
x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = x**2
print("error:", error_of(y.backward))
y.backward(tg.tensor([1.0, 0.1, 0.01]))
print("weighted gradient:", x.grad)
assert tg.allclose(x.grad, tg.tensor([2.0, 0.4, 0.06]))

print("\n3. Several outputs: an edge of the tape says which output of a node it comes from")
x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
a, b, c = x.unbind()
product = a * c
edges = [(node.name(), number) for node, number in product.grad_fn.next_functions]
print("edges of a * c:", edges)
assert a.grad_fn is b.grad_fn is c.grad_fn
assert edges == [("UnbindBackward0", 0), ("UnbindBackward0", 2)]
product.backward()
assert x.grad.tolist() == [3.0, 0.0, 1.0]

print("\n4. Hooks see gradients on their way, and may replace them")
x = tg.tensor(3.0, requires_grad=True)
y = x * 2
seen = []
y.register_hook(lambda grad: seen.append(grad.item()))
handle = y.register_hook(lambda grad: grad * 10)
y.retain_grad()
(y**2).backward(retain_graph=True)
print("the first hook saw", seen, "  y.grad =", y.grad, "  x.grad =", x.grad)
assert seen == [12.0]
assert (y.grad.item(), x.grad.item()) == (120.0, 240.0)
handle.remove()
(y**2).backward()
assert x.grad.item() == 240.0 + 24.0

print("\n5. Gradients add up, over paths and over calls, until they are set to zero")
x = tg.tensor([1.0, 2.0], requires_grad=True)
for expected in ([3.0, 5.0], [6.0, 10.0]):
    (x * x + x).sum().backward()
    assert x.grad.tolist() == expected
print("after two calls:", x.grad)
x.grad.zero_()
(x * 5).sum().backward()
assert x.grad.tolist() == [5.0, 5.0]

print("\n6. Higher orders: with create_graph the gradient is on the tape as well")
x = tg.tensor(0.5, requires_grad=True)
derivative, found = tg.sin(x), []
for _ in range(4):
    (derivative,) = tg.autograd.grad(derivative, x, create_graph=True)
    found.append(derivative.item())
print("derivatives of sin at 0.5:", [round(value, 4) for value in found])
s, c = math.sin(0.5), math.cos(0.5)
assert all(math.isclose(value, true) for value, true in zip(found, (c, -s, -c, s)))

print("\n7. Updates in place are differentiated, through views too; one that spoils a saved value is found")
x = tg.tensor([2.0, 3.0, 4.0], requires_grad=True)
y = x * 1
y[1:] *= x[0]
print("y =", y)
y.sum().backward()
assert x.grad.tolist() == [8.0, 2.0, 2.0]
spoiled = x.exp()
spoiled += 1
message = error_of(spoiled.sum().backward)
print("error:", message)
assert "modified by an inplace operation" in message
assert "is at version 1; expected version 0" in message

print("\n8. A function with a rule of one's own, checked against finite differences")


class Exp(tg.autograd.Function):
    """The exponential, which is its own derivative."""

    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result


x = tg.tensor([0.0, 1.0], requires_grad=True)
y = Exp.apply(x)
print("y =", y)
y.sum().backward()
assert tg.equal(x.grad, y.detach())
assert tg.autograd.gradcheck(Exp.apply, x)
assert tg.autograd.gradgradcheck(Exp.apply, x)

print("\n9. A linear layer with binary cross-entropy: the gradient of the bias is (sigmoid(z) - y) / 3")
x, y = tg.ones(5), tg.zeros(3)
w, b = tg.full((5, 3), 0.1, requires_grad=True), tg.tensor([0.0, 1.0, -1.0], requires_grad=True)
z = tg.matmul(x, w) + b
loss = tg.nn.functional.binary_cross_entropy_with_logits(z, y)
print("loss =", loss)
loss.backward()
assert tg.allclose(b.grad, tg.sigmoid(z.detach()) / 3)
assert tg.allclose(w.grad, b.grad.expand(5, 3))
with tg.no_grad():
    b -= b.grad
assert b.is_leaf
assert tg.nn.functional.binary_cross_entropy_with_logits(tg.matmul(x, w) + b, y) < loss
