"""Optimizers written by users: Lion and LAMB as subclasses of `Optimizer`, with state and a closure."""

import torch
import torch.nn as nn
from torch.optim.optimizer import Optimizer


class Lion(Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        if lr <= 0:
            raise ValueError("lr must be positive")
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                update = state["exp_avg"].clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)
        return loss


class Lamb(Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad.data, self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p.data), torch.zeros_like(p.data)
                beta1, beta2 = group["betas"]
                state["step"] += 1
                state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                weight_norm = p.data.pow(2).sum().sqrt().clamp(0, 10)
                adam_step = state["exp_avg"] / state["exp_avg_sq"].sqrt().add(group["eps"])
                adam_step.add_(p.data, alpha=group["weight_decay"])
                adam_norm = adam_step.pow(2).sum().sqrt()
                trust = 1 if weight_norm == 0 or adam_norm == 0 else weight_norm / adam_norm
                p.data.add_(adam_step * (-group["lr"] * trust))


def train(run):
    body, head = run.fill(nn.Linear(4, 5)), run.fill(nn.Linear(5, 2))
    lion, lamb = Lion(body.parameters(), lr=1e-2, weight_decay=0.1), Lamb(head.parameters())
    x, y = run.wave(6, 4), run.wave(6, 2, shift=1.0)

    @run.compile
    def step():
        lion.zero_grad()
        lamb.zero_grad()

        def closure():
            loss = nn.functional.mse_loss(head(torch.tanh(body(x))), y)
            loss.backward()
            return loss

        loss = lion.step(closure)
        lamb.step()
        return loss

    for _ in range(5):
        run.log(loss=step())
    run.state(body, "body.")
    run.state(head, "head.")
    run.log(average=lion.state[body.weight]["exp_avg"], steps=lamb.state[head.bias]["step"])
