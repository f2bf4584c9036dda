"""autograd.Function: marks on outputs, and errors."""

Function = torch.autograd.Function


# --- mark_dirty
class AddOne(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


x = torch.tensor([1.0, 2.0], requires_grad=True)
y = x * 1
z = AddOne.apply(y)
print(z is y, y._version, y.grad_fn.name(), z.detach())
z.sum().backward()
print(x.grad)
error(lambda: AddOne.apply(x))


# --- mark_non_differentiable
class SortOnly(Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort()
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx, grad, _):
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(0, indices, grad)


x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
values, indices = SortOnly.apply(x)
print(values.requires_grad, indices.requires_grad, indices)
(values * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
print(x.grad)


# --- a float output marked as not differentiable
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x * 2, x * 3
        ctx.mark_non_differentiable(b)
        return a, b

    @staticmethod
    def backward(ctx, a, b):
        print("b:", b)
        return a * 2


x = torch.ones(2, requires_grad=True)
a, b = Both.apply(x)
print(a.requires_grad, b.requires_grad)
a.sum().backward()
print(x.grad)


# --- intermediate results are saved and have gradients if given out
class Cube(Function):
    @staticmethod
    def forward(x):
        square = x * x
        return x * square, square

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        (x,) = inputs
        _, square = outputs
        ctx.save_for_backward(x, square)

    @staticmethod
    def backward(ctx, grad, grad_square):
        x, square = ctx.saved_tensors
        return grad * 3 * square + grad_square * 2 * x


x = torch.tensor(2.0, requires_grad=True)
(first,) = torch.autograd.grad(Cube.apply(x)[0], x, create_graph=True)
print(first.detach(), torch.autograd.grad(first, x))


# --- the same input returned
class Identity(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


x = torch.ones(2, requires_grad=True)
y = Identity.apply(x)
print(y is x, y.grad_fn.name(), y.is_leaf, x.is_leaf)
y.sum().backward()
print(x.grad)


# --- a gradient reversal layer
class Reverse(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


x = torch.tensor([1.0, 2.0], requires_grad=True)
Reverse.apply(x * 3, 0.5).sum().backward()
print(x.grad)


# --- straight through estimator
class Hard(Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).double()

    @staticmethod
    def backward(ctx, grad):
        return torch.nn.functional.hardtanh(grad)


x = torch.tensor([-1.0, 0.5], requires_grad=True)
y = Hard.apply(x)
print(y.detach())
(y * torch.tensor([5.0, -0.25])).sum().backward()
print(x.grad)


# --- ctx keeps attributes, and the node has them
class Keeps(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.note = "kept"
        ctx.save_for_backward(x, None)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        print(ctx.note, ctx.saved_tensors, ctx.name())
        return grad * 2


x = torch.tensor([1.0], requires_grad=True)
y = Keeps.apply(x)
print(y.grad_fn.note, y.grad_fn.saved_tensors, type(y.grad_fn).__name__, y.grad_fn.metadata)
y.backward()


# --- save_for_backward takes tensors only
class SavesNumber(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(5)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad


error(lambda: SavesNumber.apply(torch.ones(1, requires_grad=True)))


# --- old-style functions are refused
class Old(Function):
    def forward(self, x):
        return x

    def backward(self, grad):
        return grad


error(lambda: Old()(torch.ones(1, requires_grad=True)), first="Legacy autograd function with non-static forward")


# --- a function without backward
class Half(Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2


x = torch.ones(1, requires_grad=True)
y = Half.apply(x)
print(y.grad_fn.name())
error(
    lambda: y.backward(), first="You must implement either the backward or vjp method for your custom autograd.Function"
)


# --- vjp is another name for backward
class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def vjp(ctx, grad):
        return grad * 2


x = torch.ones(1, requires_grad=True)
Twice.apply(x).backward()
print(x.grad)


# --- without tensors that require grad nothing is recorded
class Quiet(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


print(Quiet.apply(torch.ones(1)).grad_fn)
with torch.no_grad():
    print(Quiet.apply(torch.ones(1, requires_grad=True)).requires_grad)


# --- outputs that are no tensors pass through
class Mixed(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, "text", 5

    @staticmethod
    def backward(ctx, grad, *rest):
        print(rest)
        return grad * 2


x = torch.ones(1, requires_grad=True)
y, text, number = Mixed.apply(x)
print(y, text, number)
y.backward()
print(x.grad)


# --- functions nest
class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = ctx.x.sin() * ctx.x
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, grad):
        return torch.autograd.grad(ctx.y, ctx.x, grad)[0]


x = torch.tensor(1.0, requires_grad=True)
Outer.apply(x).backward()
print(x.grad, torch.autograd.grad(x.sin() * x, x))


# --- lists of tensors are not differentiated
class OfList(Function):
    @staticmethod
    def forward(ctx, items):
        return items[0] * 2

    @staticmethod
    def backward(ctx, grad):
        return None


x = torch.ones(1, requires_grad=True)
print(OfList.apply([x]).requires_grad)
