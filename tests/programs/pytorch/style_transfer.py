"""Style transfer: the picture is the parameter, losses sit in the network, L-BFGS gets a closure."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram_matrix(target).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def train(run):
    conv = run.fill(nn.Conv2d(1, 3, 3, padding=1)).requires_grad_(False)
    content, style = run.wave(1, 1, 6, 6), run.wave(1, 1, 6, 6, shift=2.0)
    model = nn.Sequential(conv, StyleLoss(conv(style)), nn.ReLU(inplace=False), ContentLoss(F.relu(conv(content))))
    image = content.clone().requires_grad_(True)
    optimizer = optim.LBFGS([image], lr=0.5, max_iter=2)

    @run.compile
    def closure():
        with torch.no_grad():
            image.clamp_(-1, 1)
        optimizer.zero_grad()
        model(image)
        loss = 10 * model[1].loss + model[3].loss
        loss.backward()
        return loss

    for _ in range(5):
        run.log(loss=optimizer.step(closure))
    run.log(image=image, gradient=image.grad)
