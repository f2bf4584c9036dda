"""A bidirectional GRU that classifies sequences, with label smoothing and exponential decay of the rate."""

import torch
from torch import nn, optim


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, bidirectional=True)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        _, h = self.gru(x)
        both = torch.cat((h[-2], h[-1]), dim=1)
        return self.out(self.norm(both))


def train(run):
    model = run.fill(Classifier())
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.tensor([1.0, 2.0, 0.5]))
    optimizer = optim.NAdam(model.parameters(), lr=0.02)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)

    @run.compile
    def step(x, y):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = run.wave(5, 4, 3), run.labels(4, classes=3)
    for _ in range(5):
        run.log(loss=step(x, y))
        scheduler.step()
    run.state(model)
    run.log(lr=optimizer.param_groups[0]["lr"])
