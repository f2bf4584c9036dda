"""A siamese network with triplet and contrastive losses."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        d = F.pairwise_distance(a, b, keepdim=True)
        return torch.mean(same * d.pow(2) + (1 - same) * torch.clamp(self.margin - d, min=0.0).pow(2))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(1, 3, 3), nn.PReLU(), nn.InstanceNorm2d(3, affine=True), nn.AvgPool2d(2)
        )
        self.fc = nn.Linear(3 * 3 * 3, 4)

    def forward_once(self, x):
        h = self.cnn(x)
        return F.normalize(self.fc(h.view(h.size()[0], -1)))

    def forward(self, *images):
        return tuple(self.forward_once(image) for image in images)


def train(run):
    model = run.fill(Embedder())
    triplet, contrastive = nn.TripletMarginLoss(margin=0.5), ContrastiveLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @run.compile
    def step(anchor, positive, negative, same):
        a, p, n = model(anchor, positive, negative)
        loss = triplet(a, p, n) + contrastive(a, p, same) + 0.1 * F.cosine_embedding_loss(a, n, -torch.ones(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    same = torch.tensor([[1.0], [0.0], [1.0], [1.0]])
    for n in range(5):
        images = [run.wave(4, 1, 6, 6, shift=n + 0.3 * k) for k in range(3)]
        run.log(loss=step(*images, same))
    run.state(model)
