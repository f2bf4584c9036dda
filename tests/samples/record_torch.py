"""Write what PyTorch gives for the calls of `torch_cases.py`: `python tests/samples/record_torch.py`, where torch is
installed.

For each call: the values of its results; the derivatives of their weighted sum with respect to the arrays of floats in
it; those of the weighted sum of these derivatives; and the names of the nodes on the tape.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from torch_cases import CONSTANT, GROUPS, INPUTS, RECORD, calls, weights

with contextlib.suppress(ModuleNotFoundError):  # the suite looks for examples here too
    import torch


def numbers(x: Any) -> Any:
    return None if x is None else torch.zeros_like(x).add(x.detach()).tolist()


def listed(x: Any) -> Any:
    """A result, with its dtype if it is an array."""
    return {"dtype": str(x.dtype).split(".")[1], "values": x.tolist()} if isinstance(x, torch.Tensor) else x


def derivatives(outputs: list[Any], inputs: list[Any]) -> list[Any] | None:
    """Those of the weighted sum of the outputs that are on the tape; None if none is."""
    live = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
    if not live:
        return None
    seeds = [torch.from_numpy(weights(tuple(x.shape))) for x in live]
    return list(torch.autograd.grad(live, inputs, seeds, create_graph=True, allow_unused=True))


def record(call: str) -> dict[str, Any]:
    names = [name for name in INPUTS if re.search(rf"\b{name}\b", call)]
    inputs = {name: torch.from_numpy(INPUTS[name].copy()) for name in names}
    wanted = {name: x.requires_grad_() for name, x in inputs.items() if x.is_floating_point() and name not in CONSTANT}
    result = eval(call, {**vars(torch), "F": torch.nn.functional, "S": torch.special, **inputs})
    results = list(result) if isinstance(result, tuple) else [result]
    nodes = [x.grad_fn.name() if isinstance(x, torch.Tensor) and x.grad_fn else None for x in results]
    grads = derivatives(results, list(wanted.values()))
    try:
        second = derivatives(grads or [], list(wanted.values()))
    except RuntimeError:
        second = None
    return {
        "results": [listed(x) for x in results],
        "nodes": nodes,
        "grads": grads and {k: numbers(g) for k, g in zip(wanted, grads)},
        "second": second and {k: numbers(g) for k, g in zip(wanted, second)},
    }


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    made = {call: record(call) for group in GROUPS for call in calls(group)}
    lines = ",\n".join(f"{json.dumps(call)}: {json.dumps(found)}" for call, found in made.items())
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(f"{{\n{lines}\n}}\n")
