"""Modules: what is registered, found, saved, loaded, converted, called and printed."""

from collections import OrderedDict

nn = torch.nn


class Scale(nn.Module):
    def __init__(self, n=2):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(float(n)))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.other = None

    def forward(self, x):
        self.count += 1
        return self.weight * x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.second = nn.Sequential(Scale(), nn.ReLU())
        self.shared = self.first

    def forward(self, x):
        return self.second(self.first(x))


def filled(module):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(0.5 * torch.cos(torch.arange(float(p.numel())) + k).reshape(p.shape))
    return module


# --- what is found, each once
net = Net()
print([name for name, _ in net.named_parameters()])
print([name for name, _ in net.named_parameters(remove_duplicate=False)])
print([name for name, _ in net.named_parameters(prefix="net", recurse=False)])
print([name for name, _ in net.named_buffers()])
print([name for name, _ in net.named_modules()])
print([name for name, _ in net.named_children()], len(list(net.modules())), len(list(net.parameters())))
print(net.get_submodule("second.0") is net.second[0], net.get_parameter("second.0.weight") is net.second[0].weight)
print(net.get_buffer("first.count"))
error(lambda: net.get_submodule("second.x"))
error(lambda: net.get_parameter("first.count"))
error(lambda: net.get_parameter("first.x"))
error(lambda: net.get_submodule("first.weight"))
error(lambda: net.nothing)

# --- parameters are leaves that require grad
p = nn.Parameter(torch.ones(2))
print(isinstance(p, nn.Parameter), isinstance(p, torch.Tensor), isinstance(torch.ones(2), nn.Parameter))
print(p, p.requires_grad, p.is_leaf)
print((p * 2), isinstance(p * 2, nn.Parameter), isinstance(p.detach(), nn.Parameter))
print(nn.Parameter(torch.zeros(2, 2), requires_grad=False))
error(lambda: nn.Parameter(torch.tensor([1, 2])), first="Only Tensors of floating point and complex dtype can require")
t = torch.ones(2)
nn.Parameter(t).data.add_(1)
print(t)

# --- registering and its errors
m = nn.Module()
error(lambda: m.register_parameter("a.b", None))
error(lambda: m.register_parameter("", None))
error(lambda: m.register_parameter("forward", None))
error(lambda: m.register_parameter("w", torch.ones(1)), until="(torch.nn")
error(lambda: m.register_parameter("w", nn.Parameter(torch.ones(1)) * 2), first="")
error(lambda: m.register_buffer("a.b", None))
error(lambda: m.register_buffer("", None))
error(lambda: m.register_buffer("b", 3), first="cannot assign 'int' object to buffer 'b' (")
error(lambda: m.add_module("x", 3))
error(lambda: m.add_module("a.b", nn.ReLU()))
error(lambda: m.add_module("", nn.ReLU()))
m.w = nn.Parameter(torch.ones(1))
error(lambda: setattr(m, "w", 3), first="cannot assign 'int' as parameter 'w' (")
error(lambda: m.register_buffer("w", torch.ones(1)))
m.sub = nn.ReLU()
error(lambda: setattr(m, "sub", 3), first="cannot assign 'int' as child module 'sub' (")
m.register_buffer("b", torch.ones(1))
error(lambda: setattr(m, "b", 3), first="cannot assign 'int' as buffer 'b' (")
m.w = None
print(dict(m.named_parameters()), m.w, "w" in m._parameters)
m.b = torch.zeros(2)
print(dict(m.named_buffers()))
del m.b, m.sub, m.w
print(list(m._buffers), list(m._modules), list(m._parameters))
error(lambda: delattr(m, "w"))
m.x = 3
m.x = nn.Parameter(torch.ones(1))
print("x" in m.__dict__, "x" in m._parameters)
error(lambda: setattr(m, "x", nn.ReLU()), first="cannot assign", until="ReLU")
m.y = nn.ReLU()
m.y = nn.Parameter(torch.ones(1))
print("y" in m._parameters, "y" in m._modules)


class Early(nn.Module):
    def __init__(self, value):
        self.value = value


error(lambda: Early(nn.Parameter(torch.ones(1))))
error(lambda: Early(nn.ReLU()))
error(lambda: nn.Module(3), first="Module.__init__() takes 1 positional argument but 2 were given")
error(lambda: nn.Module(a=3))
error(lambda: nn.Module()(1))
error(lambda: nn.Linear(2, 2).train(3))

