"""Errors for numbers in place of Tensors, and for dtypes, values and indices that functions do not take."""

F, i, v, b = torch.nn.functional, torch.arange(4).reshape(2, 2), torch.arange(2), torch.tensor([True, False])
NAMES = {"torch": torch, "F": F, "i": i, "v": v, "b": b, "f": torch.tensor([1.0, 2.0]), "inf": float("inf")}


def shown(texts):
    for text in texts:
        print(text, "->", eval(text, NAMES))


def refused(texts, **options):
    for text in texts:
        error(lambda: eval(text, NAMES), **options)


# --- numbers in place of Tensors
both = (
    "atan2 fmax fmin gcd heaviside hypot igamma igammac isclose lcm ldexp logaddexp logaddexp2 logical_and logical_or"
)
for name in (*both.split(), "logical_xor", "maximum", "minimum", "nextafter"):
    refused((f"torch.{name}(f, 1)", f"torch.{name}(2.5, f)", f"torch.{name}(1, 2)"))
refused(("torch.complex(1.0, f)", "torch.polar(f, 1)", "torch.polar(2.0, 1.0)"))
first = "clamp_max clamp_min copysign eq fmod ge gt le lt max min ne rsub"
for name in first.split():
    refused((f"torch.{name}(1, f)", f"torch.{name}(1, 2)"), until=", but expected")
one = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor float_power pow remainder xlogy"
for name in (*one.split(), "special.xlog1py", "special.zeta"):
    refused((f"torch.{name}(1, 2)",), until=", but expected")
shown(("torch.eq(f, 1)", "torch.pow(2, v)", "torch.remainder(5, f)", "torch.bitwise_and(1, v)", "torch.xlogy(2.0, f)"))
shown(("torch.clamp_min(f, 1.5)", "torch.copysign(f, -1)", "torch.special.zeta(2.0, f)", "torch.fmod(f, 2)"))

# --- booleans and integers
refused(("b - b", "b - True", "True - b", "b - 1", "b - f", "f - b", "1 - b", "torch.rsub(b, 1)", "f - True"))
refused(("i.mean()", "b.mean(0)", "i.mean(dtype=torch.int64)", "f.mean(dtype=torch.int32)", "i.std()", "i.var(0)"))
refused(("i.norm()", "torch.linalg.norm(i)", "i.add(i, alpha=1.5)", "i.sub(i, alpha=1.5)"))
shown(("i.mean(dtype=torch.float32)", "torch.addmv(v, i, v, beta=0.6, alpha=1.7)", "i.sum() - 1"))
shown(("F.conv_transpose1d(i, torch.arange(4).reshape(2, 1, 2), v[1:], stride=2)",))
refused(("F.max_pool1d(torch.ones(0, 10), 2)",))
shown(("F.avg_pool2d(i[None] - 7, 2)", "F.max_pool2d(i[None] - 7, 2, return_indices=True)", "F.avg_pool1d(i, 2)"))

# --- integers to negative powers
refused(("i ** -1", "torch.pow(i, -2)", "i.clone().pow_(-1)"))
NAMES |= {"x": torch.tensor([2, 1, -1, 3, 0]), "y": torch.tensor([3, -3, -3, -2, 0])}
shown(("x ** y", "torch.pow(x, y)", "2 ** y", "(-1) ** y", "1 ** y", "x ** 2", "x ** 2.0", "x ** torch.tensor(-1.0)"))

# --- indices and values out of range
j = NAMES["j"] = torch.tensor([[5, 0]])
refused(("torch.gather(i, 0, j)", "i.scatter(0, j, i)", "i.scatter(0, j, 7)", "i.scatter_add(1, j, i)"))
refused(("i.index_add(0, torch.tensor([5]), i[:1])",))
refused(("v.masked_fill(b, 1e300)", "f.float().masked_fill(b, 1e300)", "v.fill_(1e300)", "f.float().fill_(1e300)"))
refused(("torch.full((2,), 1e300, dtype=torch.int64)", "v.masked_fill(b, 1j)", "torch.arange(0, 2, 0)"))
refused(("torch.zeros(2, dtype=torch.uint8).fill_(300)", "v.clone().fill_(float('nan'))", "f.half().fill_(1e5)"))
shown(("torch.zeros(2, dtype=torch.uint8).fill_(-1)", "v.clone().fill_(2**62)"))
shown(("f.masked_fill(b, inf)", "f.fill_(-inf)", "torch.full((1,), inf)"))
refused(("v.type('torch.Foo')", "torch.hsplit(v, 'a')", "torch.vsplit(i, 'a')"), until=", but expected")
refused(("v.narrow(0, f, 1)", "torch.cov(torch.ones(2, 2, 2))", "torch.aminmax(torch.ones(2, 0), dim=1)"))
refused(("torch.take(f, v, out=f)", "torch.gather(v, 0, v, out=v)"))
refused(("torch.index_select(f, 0, v, out=torch.zeros(1).expand(2))",))
refused(("F.multi_margin_loss(torch.ones(2, 3), v, weight=torch.ones(4))",))

# --- 1 / x saves its result, diagonals are copied and grids are views
x = torch.arange(1.0, 4.0, requires_grad=True)
y = x * 1
z = 1 / y
y.zero_()
z.sum().backward()
print(z, x.grad, 1 / torch.tensor([2]), 1.0 / torch.tensor([0.0]))
x = torch.ones(2, 2, requires_grad=True)
print(x.diag().detach(), x.diag()._is_view())
v = torch.arange(2.0)
grid = torch.meshgrid(v, v, indexing="xy")
v.mul_(3)
print(*grid)
