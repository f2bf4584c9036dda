"""torch.nn.functional as tutorials use it."""

F = torch.nn.functional
x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
logits = torch.tensor([[1.0, 2.0, 0.5], [0.1, -0.3, 0.8]], requires_grad=True)
labels = torch.tensor([1, 2])


def value_and_grad(value, *inputs):
    print(value.detach(), *torch.autograd.grad(value.sum(), inputs))


# --- relu and its relatives
for name in ("relu", "relu6", "leaky_relu", "elu", "selu", "silu", "gelu", "softplus", "softsign", "tanh", "sigmoid"):
    print(name)
    value_and_grad(getattr(F, name)(x), x)

# --- more activations
for name in ("hardtanh", "hardsigmoid", "hardswish", "logsigmoid", "tanhshrink", "softshrink", "hardshrink", "mish"):
    print(name)
    value_and_grad(getattr(F, name)(x + 0.3), x)
print(F.leaky_relu(x, 0.2).detach(), F.threshold(x, 0.5, 9.0).detach(), F.elu(x, alpha=2.0).detach())

# --- softmax
value_and_grad(F.softmax(x, dim=0) * torch.tensor([1.0, 2.0, 3.0]), x)
value_and_grad(F.log_softmax(x, dim=-1) * torch.tensor([1.0, 0.0, 0.0]), x)
print(F.softmax(logits, dim=1).sum(dim=1).detach(), F.softmin(x, dim=0).detach())

# --- mean squared error
y = torch.tensor([1.0, 1.0, 1.0])
value_and_grad(F.mse_loss(x, y), x)
value_and_grad(F.mse_loss(x, y, reduction="sum"), x)
print(F.mse_loss(x, y, reduction="none"))

# --- other losses of regression
y = torch.tensor([1.0, 1.0, 1.0])
value_and_grad(F.l1_loss(x, y), x)
value_and_grad(F.smooth_l1_loss(x, y), x)
value_and_grad(F.huber_loss(x, y, delta=0.5), x)

# --- binary cross entropy
p = torch.tensor([0.2, 0.5, 0.9], requires_grad=True)
t = torch.tensor([0.0, 1.0, 1.0])
value_and_grad(F.binary_cross_entropy(p, t), p)
value_and_grad(F.binary_cross_entropy_with_logits(x, t), x)
print(F.binary_cross_entropy_with_logits(x, t, reduction="sum"))
value_and_grad(F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor([1.0, 2.0, 3.0])), x)
value_and_grad(F.binary_cross_entropy_with_logits(torch.tensor([-800.0, 800.0], requires_grad=True) + x[:2], t[:2]), x)

# --- cross entropy
value_and_grad(F.cross_entropy(logits, labels), logits)
value_and_grad(F.cross_entropy(logits, labels, reduction="sum"), logits)
print(F.cross_entropy(logits, labels, reduction="none").detach())
value_and_grad(F.nll_loss(F.log_softmax(logits, dim=1), labels), logits)

# --- options of cross entropy
print(F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2.0, 3.0])).detach())
print(F.cross_entropy(logits, torch.tensor([1, -100])).detach())
print(F.cross_entropy(logits, labels, label_smoothing=0.1).detach())
print(F.cross_entropy(logits, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])).detach())

# --- linear
w = torch.tensor([[1.0, 0.0, 2.0], [0.5, -1.0, 0.0]], requires_grad=True)
b = torch.tensor([10.0, 20.0], requires_grad=True)
value_and_grad(F.linear(x, w, b), x, w, b)
print(F.linear(logits, w))

# --- layer norm
value_and_grad(F.layer_norm(logits, (3,)) * torch.tensor([1.0, 2.0, 3.0]), logits)
w, b = torch.full((3,), 2.0, requires_grad=True), torch.ones(3, requires_grad=True)
value_and_grad(F.layer_norm(logits, (3,), w, b) * logits.detach(), w, b)

# --- dropout
print(F.dropout(x, training=False).detach())
torch.manual_seed(0)
y = F.dropout(torch.ones(1000, requires_grad=True), 0.5)
print(sorted(set(y.tolist())), bool(300 < (y > 0).sum() < 700), y.requires_grad)

# --- normalize and cosine similarity
value_and_grad(F.normalize(logits, dim=1) * torch.tensor([1.0, 2.0, 3.0]), logits)
print(F.cosine_similarity(logits, logits.flip(1), dim=1).detach())

# --- one hot and embedding
print(F.one_hot(torch.tensor([0, 2]), 3))
table = torch.arange(6.0).reshape(3, 2).requires_grad_()
value_and_grad(F.embedding(torch.tensor([0, 2, 2]), table), table)

# --- convolution and pooling
image = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
kernel = torch.tensor([[[[1.0, 0.0], [0.0, -1.0]]]], requires_grad=True)
value_and_grad(F.conv2d(image, kernel), image, kernel)
value_and_grad(F.max_pool2d(image, 2), image)
value_and_grad(F.avg_pool2d(image, 2), image)

# --- padding
value_and_grad(F.pad(logits, (1, 2)), logits)
print(F.pad(logits, (1, 0, 0, 1), value=9.0).detach())

# --- shapes that do not fit
error(lambda: F.linear(torch.ones(2), torch.ones(3, 3)), first="mat1 and mat2 shapes cannot be multiplied")
warned(
    lambda: F.mse_loss(torch.ones(2, 1), torch.ones(2)), first="Using a target size (torch.Size([2])) that is different"
)
error(
    lambda: F.cross_entropy(logits, torch.tensor([1])),
    first="Expected input batch_size (2) to match target batch_size (1)",
)
