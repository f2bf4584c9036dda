"""A convolutional network for small pictures, with batch normalization, pooling and momentum."""

import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, kernel_size=3, stride=2)
        self.fc = nn.Linear(6, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.relu(self.conv2(x))
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return F.log_softmax(self.fc(x), dim=1)


def train(run):
    model = run.fill(Net())
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)

    @run.compile
    def step(images, targets):
        model.train()
        optimizer.zero_grad()
        output = model(images)
        loss = F.nll_loss(output, targets)
        loss.backward()
        optimizer.step()
        correct = output.argmax(dim=1).eq(targets).sum()
        return loss, correct

    images, targets = run.wave(6, 1, 12, 12), run.labels(6, classes=4)
    for _ in range(5):
        loss, correct = step(images, targets)
        run.log(loss=loss, correct=correct)
    run.state(model)
    model.eval()
    run.log(output=model(images))
