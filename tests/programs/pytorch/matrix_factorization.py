"""Matrix factorization: embeddings with sparse gradients where PyTorch has them, biases, a mask, a ranking loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MF(nn.Module):
    def __init__(self, users, items, k=3):
        super().__init__()
        self.P, self.Q = nn.Embedding(users, k), nn.Embedding.from_pretrained(torch.ones(items, k), freeze=False)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mu = nn.Parameter(torch.tensor(0.5))

    def forward(self, user, item):
        dot = (self.P(user) * self.Q(item)).sum(dim=-1, keepdim=True)
        return (dot + self.user_bias(user) + self.item_bias(item) + self.mu).squeeze()


def train(run):
    model = run.fill(MF(5, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-3)
    ratings = run.labels(5, 6, classes=6).to(torch.get_default_dtype())
    users, items = torch.nonzero(ratings, as_tuple=True)
    unseen = torch.where(ratings == 0)[1][: len(users) // 4]

    @run.compile
    def step(users, items, target, unseen):
        optimizer.zero_grad()
        loss = F.mse_loss(model(users, items), target)
        some = users[: len(unseen)]
        loss = loss + F.margin_ranking_loss(
            model(some, items[: len(unseen)]), model(some, unseen), torch.ones(len(unseen)), margin=0.5
        )
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        run.log(loss=step(users, items, ratings[users, items], unseen))
    run.state(model)
    best = (model.P.weight @ model.Q.weight.T).masked_fill(ratings > 0, -torch.inf).argmax(dim=1)
    run.log(best=best)
