"""A spatial transformer: an affine grid from a localization network, and a picture sampled there."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class STN(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(True))
        self.fc_loc = nn.Sequential(nn.Linear(8, 6))
        self.classify = nn.Linear(36, 3)

    def forward(self, x):
        theta = self.fc_loc(self.localization(x).view(-1, 8)).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        x = F.grid_sample(x, grid, align_corners=False, padding_mode="border")
        return F.log_softmax(self.classify(x.flatten(1)), dim=1)


def train(run):
    model = run.fill(STN())
    with torch.no_grad():
        model.fc_loc[0].weight.mul_(0.1)
        model.fc_loc[0].bias.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = run.wave(3, 1, 6, 6), run.labels(3, classes=3)
    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(model)
