"""A sequence-to-sequence model: GRU encoder, attention decoder, teacher forcing, padding left out of the loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2)
        weights = F.softmax(scores.masked_fill(mask, -1e9), dim=-1).unsqueeze(1)
        return torch.bmm(weights, keys), weights


class Seq2Seq(nn.Module):
    def __init__(self, vocabulary=8, width=4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.attention = Attention(width)
        self.decoder = nn.GRU(2 * width, width, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        keys, hidden = self.encoder(self.embedding(source))
        outputs, token = [], torch.zeros(source.size(0), 1, dtype=torch.long)
        for i in range(target.size(1)):
            context, _ = self.attention(hidden.permute(1, 0, 2), keys, source == 0)
            step_in = torch.cat((self.embedding(token), context), dim=2)
            output, hidden = self.decoder(step_in, hidden)
            outputs.append(self.out(output))
            token = target[:, i].unsqueeze(1)
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)


def train(run):
    model = run.fill(Seq2Seq())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-4)
    criterion = nn.NLLLoss(ignore_index=0)
    source, target = run.labels(2, 4, classes=8), run.labels(2, 3, classes=8, shift=2)

    @run.compile
    def step(source, target):
        optimizer.zero_grad()
        log_probs = model(source, target)
        loss = criterion(log_probs.view(-1, log_probs.size(-1)), target.view(-1))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        run.log(loss=step(source, target))
    run.state(model)
