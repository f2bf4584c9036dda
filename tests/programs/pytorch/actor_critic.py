"""The core of actor-critic: a shared trunk, discounted returns by a loop, log-probabilities and an entropy."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(3, 8)
        self.action_head, self.value_head = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x):
        x = F.relu(self.affine(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def returns_of(rewards, gamma):
    total, returns = 0, []
    for r in rewards[::-1]:
        total = r + gamma * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + 1e-6)


def train(run):
    model = run.fill(Policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)

    @run.compile
    def step(states, actions, returns):
        probs, values = model(states)
        m = Categorical(probs)
        advantage = returns - values.squeeze(-1).detach()
        policy_loss = -(m.log_prob(actions) * advantage).sum()
        value_loss = F.smooth_l1_loss(values.squeeze(-1), returns, reduction="sum")
        optimizer.zero_grad()
        loss = policy_loss + value_loss - 0.01 * m.entropy().sum()
        loss.backward()
        optimizer.step()
        return loss, m.probs

    for n in range(5):
        rewards = [1.0, 0.0, -0.5, 2.0, 0.25 * n]
        loss, probs = step(run.wave(5, 3, shift=n), run.labels(5, classes=4, shift=n), returns_of(rewards, 0.9))
        run.log(loss=loss, probs=probs)
    run.state(model)