# --- state
net = filled(Net())
state = net.state_dict()
print(list(state), state["first.weight"], state["first.weight"].requires_grad)
state["first.weight"].zero_()
print(net.first.weight)
print(list(nn.Linear(1, 1).state_dict(prefix="x.")))
other = Net()
print(other.load_state_dict(filled(Net()).state_dict()), other.second[0].weight)
error(lambda: nn.Linear(2, 3).load_state_dict({"weight": torch.ones(3, 3), "more": torch.ones(1)}))
error(lambda: nn.Linear(2, 3).load_state_dict({}))
error(lambda: nn.Linear(2, 3).load_state_dict({"weight": torch.ones(3, 3)}, strict=False))
found = nn.Linear(2, 3).load_state_dict({"weight": torch.ones(3, 2), "more": torch.ones(1)}, strict=False)
print(found.missing_keys, found.unexpected_keys)
error(lambda: nn.Linear(2, 3).load_state_dict([1]), first="Expected state_dict to be dict-like, got")
layer = nn.Linear(2, 3)
weight = layer.weight
layer.load_state_dict({"weight": torch.ones(3, 2), "bias": torch.zeros(3)})
print(layer.weight is weight)
layer.load_state_dict({"weight": torch.ones(3, 2, dtype=torch.float32), "bias": torch.zeros(3)}, assign=True)
print(layer.weight is weight, layer.weight.dtype, layer.weight.requires_grad)

# --- modes and gradients
net = filled(Net())
print(net.training, net.eval() is net, net.second[1].training, net.train().first.training)
net(torch.ones(2)).sum().backward()
print(net.first.weight.grad, net.first.count, net.second[0].count)
net.zero_grad(set_to_none=False)
print(net.first.weight.grad)
net.zero_grad()
print(net.first.weight.grad)
net.requires_grad_(False)
print([p.requires_grad for p in net.parameters()])
names = []
net.apply(lambda m: names.append(type(m).__name__))
print(names)

# --- dtypes
layer = nn.Linear(2, 1)
weight = layer.weight
print(layer.float() is layer, layer.weight.dtype, layer.weight is weight)
print(layer.half().bias.dtype, layer.double().bias.dtype, layer.to(torch.float32).bias.dtype)
print(layer.to(torch.zeros(1)).bias.dtype, layer.to("cpu").bias.dtype, layer.type(torch.float32).bias.dtype)
norm = nn.BatchNorm1d(2).float()
print(norm.running_mean.dtype, norm.num_batches_tracked.dtype)
error(lambda: layer.to(torch.int64))
print(nn.Linear(2, 1, dtype=torch.float32).weight.dtype)

# --- hooks before and after
layer = filled(nn.Linear(2, 1))
one = layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
two = layer.register_forward_hook(lambda m, args, out: out + args[0].sum())
print(layer(torch.ones(2)))
one.remove()
print(layer(torch.ones(2)))
two.remove()
print(layer(torch.ones(2)))


class WithKeyword(nn.Module):
    def forward(self, x, scale=1.0):
        return x * scale


m = WithKeyword()
m.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 3.0}), with_kwargs=True)
m.register_forward_hook(lambda m, args, kwargs, out: print(kwargs), with_kwargs=True)
print(m(torch.ones(2), scale=2.0))
m = nn.ReLU()
calls = []
m.register_forward_hook(lambda *_: calls.append("first"))
m.register_forward_hook(lambda *_: calls.append("second"), prepend=True)
m(torch.ones(1))
print(calls)

# --- hooks on the way back
layer = filled(nn.Linear(2, 1))
layer.register_full_backward_pre_hook(lambda m, grads: print("before", grads))
layer.register_full_backward_hook(lambda m, ins, outs: print("after", ins, outs))
x = torch.ones(3, 2, requires_grad=True)
layer(x).sum().backward()
print(x.grad, layer.weight.grad)
warned(
    lambda: layer(torch.ones(1, 2)).sum().backward(), first="Full backward hook is firing when gradients are computed"
)
scaled = filled(nn.Linear(2, 1))
scaled.register_full_backward_hook(lambda m, ins, outs: (ins[0] * 10,))
x = torch.ones(3, 2, requires_grad=True)
scaled(x).sum().backward()
print(x.grad, scaled.weight.grad)

