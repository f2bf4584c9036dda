"""An encoder-decoder with `nn.MultiheadAttention`: padding masks, causal masks, averaged weights, Noam's rate."""

import torch
import torch.nn as nn


class Decoder(nn.Module):
    def __init__(self, width=6, heads=2):
        super().__init__()
        self.own = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, kdim=4, vdim=4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.out = nn.Linear(width, 5)

    def forward(self, target, memory, padding):
        causal = torch.triu(torch.ones(target.size(1), target.size(1), dtype=torch.bool), diagonal=1)
        a, _ = self.own(target, target, target, attn_mask=causal, need_weights=False)
        x = self.norm1(target + a)
        b, weights = self.cross(x, memory, memory, key_padding_mask=padding)
        return self.out(self.norm2(x + b)), weights


def train(run):
    model = run.fill(Decoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-3)
    noam = lambda n: 6**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4**-1.5)  # noqa: E731
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, noam)
    target, memory, y = run.wave(2, 3, 6), run.wave(2, 4, 4, shift=1.0), run.labels(2, 3, classes=5)
    padding = torch.tensor([[False, False, True, True], [False, False, False, True]])

    @run.compile
    def step(target, memory):
        optimizer.zero_grad()
        logits, weights = model(target, memory, padding)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), y, reduction="none").sum(dim=1).mean()
        loss.backward()
        optimizer.step()
        return loss, weights

    for _ in range(5):
        loss, weights = step(target, memory)
        scheduler.step()
        run.log(loss=loss, weights=weights)
    run.state(model)
