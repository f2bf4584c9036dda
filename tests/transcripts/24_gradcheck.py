"""gradcheck and gradgradcheck."""

gradcheck, gradgradcheck = torch.autograd.gradcheck, torch.autograd.gradgradcheck


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class WrongSecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0].detach() ** 2


def said(fn, *parts):
    """Whether the error of `fn` says these things."""
    try:
        print(fn())
    except RuntimeError as raised:
        print(type(raised).__name__, [part in str(raised) for part in parts])


# --- functions that are right
x = torch.tensor([0.5, 1.5], requires_grad=True)
w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
print(gradcheck(torch.sin, x), gradcheck(torch.sin, (x,)), gradcheck(lambda a, b: b @ a, (x, w)))
print(gradcheck(torch.exp, x, eps=1e-6, atol=1e-5, rtol=1e-3))
print(gradcheck(lambda a: (a.sum(), a.prod()), (x,)))

# --- second derivatives that are right
x = torch.tensor([0.5, 1.5], requires_grad=True)
print(gradgradcheck(torch.sin, x), gradgradcheck(lambda a: a**3, (x,)), gradgradcheck(torch.tanh, x, fast_mode=True))

# --- a wrong derivative
x = torch.tensor([1.0, 2.0], requires_grad=True)
error(lambda: gradcheck(Wrong.apply, x), first="Jacobian mismatch for output 0 with respect to input 0,")
said(lambda: gradcheck(Wrong.apply, x), "numerical:", "analytical:")

# --- which output and which input
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = torch.tensor([1.0, 2.0], requires_grad=True)
error(
    lambda: gradcheck(lambda a, b: (a * b, Wrong.apply(b)), (x, y)),
    first="Jacobian mismatch for output 1 with respect to input 1,",
)

# --- raise_exception=False
x = torch.tensor([1.0, 2.0], requires_grad=True)
print(gradcheck(Wrong.apply, x, raise_exception=False), gradgradcheck(WrongSecond.apply, x, raise_exception=False))

# --- a wrong second derivative
x = torch.tensor([1.0, 2.0], requires_grad=True)
print(gradcheck(WrongSecond.apply, x))
said(lambda: gradgradcheck(WrongSecond.apply, x), "mismatch")

# --- fast mode
x = torch.tensor([0.5, 1.5, 2.5], requires_grad=True)
print(gradcheck(torch.log, x, fast_mode=True))
print(gradcheck(Wrong.apply, x, fast_mode=True, raise_exception=False))
error(
    lambda: gradcheck(Wrong.apply, x, fast_mode=True), first="Jacobian mismatch for output 0 with respect to input 0,"
)

# --- inputs must require grad
error(
    lambda: gradcheck(torch.sin, torch.ones(2)), first="gradcheck expects at least one input tensor to require gradient"
)

# --- float32 inputs are warned of
x = torch.tensor([0.5, 1.5], dtype=torch.float32, requires_grad=True)
said(
    lambda: warned(
        lambda: gradcheck(torch.sin, x, eps=1e-2, atol=1e-2), first="Input #0 requires gradient and is not a double"
    )
)


# --- non-deterministic functions
class Changing(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Changing.calls += 1
        return grad * 2 * (1 + 1e-8 * Changing.calls)


x = torch.tensor([1.0, 2.0], requires_grad=True)
error(lambda: gradcheck(Changing.apply, x), first="Backward is not reentrant")
print(gradcheck(Changing.apply, x, nondet_tol=1e-3))

# --- functions of complex numbers
z = torch.tensor([0.5 + 1j, 1.5 - 0.5j], requires_grad=True)
print(gradcheck(torch.sin, z), gradcheck(torch.abs, z), gradcheck(lambda t: t.conj() * t, z), gradcheck(torch.exp, z))
print(
    gradcheck(lambda t: t.real * t.imag, z), gradcheck(lambda t: t**2, z, fast_mode=True), gradgradcheck(torch.exp, z)
)

# --- inputs that do not require grad are constants
x = torch.tensor([0.5, 1.5], requires_grad=True)
print(gradcheck(lambda a, b, n: a * b**n, (x, torch.ones(2), 3)))

# --- undefined gradients
x = torch.tensor([0.5, 1.5], requires_grad=True)
print(gradcheck(torch.sin, x, check_undefined_grad=True), gradcheck(torch.sin, x, check_undefined_grad=False))

# --- batched gradients
x = torch.tensor([0.5, 1.5], requires_grad=True)
print(gradcheck(torch.sin, x, check_batched_grad=True), gradgradcheck(torch.sin, x, check_batched_grad=True))

# --- grad_outputs of gradgradcheck
x = torch.tensor([0.5, 1.5], requires_grad=True)
v = torch.tensor([1.0, -1.0], requires_grad=True)
print(
    gradgradcheck(lambda a: a**3, (x,), (v,)),
    gradgradcheck(lambda a: a**3, x, grad_outputs=v, gen_non_contig_grad_outputs=True),
)

# --- gradients are left alone
x = torch.tensor([0.5, 1.5], requires_grad=True)
gradcheck(torch.sin, x)
print(x.grad, x)
