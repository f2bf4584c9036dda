"""Contrastive learning: InfoNCE over two views, a queue of keys, and a momentum encoder."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MoCo(nn.Module):
    def __init__(self, dim=4, size=8, momentum=0.9, temperature=0.2):
        super().__init__()
        self.K, self.m, self.T = size, momentum, temperature
        self.encoder_q, self.encoder_k = nn.Linear(5, dim), nn.Linear(5, dim)
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        self.register_buffer("queue", torch.zeros(dim, size))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * self.m + q.data * (1.0 - self.m)

    @torch.no_grad()
    def _enqueue(self, keys):
        batch, ptr = keys.shape[0], int(self.queue_ptr)
        self.queue[:, ptr : ptr + batch] = keys.T
        self.queue_ptr[0] = (ptr + batch) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        labels = torch.zeros(logits.shape[0], dtype=torch.long)
        self._enqueue(k)
        return logits, labels


def simclr(z, temperature=0.5):
    z = F.normalize(z, dim=1)
    sim = z @ z.T / temperature
    sim.fill_diagonal_(float("-inf"))
    n = z.shape[0] // 2
    target = torch.cat([torch.arange(n) + n, torch.arange(n)])
    return F.cross_entropy(sim, target)


def train(run):
    model = run.fill(MoCo())
    with torch.no_grad():
        model.queue.copy_(F.normalize(run.wave(4, 8), dim=0))
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=0.3, momentum=0.9)

    @run.compile
    def step(im_q, im_k):
        logits, labels = model(im_q, im_k)
        loss = F.cross_entropy(logits, labels) + simclr(model.encoder_q(torch.cat([im_q, im_k])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for n in range(5):
        run.log(loss=step(run.wave(4, 5, shift=n), run.wave(4, 5, shift=n + 0.2)))
    run.state(model)
