"""Connectionist temporal classification over outputs of a small recognizer."""

import torch
import torch.nn as nn


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        h = torch.clamp(self.norm(self.conv(x)), 0, 20)
        return self.fc(h.permute(2, 0, 1)).log_softmax(2)


def train(run):
    model = run.fill(Recognizer())
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    targets = torch.tensor([[1, 2, 2, 3], [4, 1, 0, 0], [3, 3, 3, 0]])
    input_lengths, target_lengths = torch.tensor([7, 6, 5]), torch.tensor([4, 2, 3])

    @run.compile
    def step(x):
        optimizer.zero_grad()
        log_probs = model(x)
        loss = criterion(log_probs, targets, input_lengths, target_lengths)
        loss.backward()
        optimizer.step()
        return loss

    x = run.wave(3, 3, 7)
    for _ in range(5):
        run.log(loss=step(x))
    run.state(model)
