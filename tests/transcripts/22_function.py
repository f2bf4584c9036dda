"""autograd.Function: operations with a derivative of one's own."""

Function = torch.autograd.Function


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


# --- the classic exponential
x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
y = Exp.apply(x)
print(y)
y.sum().backward()
print(x.grad, torch.equal(x.grad, y.detach()))

# --- the node carries the name of the class
x = torch.ones(2, requires_grad=True)
y = Exp.apply(x)
print(y.grad_fn.name(), type(y.grad_fn).__name__, y.grad_fn.next_functions)
print(isinstance(y.grad_fn, torch.autograd.graph.Node), y.is_leaf, y.output_nr)

# --- arguments that are no tensors
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = Scale.apply(x, 5)
print(y, y.grad_fn.factor, y.grad_fn.next_functions)
y.sum().backward()
print(x.grad)


# --- forward and setup_context apart
class Power(Function):
    @staticmethod
    def forward(x, n):
        return x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, n = inputs
        ctx.save_for_backward(x)
        ctx.n = n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.n * x ** (ctx.n - 1), None


x = torch.tensor([2.0, 3.0], requires_grad=True)
y = Power.apply(x, 3)
print(y)
y.sum().backward()
print(x.grad)


# --- needs_input_grad
class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        print("forward", ctx.needs_input_grad)
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        print("backward", ctx.needs_input_grad)
        a, b = ctx.saved_tensors
        return grad * b if ctx.needs_input_grad[0] else None, grad * a if ctx.needs_input_grad[1] else None


a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0)
Product.apply(a, b).backward()
print(a.grad, b.grad)
Product.apply(b, a).backward()
print(a.grad)
print(Product.apply(b, b).requires_grad)


# --- forward runs without recording
class Inside(Function):
    @staticmethod
    def forward(ctx, x):
        print(torch.is_grad_enabled(), (x * 2).requires_grad, x.requires_grad)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        print(torch.is_grad_enabled(), grad.requires_grad)
        return grad * 2


x = torch.tensor(1.0, requires_grad=True)
Inside.apply(x).backward()
torch.autograd.grad(Inside.apply(x), x, create_graph=True)


# --- several outputs
class SinCos(Function):
    @staticmethod
    def forward(ctx, x):
        s, c = x.sin(), x.cos()
        ctx.save_for_backward(s, c)
        return s, c

    @staticmethod
    def backward(ctx, grad_s, grad_c):
        print("backward", grad_s, grad_c)
        s, c = ctx.saved_tensors
        return grad_s * c - grad_c * s


x = torch.tensor(0.0, requires_grad=True)
s, c = SinCos.apply(x)
print(s.output_nr, c.output_nr, s.grad_fn is c.grad_fn, s, c)
(2 * s + 3 * c).backward()
print(x.grad)
s, c = SinCos.apply(x)
s.backward()
print(x.grad)


# --- absent gradients are zeros unless set_materialize_grads
class Raw(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        print(a, b)
        total = 0 if a is None else a * 2
        return total if b is None else total + b * 3


x = torch.tensor(1.0, requires_grad=True)
a, b = Raw.apply(x)
b.backward()
print(x.grad)


# --- None stands for no gradient
class Nothing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


x = torch.tensor(1.0, requires_grad=True)
Nothing.apply(x).backward()
print(x.grad)


# --- the wrong number of gradients
class TooMany(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


class TooFew(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, grad):
        return grad


x = torch.tensor(1.0, requires_grad=True)
error(lambda: TooMany.apply(x).backward())
error(lambda: TooFew.apply(x, x).backward())


# --- trailing None gradients are allowed
class Trailing(Function):
    @staticmethod
    def forward(ctx, x, option=1):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None, None


x = torch.tensor(1.0, requires_grad=True)
Trailing.apply(x).backward()
print(x.grad)


# --- a gradient of the wrong shape or type
class Wrong(Function):
    @staticmethod
    def forward(ctx, x, what):
        ctx.what = what
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return ctx.what, None


x = torch.ones(2, requires_grad=True)
error(lambda: Wrong.apply(x, torch.ones(3)).sum().backward())
error(lambda: Wrong.apply(x, 1.0).sum().backward(), first="expected Variable or None (got float)")

# --- once_differentiable
once_differentiable = torch.autograd.function.once_differentiable


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        print(torch.is_grad_enabled())
        return 2 * ctx.saved_tensors[0] * grad


x = torch.tensor(3.0, requires_grad=True)
Once.apply(x).backward()
print(x.grad)
(first,) = torch.autograd.grad(Once.apply(x), x, create_graph=True)
print(first.detach(), first.requires_grad)
(first,) = torch.autograd.grad(Once.apply(x) ** 2, x, create_graph=True)
print(first.detach(), first.requires_grad)
error(lambda: first.backward())

# --- double backward through saved tensors
x = torch.tensor(0.5, requires_grad=True)
(first,) = torch.autograd.grad(Exp.apply(x), x, create_graph=True)
(second,) = torch.autograd.grad(first, x, create_graph=True)
(third,) = torch.autograd.grad(second, x)
print(f"{first.item():.6f} {second.item():.6f} {third.item():.6f}")

# --- freed buffers
x = torch.tensor(1.0, requires_grad=True)
y = Exp.apply(x)
y.backward()
error(lambda: y.backward(), first="Trying to backward through the graph a second time")


# --- gradcheck accepts what is right and refuses what is wrong
class WrongRule(Function):
    @staticmethod
    def forward(ctx, x):
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


x = torch.tensor([0.5, 1.5], requires_grad=True)
print(torch.autograd.gradcheck(Exp.apply, x), torch.autograd.gradgradcheck(Exp.apply, x))
error(
    lambda: torch.autograd.gradcheck(WrongRule.apply, x), first="Jacobian mismatch for output 0 with respect to input 0"
)
