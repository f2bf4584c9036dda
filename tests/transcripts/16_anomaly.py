"""Anomaly detection: which operation made the nan."""

import warnings

FORWARD = ("torch.sqrt(x)", "a / b", "Broken.apply")


def told(fn, first):
    """The error of `fn`, and which warnings came before it."""
    with warnings.catch_warnings(record=True) as args:
        warnings.simplefilter("always")
        error(fn, first=first)
    for each in args:
        text = str(each.message)
        print(each.category.__name__, text[:44].strip())
        print([line.strip() for line in text.splitlines() if any(code in line for code in FORWARD)])


# --- nan in backward is an error
x = torch.tensor([0.0, 1.0], requires_grad=True)


def run():
    with torch.autograd.detect_anomaly():
        y = torch.sqrt(x) * torch.tensor([0.0, 1.0])
        y.sum().backward()


told(run, "Function 'SqrtBackward0' returned nan values in its 0th output.")
print(x.grad)

# --- without detection it is a nan
x = torch.tensor([0.0, 1.0], requires_grad=True)
y = torch.sqrt(x) * torch.tensor([0.0, 1.0])
y.sum().backward()
print(x.grad)

# --- the second output of a node
a = torch.tensor([1.0], requires_grad=True)
b = torch.tensor([0.0], requires_grad=True)


def run():
    with torch.autograd.detect_anomaly():
        (torch.zeros(1) * (a / b)).sum().backward()


told(run, "Function 'DivBackward0' returned nan values in its")

# --- check_nan=False lets them pass
x = torch.tensor([0.0, 1.0], requires_grad=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with torch.autograd.detect_anomaly(check_nan=False):
        (torch.sqrt(x) * torch.tensor([0.0, 1.0])).sum().backward()
print(x.grad)

# --- inf is no anomaly
x = torch.tensor([0.0], requires_grad=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with torch.autograd.detect_anomaly():
        torch.sqrt(x).sum().backward()
print(x.grad)

# --- set_detect_anomaly as a function and as a context manager
print(torch.is_anomaly_enabled())
torch.autograd.set_detect_anomaly(True)
print(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
torch.autograd.set_detect_anomaly(False)
with torch.autograd.set_detect_anomaly(True, check_nan=False):
    print(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
print(torch.is_anomaly_enabled())

# --- entering warns
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    with torch.autograd.detect_anomaly():
        pass
print([str(each.message) for each in given])

# --- the forward line of an error in backward is named
x = torch.tensor([4.0], requires_grad=True)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.log()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("nan")


def run():
    with torch.autograd.detect_anomaly():
        Broken.apply(x).backward()


told(run, "Function 'BrokenBackward' returned nan values in its 0th output.")

# --- a variable modified in place is named with its forward line
x = torch.tensor([4.0], requires_grad=True)


def run():
    with torch.autograd.detect_anomaly():
        y = torch.sqrt(x)
        y.add_(1)
        y.sum().backward()


told(run, "one of the variables needed for gradient computation has been modified by an inplace operation")

# --- nan in the forward pass is no anomaly
x = torch.tensor([-1.0], requires_grad=True)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with torch.autograd.detect_anomaly():
        y = torch.sqrt(x)
        print(y)
        error(lambda: y.backward(), first="Function 'SqrtBackward0' returned nan values in its 0th output.")
