"""What layers compute of parameters that are known, and the gradients of inputs and parameters."""

nn = torch.nn


def known(*shape, k=0):
    n = 1
    for size in shape:
        n *= size
    return torch.cos(torch.arange(float(n)) * 1.3 + k).reshape(shape)


def filled(module):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(0.5 * known(*p.shape, k=k))
    return module


def show(module, *inputs):
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = filled(module)(*inputs)
    print(out.shape, out.detach().reshape(-1)[:6], out.detach().abs().sum(), out.grad_fn is not None)
    (out * known(*out.shape, k=0.5)).sum().backward()
    for x in [*inputs, *module.parameters()]:
        if x.grad is not None:
            print(x.grad.reshape(-1)[:5], x.grad.abs().sum())


# --- products
show(nn.Linear(3, 2), known(4, 3))
show(nn.Linear(3, 2, bias=False), known(2, 4, 3))
show(nn.Linear(3, 2), known(3))
show(nn.Bilinear(3, 4, 2), known(5, 3), known(5, 4))
show(nn.Bilinear(3, 4, 2, bias=False), known(2, 5, 3), known(2, 5, 4))
show(nn.Embedding(5, 3), torch.tensor([[1, 2], [4, 2]]))
show(nn.Embedding(5, 3, padding_idx=2), torch.tensor([[1, 2], [4, 2]]))
table = nn.Embedding.from_pretrained(known(3, 2))
print(table(torch.tensor([2, 0])), table.weight.requires_grad)
error(lambda: nn.Embedding(2, 2)(torch.tensor([2])))

# --- convolutions
show(nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2), known(2, 2, 9))
show(nn.Conv1d(2, 3, 3, padding="same", bias=False), known(2, 7))
show(nn.Conv2d(2, 3, (3, 2), padding=(1, 0)), known(2, 2, 5, 4))
show(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), known(1, 2, 4, 4))
show(nn.Conv2d(2, 2, 3, padding="same", padding_mode="reflect"), known(1, 2, 4, 4))
show(nn.Conv3d(1, 2, 2), known(1, 1, 3, 3, 3))
error(lambda: nn.Conv2d(3, 4, 2, groups=2))
error(lambda: nn.Conv2d(4, 3, 2, groups=2))
error(lambda: nn.Conv2d(4, 4, 2, stride=2, padding="same"))

# --- normalization
show(nn.LayerNorm(4), known(3, 4))
show(nn.LayerNorm((3, 4), bias=False), known(2, 3, 4))
show(nn.RMSNorm(4), known(3, 4))
show(nn.GroupNorm(2, 4), known(3, 4, 5))
show(nn.InstanceNorm1d(3, affine=True), known(2, 3, 5))
show(nn.InstanceNorm2d(3), known(3, 4, 4))
show(nn.LocalResponseNorm(2), known(2, 4, 3))
error(lambda: nn.GroupNorm(3, 4), first="num_channels")
norm = nn.BatchNorm1d(3)
show(norm, known(4, 3))
print(norm.running_mean, norm.running_var, norm.num_batches_tracked)
show(norm.eval(), known(4, 3, k=1))
print(norm.running_mean, norm.num_batches_tracked)
norm = nn.BatchNorm1d(3, momentum=None)
for k in range(3):
    norm(known(4, 3, 2, k=k))
print(norm.running_mean, norm.running_var, norm.num_batches_tracked)
norm.reset_running_stats()
print(norm.running_mean, norm.running_var, norm.num_batches_tracked)
show(nn.BatchNorm2d(2, affine=False), known(3, 2, 2, 2))
show(nn.BatchNorm2d(2, track_running_stats=False).eval(), known(3, 2, 2, 2))
show(nn.BatchNorm3d(2), known(2, 2, 2, 2, 2))
error(lambda: nn.BatchNorm1d(3)(known(3)))
error(lambda: nn.BatchNorm2d(3)(known(2, 3)))
error(lambda: nn.BatchNorm1d(3)(known(1, 3)))

# --- activations
x = known(2, 4) * 3
for name in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Sigmoid", "Tanh", "LogSigmoid"):
    print(name, getattr(nn, name)()(x))
for name in ("Softsign", "Tanhshrink", "LeakyReLU", "ELU", "CELU", "GELU", "Hardtanh", "Hardshrink", "Softshrink"):
    print(name, getattr(nn, name)()(x))
