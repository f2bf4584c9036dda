"""A two-layer LSTM that forecasts a series."""

import torch
import torch.nn as nn


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(input_size=2, hidden_size=5, num_layers=2, batch_first=True)
        self.linear = nn.Linear(5, 2)

    def forward(self, x):
        out, (h, c) = self.lstm(x)
        return self.linear(out[:, -1]), c


def train(run):
    model = run.fill(Forecast())
    criterion = nn.SmoothL1Loss(beta=0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        prediction, cells = model(x)
        loss = criterion(prediction, y)
        loss.backward()
        optimizer.step()
        return loss, cells

    x, y = run.wave(3, 6, 2), run.wave(3, 2, shift=1.0)
    for _ in range(5):
        loss, cells = step(x, y)
        scheduler.step()
        run.log(loss=loss, cells=cells, lr=scheduler.get_last_lr()[0])
    run.state(model)
