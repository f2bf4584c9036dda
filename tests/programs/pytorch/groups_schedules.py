"""Parameter groups with their own rates, frozen layers that thaw, chained and sequential schedules, a plateau."""

import torch
import torch.nn as nn
from torch.optim import lr_scheduler


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, 5), nn.ELU(), nn.Linear(5, 5), nn.Softplus())
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


def train(run):
    model = run.fill(Tagger())
    for p in model.backbone[0].parameters():
        p.requires_grad = False
    optimizer = torch.optim.SGD([{"params": model.head.parameters()}], lr=0.2, momentum=0.8)
    optimizer.add_param_group({"params": model.backbone.parameters(), "lr": 0.02, "momentum": 0.5, "nesterov": True})
    schedule = lr_scheduler.SequentialLR(
        optimizer,
        schedulers=[lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2), lr_scheduler.PolynomialLR(optimizer, 4)],
        milestones=[2],
    )
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.multi_margin_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = run.wave(6, 3), run.labels(6, classes=3)
    for n in range(5):
        if n == 3:
            model.backbone.requires_grad_(True)
        loss = step(x, y)
        schedule.step() if n < 4 else plateau.step(loss.item())
        run.log(loss=loss, lrs=[group["lr"] for group in optimizer.param_groups])
    run.state(model)
