"""inference_mode: tensors that autograd will never see."""

# --- results do not require grad
x = torch.ones(2, requires_grad=True)
with torch.inference_mode():
    y = x * 2
    print(y.requires_grad, y.grad_fn, y.is_inference(), torch.is_inference_mode_enabled(), torch.is_grad_enabled())
print(y.is_inference(), x.is_inference(), torch.is_inference_mode_enabled(), torch.is_grad_enabled())

# --- as a decorator
x = torch.ones(2, requires_grad=True)


@torch.inference_mode()
def f(t):
    return t * 2


@torch.inference_mode
def g(t):
    return t * 2


print(f(x).requires_grad, f(x).is_inference(), g(x).is_inference(), torch.is_inference_mode_enabled())

# --- inference_mode(False)
x = torch.ones(2, requires_grad=True)
with torch.inference_mode(False):
    print((x * 2).requires_grad)
with torch.inference_mode():
    with torch.inference_mode(False):
        print((x * 2).requires_grad, torch.is_inference_mode_enabled(), torch.is_grad_enabled())

# --- inference tensors cannot be saved for backward
x = torch.ones(2, requires_grad=True)
with torch.inference_mode():
    y = torch.ones(2) * 2
error(lambda: x * y)
print((x + y).requires_grad, (y * 2).requires_grad)

# --- inference tensors have no version
with torch.inference_mode():
    y = torch.ones(2)
error(lambda: y._version)

# --- in-place updates outside are refused
with torch.inference_mode():
    y = torch.ones(2)
    y.add_(1)
print(y)
error(lambda: y.add_(1), first="Inplace update to inference tensor outside InferenceMode is not allowed.")

# --- requires_grad outside is refused
with torch.inference_mode():
    y = torch.ones(2)
error(lambda: y.requires_grad_(), first="Setting requires_grad=True on inference tensor outside InferenceMode is not")

# --- a clone is an ordinary tensor
with torch.inference_mode():
    y = torch.ones(2)
z = y.clone()
print(z.is_inference(), z.requires_grad_().requires_grad, (z * z).sum().backward(), z.grad)

# --- views in inference mode of ordinary tensors are ordinary
x = torch.ones(2, 2)
with torch.inference_mode():
    v = x.view(4)
    print(v.is_inference(), (x + 1).is_inference(), x.is_inference())
    v.add_(1)
print(x.tolist(), x._version)

# --- tensors with requires_grad made in inference mode
with torch.inference_mode():
    w = torch.ones(2, requires_grad=True)
    print(w.requires_grad, (w * 2).requires_grad)


# --- the mode is left by errors and nests
def fails():
    with torch.inference_mode():
        raise ValueError("within")


error(fails)
print(torch.is_inference_mode_enabled())
with torch.inference_mode(), torch.inference_mode():
    print(torch.is_inference_mode_enabled())

# --- enable_grad does not help in inference mode
x = torch.ones(2, requires_grad=True)
with torch.inference_mode(), torch.enable_grad():
    print((x * 2).requires_grad, torch.is_grad_enabled(), torch.is_inference_mode_enabled())

# --- backward of inference results is an error
x = torch.ones(2, requires_grad=True)
with torch.inference_mode():
    y = (x * 2).sum()
error(lambda: y.backward())
