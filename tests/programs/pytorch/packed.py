"""Sequences of several lengths, packed for an LSTM, padded again and averaged."""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 4, padding_idx=0)
        self.lstm = nn.LSTM(4, 3, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(6, 2)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        out, (h, _) = self.lstm(packed)
        out, sizes = pad_packed_sequence(out, batch_first=True, total_length=tokens.shape[1])
        mean = out.sum(1) / sizes.unsqueeze(1)
        return self.fc(mean + torch.cat([h[0], h[1]], dim=1))


def train(run):
    model = run.fill(Encoder())
    with torch.no_grad():
        model.embedding.weight[0].fill_(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    texts = [torch.tensor(t) for t in ([3, 1, 4], [1, 5, 2, 6, 5], [3, 5], [7, 7, 2, 3])]
    lengths = torch.tensor([len(t) for t in texts])
    tokens, y = pad_sequence(texts, batch_first=True), run.labels(4, classes=2)

    @run.compile
    def step(tokens, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens, lengths), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        run.log(loss=step(tokens, y))
    run.state(model)
