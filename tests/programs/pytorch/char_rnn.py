"""A language model of characters with an Elman cell, and a hidden state from step to step."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CharRNN(nn.Module):
    def __init__(self, vocabulary, hidden):
        super().__init__()
        self.hidden_size = hidden
        self.embed = nn.Embedding(vocabulary, 5)
        self.cell = nn.RNNCell(5, hidden)
        self.head = nn.Linear(hidden, vocabulary)

    def init_hidden(self, batch):
        return torch.zeros(batch, self.hidden_size)

    def forward(self, tokens, h):
        logits = []
        for t in range(tokens.shape[1]):
            h = self.cell(self.embed(tokens[:, t]), h)
            logits.append(self.head(h))
        return torch.stack(logits, dim=1), h


def train(run):
    model = run.fill(CharRNN(7, 6))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

    @run.compile
    def step(tokens, targets, h):
        optimizer.zero_grad(set_to_none=True)
        logits, h = model(tokens, h)
        loss = F.cross_entropy(logits.reshape(-1, 7), targets.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss, h.detach()

    text = run.labels(2, 31, classes=7)
    h = model.init_hidden(2)
    for n in range(5):
        chunk = text[:, 6 * n : 6 * n + 7]
        loss, h = step(chunk[:, :-1], chunk[:, 1:], h)
        run.log(loss=loss, h=h)
    run.state(model)
