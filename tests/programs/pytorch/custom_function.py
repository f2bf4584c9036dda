"""Custom `autograd.Function`s: a straight-through estimator, gradient reversal, a function with saved results."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, codebook):
        distances = (x.unsqueeze(1) - codebook.unsqueeze(0)).pow(2).sum(-1)
        indices = distances.argmin(1)
        ctx.save_for_backward(indices, codebook)
        ctx.mark_non_differentiable(indices)
        return codebook.index_select(0, indices), indices

    @staticmethod
    def backward(ctx, grad_output, _):
        indices, codebook = ctx.saved_tensors
        grad_codebook = None
        if ctx.needs_input_grad[1]:
            grad_codebook = torch.zeros_like(codebook).index_add_(0, indices, grad_output)
        return grad_output.clone(), grad_codebook


class ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.alpha, None


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x * torch.sigmoid(x)
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * (s * (1 + x * (1 - s)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.domain = nn.Linear(4, 3), nn.Linear(3, 4), nn.Linear(3, 2)
        self.codebook = nn.Parameter(torch.zeros(5, 3))

    def forward(self, x, alpha):
        z = Swish.apply(self.encoder(x))
        quantized, indices = Quantize.apply(z, self.codebook)
        domain = self.domain(ReverseGradient.apply(z, alpha))
        commitment = F.mse_loss(z, quantized.detach()) * 0.25 + F.mse_loss(quantized, z.detach())
        return self.decoder(quantized), indices, domain, commitment


def train(run):
    model = run.fill(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

    @run.compile
    def step(x, domains):
        optimizer.zero_grad()
        out, indices, domain, commitment = model(x, 0.3)
        loss = F.mse_loss(out, x) + F.cross_entropy(domain, domains) + commitment
        loss.backward()
        optimizer.step()
        return loss, indices

    x, domains = run.wave(6, 4), run.labels(6, classes=2)
    for _ in range(5):
        loss, indices = step(x, domains)
        run.log(loss=loss, indices=indices)
    run.state(model)