# --- containers
s = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
print(len(s), s[0], s[-1], s[:2])
error(lambda: s[3])
del s[1]
print(s, list(s.state_dict()))
s.append(nn.Tanh()).insert(0, nn.ReLU())
print(s)
s[0] = nn.Tanh()
print(s.pop(0), len(s), [type(m).__name__ for m in s])
print(nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh())))
print(nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh()))
ms = nn.ModuleList([nn.Linear(1, 1)])
ms += [nn.ReLU()]
ms.extend([nn.Tanh()])
print(ms, ms[1:], len(ms), nn.ReLU() in ms)
error(lambda: ms(1))
d = nn.ModuleDict({"a": nn.ReLU()})
d["b"] = nn.Tanh()
d.update({"c": nn.Linear(1, 1)})
print(d, list(d), "a" in d, len(d), list(d.keys()), [name for name, _ in d.named_parameters()])
print(d.pop("a"), list(d))
ps = nn.ParameterList([torch.ones(1), torch.zeros(2)])
ps.append(torch.ones(3))
print(len(ps), [name for name, _ in ps.named_parameters()], ps[2], [p.numel() for p in ps])
ps += [torch.ones(1)]
pd = nn.ParameterDict({"a": torch.ones(1)})
pd["b"] = torch.zeros(2)
print(list(pd), pd["b"], [name for name, _ in pd.named_parameters()], len(pd), "a" in pd)
print(pd.pop("a"), list(pd.keys()), pd.get("a"))

# --- text
print(Net())
print(nn.Module(), nn.Identity(), nn.BatchNorm2d(3), nn.Conv2d(1, 2, 3, padding="same", bias=False))
print(nn.Conv1d(2, 4, 3, stride=2, dilation=2, groups=2, padding=1, padding_mode="circular"))
print(nn.Linear(2, 3, bias=False), nn.Embedding(4, 3, padding_idx=-1), nn.Dropout(0.1), nn.LayerNorm((3, 2)))
print(nn.LeakyReLU(0.2), nn.ELU(inplace=True), nn.Softplus(), nn.GELU("tanh"), nn.Threshold(1, 2), nn.Softmax(dim=1))
print(nn.MaxPool2d(2), nn.AvgPool1d(2), nn.AdaptiveAvgPool2d((2, None)), nn.Flatten(), nn.Unflatten(1, (2, 3)))
print(nn.MSELoss(), nn.CrossEntropyLoss(), nn.ZeroPad2d(1), nn.ConstantPad1d(1, 2.0), nn.GroupNorm(2, 4))

# --- what is initialised
init = nn.init
print(init.calculate_gain("relu"), init.calculate_gain("leaky_relu", 0.2), init.calculate_gain("tanh"))
error(lambda: init.calculate_gain("x"))
print(init.eye_(torch.empty(2, 3)), init.constant_(torch.empty(2), 3.0), init.ones_(torch.empty(1)))
print(init.dirac_(torch.empty(4, 2, 3), groups=2), init.zeros_(torch.empty(1)))
error(lambda: init.eye_(torch.empty(3)), until="Only tensors with 2")
error(lambda: init.kaiming_uniform_(torch.empty(3)))
error(lambda: init.xavier_normal_(torch.empty(3)))
error(lambda: init.kaiming_normal_(torch.empty(3, 3), mode="x"), first="Mode x not supported, please use one of")
error(lambda: init.dirac_(torch.empty(3, 3)))
error(lambda: init.orthogonal_(torch.empty(3)))
p = nn.Parameter(torch.empty(2, 3))
print(init.uniform_(p) is p, p.grad_fn, p.requires_grad)

# --- bounds on gradients, and vectors
utils = nn.utils
layer = filled(nn.Linear(2, 2))
layer(torch.ones(2)).sum().backward()
layer.weight.grad.mul_(torch.tensor([[1.0, -2.0], [3.0, -4.0]]))
print(utils.clip_grad_norm_(layer.parameters(), 2.0), layer.weight.grad, layer.bias.grad)
print(utils.get_total_norm([p.grad for p in layer.parameters()]))
print(
    utils.clip_grad_norm_(layer.parameters(), 100.0), utils.clip_grad_norm_(layer.weight, 0.5, norm_type=float("inf"))
)
utils.clip_grad_value_(layer.parameters(), 0.25)
print(layer.weight.grad, layer.bias.grad)
layer.weight.grad[0, 0] = float("nan")
error(lambda: utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True))
print(layer.bias.grad)
v = utils.parameters_to_vector(layer.parameters())
print(v)
utils.vector_to_parameters(torch.arange(6.0), layer.parameters())
print(layer.weight, layer.bias)
