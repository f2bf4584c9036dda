"""A small U-Net: skip connections, resampling by `interpolate`, group normalization, a Dice loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.GroupNorm(2, outputs), nn.SiLU(inplace=True)
        )

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.up = DoubleConv(1, 2), DoubleConv(2, 4), DoubleConv(6, 2)
        self.pool = nn.MaxPool2d(2)
        self.outc = nn.Conv2d(2, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = F.interpolate(self.down(self.pool(a)), scale_factor=2, mode="bilinear", align_corners=True)
        dy, dx = a.size(2) - b.size(2), a.size(3) - b.size(3)
        b = F.pad(b, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.outc(self.up(torch.cat([a, b], dim=1)))


def dice_loss(logits, mask, smooth=1.0):
    p = torch.sigmoid(logits).flatten(1)
    m = mask.flatten(1)
    return 1 - ((2 * (p * m).sum(1) + smooth) / (p.sum(1) + m.sum(1) + smooth)).mean()


def train(run):
    model = run.fill(UNet())
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0]))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-4, momentum=0.9)

    @run.compile
    def step(images, masks):
        optimizer.zero_grad()
        logits = model(images)
        loss = criterion(logits, masks) + dice_loss(logits, masks)
        loss.backward()
        optimizer.step()
        return loss

    images = run.wave(2, 1, 7, 6)
    masks = (images.roll(1, dims=-1) > 0.2).to(images.dtype)
    for _ in range(5):
        run.log(loss=step(images, masks))
    run.state(model)
