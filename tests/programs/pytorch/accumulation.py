"""Gradient accumulation over micro-batches, clipping by norm, a warm-up, a skipped step."""

import torch
import torch.nn as nn


def train(run):
    model = run.fill(nn.Sequential(nn.Linear(4, 6), nn.Hardswish(), nn.Linear(6, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
    warmup = lambda n: min(1.0, (n + 1) / 4)  # noqa: E731
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=warmup)
    accumulate = 2

    @run.compile
    def micro_batch(x, y):
        loss = nn.functional.mse_loss(model(x), y) / accumulate
        loss.backward()
        return loss.detach()

    @run.compile
    def update():
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5, norm_type=2.0)
        optimizer.step()
        optimizer.zero_grad()
        return norm

    x, y = run.wave(8, 4), run.wave(8, 2, shift=0.5)
    for n in range(5):
        total = 0.0
        for xs, ys in zip(x.chunk(accumulate), y.chunk(accumulate)):
            total += micro_batch(xs + 0.1 * n, ys).item()
        norm = update()
        if torch.isfinite(norm):
            scheduler.step()
        run.log(loss=total, norm=norm, lr=optimizer.param_groups[0]["lr"])
    run.state(model)
