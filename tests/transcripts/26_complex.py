"""Complex numbers: parts, conjugates, and what a gradient of a complex variable is."""

# --- parts
z = torch.tensor([1 + 2j, 3 - 4j])
print(z.real, z.imag, z.conj(), z.abs(), z.dtype, z.real.dtype)
print(torch.complex(torch.tensor(1.0), torch.tensor(2.0)), torch.is_complex(z), torch.real(z), torch.imag(z))
print(z.angle().abs() < 4, torch.angle(torch.tensor([1.0 + 0j, 1j])))

# --- the gradient of a real function of a complex variable
z = torch.tensor(3 + 4j, requires_grad=True)
z.abs().backward()
print(z.grad)
z.grad = None
(z.real**2 + z.imag**2).backward()
print(z.grad)
z.grad = None
(z * z.conj()).real.backward()
print(z.grad)

# --- the real and imaginary parts
z = torch.tensor([1 + 2j], requires_grad=True)
print(torch.autograd.grad(z.real.sum(), z), torch.autograd.grad(z.imag.sum(), z))
print(torch.autograd.grad((z.real * 3 + z.imag * 5).sum(), z))

# --- backward of a complex result needs a gradient
z = torch.tensor(1 + 2j, requires_grad=True)
error(lambda: (z * z).backward())
y = z * z
y.backward(torch.tensor(1.0 + 0j))
print(z.grad)
z.grad = None
(z * z).backward(torch.tensor(1j))
print(z.grad)

# --- holomorphic functions give the conjugate derivative
z = torch.tensor(0.5 + 1j, requires_grad=True)
one = torch.tensor(1.0 + 0j)
derivatives = {
    "exp": lambda t: t.exp(),
    "sin": lambda t: t.cos(),
    "cos": lambda t: -t.sin(),
    "log": lambda t: 1 / t,
    "sqrt": lambda t: 0.5 / t.sqrt(),
    "tanh": lambda t: 1 - t.tanh() ** 2,
    "reciprocal": lambda t: -1 / t**2,
}
for name, derivative in derivatives.items():
    (grad,) = torch.autograd.grad(getattr(z, name)(), z, one)
    print(name, torch.allclose(grad, derivative(z.detach()).conj()))

# --- conjugation
z = torch.tensor(1 + 2j, requires_grad=True)
(grad,) = torch.autograd.grad(z.conj(), z, torch.tensor(3 + 1j))
print(grad)
(grad,) = torch.autograd.grad(z.conj() * z, z, torch.tensor(1 + 0j))
print(grad)

# --- real inputs keep real gradients
x = torch.tensor(2.0, requires_grad=True)
z = torch.tensor(1 + 2j, requires_grad=True)
(x * z).real.backward()
print(x.grad, z.grad)

# --- real to complex and back
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = torch.complex(x, x * 2)
(y.abs() ** 2).sum().backward()
print(x.grad)
z = torch.view_as_complex(torch.tensor([[1.0, 2.0]]))
print(z, torch.view_as_real(z))

# --- gradient descent on a complex variable
z = torch.tensor(2 + 2j, requires_grad=True)
target = torch.tensor(-1 + 0.5j)
for _ in range(3):
    loss = (z - target).abs() ** 2
    loss.backward()
    with torch.no_grad():
        z -= 0.25 * z.grad
    z.grad = None
    print(f"{loss.item():.4f}", z)

# --- matrix products
a = torch.tensor([[1 + 1j, 2 + 0j]], requires_grad=True)
b = torch.tensor([[1j], [3 + 0j]], requires_grad=True)
(a @ b).real.sum().backward()
print(a.grad, b.grad)

# --- the gradient of abs at zero
z = torch.tensor(0j, requires_grad=True)
z.abs().backward()
print(z.grad)

# --- division and powers
z = torch.tensor(1 + 1j, requires_grad=True)
print(torch.autograd.grad((1 / z).real, z))
print(torch.autograd.grad((z**3).real, z))
print(torch.autograd.grad((z / (2 + 0j)).imag, z))

# --- names of nodes
z = torch.tensor([1 + 1j], requires_grad=True)
for result in (z.conj(), z.abs(), z * z, z.angle(), torch.complex(z.real, z.imag), z.sgn()):
    print(result.grad_fn.name(), result.requires_grad)

# --- complex leaves require grad and print
z = torch.tensor([1.5 + 2j, 0 - 3j], requires_grad=True)
print(z, z * 2)
print(torch.zeros(1, dtype=torch.complex128), z.detach().sum(), z.detach().mean())

# --- the square of the norm
z = torch.tensor([1 + 1j, 2 - 1j], requires_grad=True)
(z.conj() * z).sum().real.backward()
print(z.grad)
z.grad = None
torch.linalg.vector_norm(z).backward()
print(z.grad)
