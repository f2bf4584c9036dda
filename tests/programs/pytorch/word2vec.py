"""Word vectors with negative samples, and a bag of words classified by the mean of its rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Words(nn.Module):
    def __init__(self, vocabulary=9, dim=4):
        super().__init__()
        self.center = nn.Embedding(vocabulary, dim)
        self.context = nn.Embedding(vocabulary, dim, max_norm=1.5)
        self.bag = nn.EmbeddingBag(vocabulary, dim, mode="mean")
        self.fc = nn.Linear(dim, 2)

    def skip_gram(self, center, context, negative):
        u = self.center(center)
        positive = F.logsigmoid((u * self.context(context)).sum(1))
        noise = F.logsigmoid(-torch.bmm(self.context(negative), u.unsqueeze(2)).squeeze(2)).sum(1)
        return -(positive + noise).mean()

    def classify(self, text, offsets):
        return self.fc(self.bag(text, offsets))


def train(run):
    model = run.fill(Words())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    @run.compile
    def step(center, context, negative, text, offsets, y):
        optimizer.zero_grad()
        loss = model.skip_gram(center, context, negative)
        loss = loss + F.cross_entropy(model.classify(text, offsets), y)
        loss.backward()
        optimizer.step()
        return loss

    offsets, y = torch.tensor([0, 3, 4]), torch.tensor([0, 1, 1])
    for n in range(5):
        center, context = run.labels(5, classes=9, shift=n), run.labels(5, classes=9, shift=n + 3)
        negative, text = run.labels(5, 2, classes=9, shift=n + 7), run.labels(8, classes=9, shift=n)
        run.log(loss=step(center, context, negative, text, offsets, y))
    run.state(model)
