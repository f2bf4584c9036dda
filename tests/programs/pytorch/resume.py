"""Training stops, is saved by `torch.save`, loaded into new objects, and goes on as if it had not stopped."""

import io

import torch
import torch.nn as nn


def build(run, shift):
    model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))
    if shift is not None:
        run.fill(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, scheduler, step


def train(run):
    x, y = run.wave(6, 3), run.wave(6, 2, shift=1.0)
    model, optimizer, scheduler, step = build(run, 0)
    for _ in range(3):
        run.log(loss=step(x, y))
        scheduler.step()
    buffer = io.BytesIO()
    checkpoint = {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    }
    torch.save(checkpoint, buffer)
    buffer.seek(0)

    model, optimizer, scheduler, step = build(run, None)
    checkpoint = torch.load(buffer, map_location="cpu", weights_only=True)
    keys = model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    run.log(epoch=checkpoint["epoch"], missing=len(keys.missing_keys))
    for _ in range(2):
        run.log(loss=step(x, y), lr=scheduler.get_last_lr()[0])
        scheduler.step()
    run.state(model)
    run.log(
        state=[optimizer.state_dict()["state"][n][key] for n in (0, 4) for key in ("step", "exp_avg", "exp_avg_sq")]
    )