print(nn.Softplus(2.0, 3.0)(x), nn.GLU()(x), nn.Threshold(0.5, -1.0)(x))
print(nn.Softmax(1)(x), nn.LogSoftmax(0)(x), nn.Softmin(-1)(x))
show(nn.PReLU(), known(2, 4))
show(nn.PReLU(4), known(2, 4))
show(nn.Softmax2d(), known(1, 2, 2, 2))
y = x.clone()
print(nn.ReLU(inplace=True)(y) is y, y)
warned(lambda: nn.Softmax()(x))

# --- losses
a, b = known(3, 4), known(3, 4, k=2)
p, q = torch.softmax(a, 1), torch.softmax(b, 1)
y = torch.tensor([0, 3, 1])
s = torch.sign(known(3, k=4))
for how in ("mean", "sum", "none"):
    print(nn.MSELoss(reduction=how)(a, b), nn.L1Loss(reduction=how)(a, b), nn.HuberLoss(reduction=how, delta=0.5)(a, b))
    print(nn.SmoothL1Loss(reduction=how, beta=0.5)(a, b), nn.CrossEntropyLoss(reduction=how)(a, y))
    print(nn.NLLLoss(reduction=how)(p.log(), y), nn.BCELoss(reduction=how)(p, q))
    print(nn.BCEWithLogitsLoss(reduction=how)(a, q), nn.KLDivLoss(reduction="sum")(p.log(), q))
    print(nn.CosineEmbeddingLoss(margin=0.1, reduction=how)(a, b, s), nn.SoftMarginLoss(reduction=how)(a[:, 0], s))
    print(
        nn.MarginRankingLoss(0.5, reduction=how)(a[:, 0], b[:, 0], s), nn.HingeEmbeddingLoss(reduction=how)(a[:, 0], s)
    )
    print(nn.TripletMarginLoss(reduction=how)(a, b, p), nn.PoissonNLLLoss(reduction=how)(a, q))
    print(nn.TripletMarginWithDistanceLoss(swap=True, reduction=how)(a, b, p))
    print(nn.GaussianNLLLoss(reduction=how)(a, b, p))
w = torch.tensor([1.0, 2.0, 0.5, 3.0])
print(nn.CrossEntropyLoss(w, label_smoothing=0.1)(a, y), nn.CrossEntropyLoss(ignore_index=3)(a, y))
print(nn.NLLLoss(w, ignore_index=0)(p.log(), y), nn.BCEWithLogitsLoss(pos_weight=w)(a, q), nn.BCELoss(w)(p, q))
print(nn.KLDivLoss(reduction="batchmean", log_target=True)(p.log(), q.log()), list(nn.CrossEntropyLoss(w).state_dict()))
print(nn.CosineSimilarity()(a, b), nn.PairwiseDistance(p=1.0, keepdim=True)(a, b))
print(nn.MSELoss(size_average=False).reduction, nn.MSELoss(reduce=False).reduction)

# --- pooling and shapes
x = known(1, 2, 6)
print(nn.MaxPool1d(2)(x), nn.MaxPool1d(3, 2, 1, return_indices=True)(x), nn.AvgPool1d(2)(x), nn.LPPool1d(2, 3)(x))
print(nn.AdaptiveAvgPool1d(4)(x), nn.AdaptiveMaxPool1d(4)(x))
x = known(1, 2, 4, 4)
print(nn.MaxPool2d(2)(x), nn.AvgPool2d(2, padding=1, count_include_pad=False)(x), nn.AdaptiveAvgPool2d(1)(x))
print(nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(x)).shape, nn.PixelUnshuffle(2)(x).shape)
print(nn.Flatten()(x).shape, nn.Unflatten(1, (1, 2))(x).shape, nn.PixelShuffle(2)(known(1, 4, 2, 2)).shape)
print(nn.ZeroPad2d((1, 0, 2, 0))(x).shape, nn.ConstantPad1d(1, 3.0)(x)[0, 0, 0], nn.ReflectionPad1d(2)(x[0])[0, 0])
print(nn.ReplicationPad2d(1)(x)[0, 0, 0], nn.CircularPad1d(1)(x[0])[0, 0])
print(nn.MaxPool3d(2)(known(1, 2, 2, 2)), nn.AvgPool3d(2)(known(1, 2, 2, 2)))

# --- dropout
torch.manual_seed(0)
x = torch.ones(1000)
y = nn.Dropout(0.25)(x)
print(sorted(set(y.tolist())), bool(((y == 0).sum() - 250).abs() < 60))
print(nn.Dropout(0.25).eval()(x) is x, nn.Dropout(1.0)(x).sum(), nn.Dropout(0.0)(x).sum())
y = nn.Dropout2d(0.5)(torch.ones(20, 10, 3, 3))
print(sorted(set(y.sum((2, 3)).reshape(-1).tolist())))
error(lambda: nn.Dropout(1.5))
