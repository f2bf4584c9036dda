"""Knowledge distillation: softened outputs of a frozen teacher, and its hidden layer taken by a hook."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Features:
    def __init__(self, layer):
        self.value = None
        self.handle = layer.register_forward_hook(self.save)

    def save(self, module, inputs, output):
        self.value = output


def train(run):
    teacher = run.fill(nn.Sequential(nn.Linear(4, 8), nn.Mish(), nn.Linear(8, 3)), scale=2.0)
    student = run.fill(nn.Sequential(nn.Linear(4, 5), nn.ReLU6(), nn.Linear(5, 3)))
    project = run.fill(nn.Linear(5, 8, bias=False))
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False
    wide, narrow = Features(teacher[1]), Features(student[1])
    optimizer = torch.optim.Adam(list(student.parameters()) + list(project.parameters()), lr=0.01)
    T, alpha = 3.0, 0.7

    @run.compile
    def step(x, y):
        optimizer.zero_grad()
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, dim=-1)
        logits = student(x)
        kd = F.kl_div(F.log_softmax(logits / T, dim=-1), soft, reduction="batchmean") * T**2
        hint = F.mse_loss(project(narrow.value), wide.value)
        loss = alpha * kd + (1 - alpha) * F.cross_entropy(logits, y) + 0.1 * hint
        loss.backward()
        optimizer.step()
        return loss, kd

    x, y = run.wave(6, 4), run.labels(6, classes=3)
    for _ in range(5):
        loss, kd = step(x, y)
        run.log(loss=loss, kd=kd)
    narrow.handle.remove()
    run.state(student)
    run.log(project=project.weight, untouched=teacher[0].weight.grad)
