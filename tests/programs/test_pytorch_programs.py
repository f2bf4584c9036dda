"""Programs written for PyTorch compute what they compute with PyTorch: losses, gradients, parameters, buffers, dtypes.

The programs and the transcripts are in `pytorch/`; `python -m tests.programs.pytorch.record` makes the transcripts.
Each program runs eagerly and with its step compiled, in float32 and float64.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from programs.pytorch.play import DTYPES, PROGRAMS, differences, played, transcript

import tracegrad as tg

# Errors relative to the largest number of a Tensor. Steps of an optimizer enlarge rounding errors.
RTOL = {"float32": 2e-4, "float64": 1e-9}
ATOL = {"float32": 1e-6, "float64": 1e-12}
LOOSER = {
    ("pinn_lbfgs", "float32"): 20.0,  # third derivatives, and differences of gradients near a minimum
}
# Entries of a mode that are not compared.
UNCOMPARED = {
    # Traces compute nothing again, as torch.compile: both count a batch once, and eager PyTorch twice.
    ("checkpoint_norms", "traced"): ("1.running_mean", "1.running_var", "1.num_batches_tracked"),
}
MAX_TRACES = 3

ROWS = [
    pytest.param(program, mode, dtype, id=f"{program.stem}-{mode}-{dtype}")
    for program in PROGRAMS
    for mode in ("eager", "traced")
    for dtype in DTYPES
]


@pytest.mark.parametrize(("program", "mode", "dtype"), ROWS)
def test_a_program_computes_what_it_computes_with_pytorch(program: Path, mode: str, dtype: str) -> None:
    steps: list[Any] = []

    def compiled(step: Any) -> Any:
        steps.append(tg.compile(step))
        return steps[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a step that cannot be traced warns
        entries = played(program, tg, dtype, compiled if mode == "traced" else lambda f: f)
    left_out = UNCOMPARED.get((program.stem, mode), ())
    expected, entries = ([x for x in each if x.name not in left_out] for each in (transcript(program)[dtype], entries))
    factor = LOOSER.get((program.stem, dtype), 1.0)
    lines = differences(expected, entries, factor * RTOL[dtype], factor * ATOL[dtype])
    if lines:
        pytest.fail(f"{program.name}, {mode}, {dtype}\n" + "\n".join(lines), pytrace=False)
    assert [step.cache_info().traces for step in steps if step.cache_info().traces > MAX_TRACES] == []
