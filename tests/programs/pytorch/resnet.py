"""Residual blocks: `apply` with `isinstance`, a shortcut as `nn.Sequential()`, a one-cycle rate, weight decay."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, self.expansion * planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        out = self.bn1(self.conv1(x))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    def __init__(self, block, blocks, classes=3):
        super().__init__()
        self.in_planes = 1
        self.layers = nn.Sequential(*[self._make_layer(block, planes, stride) for planes, stride in blocks])
        self.linear = nn.Linear(blocks[-1][0] * block.expansion, classes)
        self.apply(self._init)

    def _make_layer(self, block, planes, stride):
        layer = block(self.in_planes, planes, stride)
        self.in_planes = planes * block.expansion
        return layer

    def _init(self, m):
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.constant_(m.weight, 1)
            nn.init.constant_(m.bias, 0)

    def forward(self, x):
        out = self.layers(x)
        out = F.avg_pool2d(out, out.shape[-1])
        return self.linear(out.view(out.size(0), -1))


def train(run):
    net = run.fill(ResNet(BasicBlock, [(2, 1), (4, 2)]))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=6)

    @run.compile
    def step(inputs, targets):
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        _, predicted = outputs.max(1)
        return loss, predicted.eq(targets).sum()

    inputs, targets = run.wave(3, 1, 6, 6), run.labels(3, classes=3)
    for _ in range(5):
        loss, correct = step(inputs, targets)
        scheduler.step()
        run.log(loss=loss.item(), correct=correct.item(), lr=optimizer.param_groups[0]["lr"])
    run.state(net)
    run.log(count=sum(p.numel() for p in net.parameters() if p.requires_grad))
