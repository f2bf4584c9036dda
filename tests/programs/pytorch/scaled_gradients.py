"""Mixed precision on a CPU: `autocast` and a `GradScaler` that does nothing, with a device chosen as programs do."""

import torch
import torch.nn as nn


def train(run):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = run.fill(nn.Sequential(nn.Linear(3, 6), nn.CELU(), nn.Linear(6, 1))).to(device)
    optimizer = torch.optim.ASGD(model.parameters(), lr=0.05)
    use_amp = device.type == "cuda"
    scaler = torch.amp.GradScaler(device.type, enabled=use_amp)

    @run.compile
    def step(x, y):
        with torch.autocast(device_type=device.type, enabled=use_amp):
            loss = nn.functional.poisson_nll_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    x = run.wave(5, 3).to(device, non_blocking=True)
    y = run.labels(5, 1, classes=4).to(device=device, dtype=x.dtype)
    for _ in range(5):
        run.log(loss=step(x, y))
    run.state(model)
