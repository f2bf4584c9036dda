"""Attention, transformers and recurrent networks, of parameters that are known."""

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


def show(module, *inputs, **options):
    inputs = [x.requires_grad_() for x in inputs]
    out = filled(module)(*inputs, **options)
    total = 0.0
    for k, y in enumerate(flat(out)):
        print(y.shape, y.detach().reshape(-1)[:6], (y.detach() ** 2).sum())
        total = total + (y * known(*y.shape, k=k)).sum()
    total.backward()
    for x in [*inputs, *module.parameters()]:
        print(x.grad.reshape(-1)[:4] + 0.0, x.grad.abs().sum())


def flat(out):
    if isinstance(out, torch.Tensor):
        return [out]
    return [y for each in out if each is not None for y in flat(each)]


# --- attention
x, y = known(4, 2, 6), known(5, 2, 6, k=1)
show(nn.MultiheadAttention(6, 2), x, x, x)
show(
    nn.MultiheadAttention(6, 3, bias=False, batch_first=True), known(2, 4, 6), known(2, 5, 6, k=1), known(2, 5, 6, k=2)
)
show(nn.MultiheadAttention(6, 2, kdim=3, vdim=5), known(4, 2, 6), known(5, 2, 3), known(5, 2, 5))
show(nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True), known(4, 2, 6), y, y)
show(nn.MultiheadAttention(6, 2), known(4, 6), known(5, 6), known(5, 6, k=1))
show(nn.MultiheadAttention(6, 2), known(4, 2, 6), y, y, need_weights=False)
show(nn.MultiheadAttention(6, 2), known(4, 2, 6), y, y, average_attn_weights=False)

# --- masks of attention
x = known(4, 2, 6)
hidden = torch.tensor([[False, False, True, False], [False, True, False, False]])
causal = nn.Transformer.generate_square_subsequent_mask(4)
print(causal)
for needed in (True, False):
    show(nn.MultiheadAttention(6, 2), known(4, 2, 6), x, x, key_padding_mask=hidden, need_weights=needed)
    show(nn.MultiheadAttention(6, 2), known(4, 2, 6), x, x, attn_mask=causal, need_weights=needed)
    show(nn.MultiheadAttention(6, 2), known(4, 2, 6), x, x, attn_mask=known(4, 4, 4), need_weights=needed)
    show(nn.MultiheadAttention(6, 2), known(4, 2, 6), x, x, attn_mask=causal, is_causal=True, need_weights=needed)
extra = {"add_bias_kv": True, "add_zero_attn": True}
show(nn.MultiheadAttention(6, 2, **extra), known(4, 2, 6), x, x, attn_mask=causal < 0, key_padding_mask=hidden)
error(lambda: nn.MultiheadAttention(6, 2)(x, x, x, is_causal=True))
error(lambda: nn.MultiheadAttention(6, 4))
error(lambda: nn.MultiheadAttention(6, 2)(x, x, x, attn_mask=torch.zeros(3, 3)))

# --- layers of transformers
x, memory = known(4, 2, 6), known(5, 2, 6, k=1)
causal = nn.Transformer.generate_square_subsequent_mask(4)
for options in ({}, {"norm_first": True}, {"activation": "gelu", "bias": False}):
    show(nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, **options), known(4, 2, 6))
    show(nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0, **options), known(4, 2, 6), known(5, 2, 6, k=1))
show(nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True), known(2, 4, 6), src_mask=causal)
layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0)
show(
    nn.TransformerEncoder(layer, 2, nn.LayerNorm(6), enable_nested_tensor=False),
    known(4, 2, 6),
    mask=causal,
    is_causal=True,
)
layer = nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0)
show(nn.TransformerDecoder(layer, 2), known(4, 2, 6), known(5, 2, 6), tgt_mask=causal)
model = nn.Transformer(6, 2, 1, 1, 8, dropout=0.0, batch_first=True)
show(model, known(2, 5, 6), known(2, 4, 6), tgt_mask=causal)
print(list(model.state_dict()))
error(lambda: model(known(2, 5, 4), known(2, 4, 6)))
error(lambda: model(known(1, 5, 6), known(2, 4, 6)))
error(lambda: nn.TransformerEncoderLayer(6, 2, activation="x"))

# --- recurrent networks
show(nn.RNN(3, 4), known(5, 2, 3))
show(nn.RNN(3, 4, nonlinearity="relu", bias=False, num_layers=2), known(5, 2, 3), known(2, 2, 4))
show(nn.LSTM(3, 4), known(5, 2, 3))
show(nn.LSTM(3, 4, num_layers=2, batch_first=True, bidirectional=True), known(2, 5, 3))
show(nn.LSTM(3, 4), known(5, 3))
show(nn.GRU(3, 4), known(5, 2, 3))
show(nn.GRU(3, 4, num_layers=2, bidirectional=True), known(5, 2, 3), known(4, 2, 4))
show(nn.GRU(3, 4), known(5, 3), known(1, 4))
lstm = filled(nn.LSTM(3, 4))
out, (h, c) = lstm(known(5, 2, 3), (known(1, 2, 4), known(1, 2, 4, k=1)))
print(out[-1], h, c)
print(lstm, list(nn.GRU(3, 4, bidirectional=True).state_dict()))
print(nn.RNN(3, 4, num_layers=2, batch_first=True, bidirectional=True, dropout=0.5), nn.GRU(3, 4, bias=False))
error(lambda: lstm(known(5, 2, 4)))
error(lambda: lstm(known(3)))
error(lambda: lstm(known(5, 2, 3), (known(1, 2, 5), known(1, 2, 4))))
error(lambda: nn.GRU(3, 4)(known(5, 2, 3), known(2, 2, 4)))
error(lambda: nn.RNN(3, 4, nonlinearity="x"))
warned(lambda: nn.GRU(3, 4, dropout=0.5))

# --- cells
show(nn.RNNCell(3, 4), known(2, 3), known(2, 4))
show(nn.RNNCell(3, 4, nonlinearity="relu"), known(2, 3), known(2, 4))
show(nn.GRUCell(3, 4), known(2, 3), known(2, 4))
show(nn.GRUCell(3, 4, bias=False), known(3))
show(nn.LSTMCell(3, 4), known(2, 3))
h, c = filled(nn.LSTMCell(3, 4))(known(2, 3), (known(2, 4), known(2, 4, k=1)))
print(h, c, nn.LSTMCell(3, 4), nn.GRUCell(3, 4, bias=False), nn.RNNCell(3, 4, nonlinearity="relu"))
error(lambda: nn.GRUCell(3, 4)(known(2, 4)))
error(lambda: nn.GRUCell(3, 4)(known(2, 3), known(2, 5)))
