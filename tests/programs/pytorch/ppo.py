"""The core of proximal policy optimization: clipped ratios of normal policies, advantages by a reversed scan."""

import torch
import torch.nn as nn
from torch.distributions import Normal


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
        self.critic = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
        self.logstd = nn.Parameter(torch.zeros(1, 2))

    def evaluate(self, x, action):
        mean = self.actor(x)
        probs = Normal(mean, torch.exp(self.logstd.expand_as(mean)))
        return probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x).flatten()


def gae(rewards, values, dones, gamma=0.99, lam=0.95):
    advantages, last = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        after = values[t + 1] if t + 1 < len(rewards) else torch.tensor(0.0)
        delta = rewards[t] + gamma * after * (1.0 - dones[t]) - values[t]
        advantages[t] = last = delta + gamma * lam * (1.0 - dones[t]) * last
    return advantages


def train(run):
    agent = run.fill(Agent())
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-2, eps=1e-5)
    obs, actions, rewards = run.wave(6, 3), run.wave(6, 2, shift=1.0), run.wave(6, shift=2.0)
    dones = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    with torch.no_grad():
        old_logprob, _, values = agent.evaluate(obs, actions)
        advantages = gae(rewards, values, dones)
        returns = advantages + values

    @run.compile
    def step(obs, actions):
        logprob, entropy, value = agent.evaluate(obs, actions)
        logratio = logprob - old_logprob
        ratio = logratio.exp()
        a = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        pg_loss = torch.max(-a * ratio, -a * torch.clamp(ratio, 0.8, 1.2)).mean()
        clipped = values + torch.clamp(value - values, -0.2, 0.2)
        v_loss = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - logratio).mean()
            clip_fraction = ((ratio - 1.0).abs() > 0.2).float().mean()
        return loss, approx_kl, clip_fraction

    run.log(advantages=advantages)
    for _ in range(5):
        loss, approx_kl, clip_fraction = step(obs, actions)
        run.log(loss=loss, approx_kl=approx_kl, clip_fraction=clip_fraction)
    run.state(agent)
