"""Small random programs of Tensors, as text, and what PyTorch makes of them.

`python tests/samples/torch_programs.py` runs them with PyTorch, which the tests do not need, and writes
`data/torch_programs.json`: for each program, how far it came, the error that ended it, and the Tensors that there were
before: values, whether they are leaves and require grad, the names of their nodes, versions, gradients.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "torch_programs.json"
COUNT = 150

OF_ONE = """
{x}.exp()|{x}.sin()|{x}*2.5|{x}*{x}|-{x}|{x}.tanh()|{x}.sigmoid()|{x}.abs()|{x}.relu()|{x}.clone()|{x}.detach()|
{x}.square()|({x}.abs()+1).sqrt()|({x}.abs()+1).log()|{x}.cumsum(0)|{x}.flip(0)|{x}.clamp(-0.5,0.5)|{x}.softmax(0)|
{x}**3|2**{x}|{x}.detach().clone().requires_grad_()|{x}.norm()+{x}|{x}.max()+{x}|{x}.sort(0)[0]|{x}.var()+{x}|
m.nn.functional.gelu({x})|m.nn.functional.softplus({x})|{x}.logsumexp(0)+{x}|{x}.floor()+{x}|{x}/2|{x}.roll(1,0)|
{x}.masked_fill({x}>0.3,0.1)|m.stack([{x},{x}*2]).mean(0)|{x}.expm1()
"""
OF_TWO = """
{x}*{y}|{x}+{y}|{x}-{y}|{x}/({y}+5.1)|m.maximum({x},{y})|m.where({x}>{y},{x},{y})|m.lerp({x},{y},0.3)|
m.addcmul({x},{x},{y})|m.hypot({x},{y}+7)|m.stack([{x},{y}]).prod(0)|m.atan2({x},{y}+4)|
m.nn.functional.mse_loss({x},{y})+{x}
"""
VIEWS = """
{x}[:]|{x}.view(-1)|{x}.reshape(-1)|{x}.unsqueeze(0).squeeze(0)|{x}.narrow(0,0,len({x}))|{x}.unsqueeze(0)[0]|
{x}.expand(1,len({x}))[0]|{x}.detach()[:]
"""
UPDATES = """
{x}.mul_(2)|{x}.add_({y})|{x}.exp_()|{x}.tanh_()|{x}.sigmoid_()|{x}.zero_()|{x}[0]=1.5|{x}[0]={y}[-1]|{x}.copy_({y})|
{x}.fill_(0.25)|{x}.relu_()|{x}.clamp_(-0.4,0.6)|{x}.mul_({y})|{x}.sub_({y},alpha=2)|{x}.neg_()|{x}.div_(2)|
{x}.masked_fill_({x}>0.2,0.3)|{x}.pow_(2)|{x}.addcmul_({y},{y})|{x}.data.mul_(2)|{x}.detach().mul_(2)|
{x}.requires_grad_(False)|{x}.requires_grad_()|{x}.expm1_()|{x}.lerp_({y},0.5)|{x}.index_fill_(0,m.tensor([0]),2.)|
{x}.retain_grad()|{x}.register_hook(lambda g: g*2)|{x}.register_hook(lambda g: log.append(g.sum().item()))|{x}.grad=None
"""


def _choices(text: str) -> list[str]:
    return text.replace("\n", "").split("|")


def _backward(draw: random.Random, names: list[str]) -> str:
    x, y = draw.choice(names), draw.choice(names)
    how = draw.choice(["", "", ",create_graph=True", ",retain_graph=True"])
    if draw.random() < 0.6:
        return f"({x}*{draw.choice(['3', f'm.arange({x}.numel())'])}).sum().backward({how[1:]})"
    rest = draw.choice([",allow_unused=True", ",materialize_grads=True"])
    return f"g{draw.randrange(3)}=m.autograd.grad(({x}*{x}).sum(),{y}{how}{rest})[0]"


def program(seed: int) -> list[str]:
    """The statements of program number `seed`."""
    draw = random.Random(seed)
    size, lines = draw.choice([1, 2, 3, 3]), []
    for name in "abc":
        values = [draw.choice([round(draw.uniform(-1, 1), 2), 0.0, 1.0]) for _ in range(size)]
        lines.append(f"{name}=m.tensor({values},requires_grad={draw.random() < 0.75})")
    names = ["a", "b", "c"]
    for n in range(draw.randrange(4, 12)):
        x, y, kind = draw.choice(names[-4:]), draw.choice(names), draw.random()
        if kind < 0.55:
            still = draw.random() < 0.1
            text = draw.choice([OF_ONE, OF_TWO] if still else [OF_ONE, OF_TWO, VIEWS])
            line = f"v{n}={draw.choice(_choices(text)).format(x=x, y=y)}"
            lines.append(f"with m.no_grad(): {line}" if still else line)
            names.append(f"v{n}")
        elif kind < 0.85:
            line = draw.choice(_choices(UPDATES)).format(x=x, y=y)
            lines.append(f"with m.no_grad(): {line}" if draw.random() < 0.3 else line)
        else:
            lines.append(_backward(draw, names))
    return [*lines, _backward(draw, names), _backward(draw, names)]


def _told(name: str, x: Any) -> dict[str, Any]:
    gradient = None if x.grad is None else x.grad.detach().tolist()
    told = {"values": x.detach().tolist(), "leaf": x.is_leaf, "requires": x.requires_grad, "grad": gradient}
    if name.startswith("g"):  # how a gradient was added up is no affair of a program
        return told
    node = None if x.grad_fn is None else x.grad_fn.name().removeprefix("torch::autograd::")
    return {**told, "node": node, "version": x._version}


def run(module: Any, lines: list[str]) -> dict[str, Any]:
    """How many statements of a program run, what ends it, and what there is then; float64 is the default dtype."""
    space: dict[str, Any] = {"m": module, "log": []}
    done, error, tensors = 0, None, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in lines:
            try:
                exec(line, space)
            except (RuntimeError, IndexError) as e:
                error = "IndexError" if isinstance(e, IndexError) else "RuntimeError"
                break
            done += 1
            tensors = {k: _told(k, x) for k, x in space.items() if isinstance(x, module.Tensor)}
    return {"done": done, "error": error, "log": space["log"], "tensors": tensors}


if __name__ == "__main__":
    with contextlib.suppress(ModuleNotFoundError):  # the suite looks for examples here too
        import torch

    torch.set_default_dtype(torch.float64)
    made = {str(seed): run(torch, program(seed)) for seed in range(int(sys.argv[1]) if sys.argv[1:] else COUNT)}
    rows = ",\n".join(f"{json.dumps(seed)}: {json.dumps(found)}" for seed, found in made.items())
    DATA.write_text(f"{{\n{rows}\n}}\n")
