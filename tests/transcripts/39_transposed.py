"""Transposed convolutions: outputs, gradients, sizes that are asked for, errors and what is printed."""

nn, F = torch.nn, torch.nn.functional


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


def show(module, x, *size):
    x = x.requires_grad_()
    out = filled(module)(x, *size)
    print(out.shape, out.detach().reshape(-1)[:6], out.detach().abs().sum(), out.grad_fn is not None)
    (out * known(*out.shape, k=0.5)).sum().backward()
    for y in [x, *module.parameters()]:
        print(y.grad.reshape(-1)[:5], y.grad.abs().sum())


# --- one dimension
show(nn.ConvTranspose1d(2, 3, 3), known(2, 2, 5))
show(nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1, output_padding=1), known(2, 2, 5))
show(nn.ConvTranspose1d(2, 4, 2, stride=3, groups=2, bias=False), known(2, 2, 5))
show(nn.ConvTranspose1d(2, 3, 3, dilation=2, output_padding=1), known(2, 5))
show(nn.ConvTranspose1d(2, 3, 4, padding=1, stride=2), known(1, 2, 1))
show(nn.ConvTranspose1d(2, 3, 3, stride=2, padding=2, output_padding=1), known(1, 2, 4))
# --- two and three dimensions
show(nn.ConvTranspose2d(2, 3, 3), known(2, 2, 4, 5))
show(
    nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2), known(2, 4, 3, 2)
)
show(nn.ConvTranspose2d(2, 3, 2, stride=2, dilation=(1, 3)), known(2, 4, 5))
show(nn.ConvTranspose3d(2, 3, 2, stride=(1, 2, 1), padding=(0, 1, 0)), known(1, 2, 2, 3, 2))
# --- functions
x, w = known(2, 4, 5, 5), known(4, 3, 3, 3)
print(F.conv_transpose2d(x, w).shape, F.conv_transpose2d(x, w, stride=2, groups=2).shape)
print(F.conv_transpose2d(x, w, known(3), 2, 1, 1).abs().sum())
print(torch.conv_transpose1d(x[:, :, 0], w[:, :1, 0], padding=1))
print((F.conv2d(known(2, 3, 7, 7), w) * x).sum(), (F.conv_transpose2d(x, w) * known(2, 3, 7, 7)).sum())
# --- sizes
layer = filled(nn.ConvTranspose1d(2, 4, 3, stride=2))
show(layer, known(1, 2, 5), [12])
print(layer(known(1, 2, 5), output_size=[11]).shape, layer(known(2, 5), output_size=[4, 12]).shape)
print(layer(known(1, 2, 5), output_size=(1, 4, 12)).shape)
error(lambda: layer(known(1, 2, 5), output_size=[13]))
error(lambda: layer(known(1, 2, 5), output_size=[4, 12]))
# --- what does not fit
error(lambda: F.conv_transpose1d(known(1, 2, 5), known(2, 3, 3), output_padding=1), until=" output_padding")
error(lambda: F.conv_transpose1d(known(1, 2, 5), known(3, 3, 3)))
error(lambda: F.conv_transpose1d(known(1, 2, 5), known(2, 3, 3), known(4)))
error(lambda: F.conv_transpose2d(known(2, 5), known(3, 3, 3, 3)))
error(lambda: F.conv_transpose1d(known(1, 2, 1), known(2, 3, 2), padding=3), until=": (")
error(lambda: F.conv_transpose1d(known(1, 2, 5), known(2, 3, 3), padding=-1))
error(lambda: nn.ConvTranspose2d(2, 3, 3, padding_mode="reflect"))
error(lambda: nn.ConvTranspose2d(2, 3, 3, groups=2))
# --- printed
print(nn.ConvTranspose1d(2, 4, 3), nn.ConvTranspose3d(1, 2, 2, bias=False))
print(nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1, dilation=(1, 2), groups=2, bias=False))
print({name: tuple(p.shape) for name, p in nn.ConvTranspose2d(4, 6, 3, groups=2).named_parameters()})
