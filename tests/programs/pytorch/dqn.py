"""The core of deep Q-learning: a target network with soft updates, gathered values, a Huber loss, clipped values."""

import torch
import torch.nn as nn
import torch.optim as optim


class DQN(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(observations, 8), nn.Linear(8, actions)

    def forward(self, x):
        return self.layer2(torch.relu(self.layer1(x)))


GAMMA, TAU = 0.9, 0.1


def train(run):
    policy, target = run.fill(DQN(3, 2)), DQN(3, 2)
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    criterion = nn.SmoothL1Loss()

    @run.compile
    def optimize(state, action, reward, next_state, done):
        values = policy(state).gather(1, action)
        next_values = torch.zeros(state.shape[0])
        with torch.no_grad():
            next_values[~done] = target(next_state[~done]).max(1).values
        expected = next_values * GAMMA + reward
        loss = criterion(values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 0.05)
        optimizer.step()
        return loss

    @run.compile
    def soft_update():
        weights, new = target.state_dict(), policy.state_dict()
        for key in new:
            weights[key] = new[key] * TAU + weights[key] * (1 - TAU)
        target.load_state_dict(weights)

    done = torch.tensor([False, True, False, False, True, False])
    for n in range(5):
        state, next_state = run.wave(6, 3, shift=n), run.wave(6, 3, shift=n + 0.5)
        loss = optimize(state, run.labels(6, 1, classes=2, shift=n), run.wave(6), next_state, done)
        soft_update()
        run.log(loss=loss)
    run.state(policy, "policy.")
    run.state(target, "target.")
