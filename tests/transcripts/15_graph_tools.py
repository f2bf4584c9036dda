"""torch.autograd.graph: hooks on saved tensors, hooks on several tensors, versions."""

graph = torch.autograd.graph


# --- saved_tensors_hooks see what is saved and give what is used
def pack(t):
    print("pack", t.detach())
    return t


def unpack(t):
    print("unpack", t.detach())
    return t


x = torch.tensor([2.0, 3.0], requires_grad=True)
with graph.saved_tensors_hooks(pack, unpack):
    y = x * x
print("backward")
y.sum().backward()
print(x.grad)

# --- what is packed may be anything
store = []


def keep(t):
    store.append(t.detach().clone())
    return len(store) - 1


x = torch.tensor([2.0, 3.0], requires_grad=True)
with graph.saved_tensors_hooks(keep, lambda n: store[n] * 10):
    y = x.exp()
y.sum().backward()
print(len(store), torch.allclose(x.grad, 10 * x.detach().exp()))

# --- only what is saved within
x = torch.tensor([2.0, 3.0], requires_grad=True)
count = []
with graph.saved_tensors_hooks(lambda t: count.append(1) or t, lambda t: t):
    y = x.sin()
z = y.cos()
print(len(count))
z.sum().backward()

# --- the innermost hooks count
x = torch.tensor([2.0], requires_grad=True)
with graph.saved_tensors_hooks(lambda t: print("outer") or t, lambda t: t):
    with graph.saved_tensors_hooks(lambda t: print("inner") or t, lambda t: t):
        x.sin()
    x.sin()

# --- attributes of nodes go through the hooks
x = torch.tensor([2.0, 3.0], requires_grad=True)
with graph.saved_tensors_hooks(lambda t: t.detach() * 2, lambda t: t):
    y = x.sin()
print(y.grad_fn._saved_self.detach())

# --- save_on_cpu
x = torch.tensor([2.0, 3.0], requires_grad=True)
with graph.save_on_cpu():
    y = (x * x).exp()
y.sum().backward()
print(torch.allclose(x.grad, 2 * x.detach() * (x.detach() ** 2).exp()))

# --- disable_saved_tensors_hooks
x = torch.tensor([2.0], requires_grad=True)


def enter():
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


with graph.disable_saved_tensors_hooks("hooks are not allowed here"):
    error(enter)
    (x * x).backward()
print(x.grad)
enter()

# --- an error in pack and in unpack
x = torch.tensor([2.0], requires_grad=True)


def fails(t):
    raise ValueError("no place to keep it")


def forward():
    with graph.saved_tensors_hooks(fails, lambda t: t):
        return x.sin()


error(forward)
with graph.saved_tensors_hooks(lambda t: t, fails):
    y = x.sin()
error(lambda: y.backward())

# --- unpack must give a tensor
x = torch.tensor([2.0], requires_grad=True)
with graph.saved_tensors_hooks(lambda t: "text", lambda t: t):
    y = x.sin()
error(
    lambda: y.backward(), first="Output of saved tensor unpack_hook expected to be a Tensor but got result of type str"
)

# --- register_multi_grad_hook waits for all
x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([3.0, 4.0], requires_grad=True)
h = x * w
handle = graph.register_multi_grad_hook((x, w, h), lambda grads: print("all:", grads))
h.sum().backward()
handle.remove()
(x * w).sum().backward()

# --- register_multi_grad_hook with a tensor that is not reached
x = torch.tensor(1.0, requires_grad=True)
w = torch.tensor(2.0, requires_grad=True)
graph.register_multi_grad_hook((x, w), lambda grads: print(grads))
(x * 3).backward()

# --- register_multi_grad_hook for any
x = torch.tensor(1.0, requires_grad=True)
w = torch.tensor(2.0, requires_grad=True)
graph.register_multi_grad_hook((x, w), lambda grad: print("any:", grad), mode="any")
(x * 3).backward()
(x * w).backward()

# --- increment_version
x = torch.ones(2)
print(x._version)
graph.increment_version(x)
print(x._version)
graph.increment_version([x, x[0]])
print(x._version)

# --- increment_version is found by backward
x = torch.ones(2, requires_grad=True)
y = x.exp()
graph.increment_version(y)
error(lambda: y.sum().backward(), until="Hint:")

# --- Node is an abstract class
x = torch.ones(2, requires_grad=True)
y = x * 2
print(isinstance(y.grad_fn, graph.Node), isinstance(y, graph.Node), graph.Node.__name__)
print(isinstance(y.grad_fn.next_functions[0][0], graph.Node), issubclass(type(y.grad_fn), graph.Node))


# --- saved tensors of a custom function are packed too
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0] ** 2


x = torch.tensor(2.0, requires_grad=True)
with graph.saved_tensors_hooks(lambda t: print("pack", t.detach()) or t, lambda t: print("unpack", t.detach()) or t):
    y = Cube.apply(x)
y.backward()
print(x.grad)
