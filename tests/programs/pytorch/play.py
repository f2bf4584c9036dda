"""Run the programs of this folder with PyTorch or with tracegrad under the name `torch`, and note their Tensors.

A program is a module of PyTorch code with a function `train(run)`. `run` supplies what must be equal in both libraries:
the data, the initial parameters and the compiler. `run.log` and `run.state` note Tensors.

An entry of a transcript is a name, a dtype, a shape and at most eight numbers. A larger Tensor is represented by three
elements, two weighted sums and its norm.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["DTYPES", "PROGRAMS", "Entry", "Run", "differences", "played", "transcript"]

HERE = Path(__file__).parent
PROGRAMS = sorted(path for path in HERE.glob("*.py") if path.stem not in ("play", "record", "conftest"))
DTYPES = ("float32", "float64")
ELEMENTS = 8  # a Tensor with more elements is represented by a summary
MODULES = (
    "",
    ".autograd",
    ".distributions",
    ".func",
    ".nn",
    ".nn.functional",
    ".nn.modules",
    ".nn.modules.module",
    ".nn.parameter",
    ".nn.utils",
    ".nn.utils.rnn",
    ".optim",
    ".optim.lr_scheduler",
    ".optim.swa_utils",
    ".utils",
    ".utils.checkpoint",
    ".utils.data",
)


class Entry(NamedTuple):
    """A Tensor of a run: its name, dtype and shape, and its elements or their summary."""

    name: str
    dtype: str
    shape: list[int]
    numbers: list[float]


def summary(x: np.ndarray) -> list[float]:
    """The elements of a small array; three elements, two weighted sums and the norm of a larger one."""
    flat = x.astype(float).reshape(-1)
    if flat.size <= ELEMENTS:
        return list(flat.tolist())
    n = np.arange(flat.size)
    sums = [flat @ np.sin(1 + n), flat @ np.cos(2 * n), np.sqrt(flat @ flat)]
    return [*flat[[0, 1, -1]].tolist(), *map(float, sums)]


class Run:
    """What a program gets: data, initial parameters and the compiler. It stores the entries that the program logs."""

    def __init__(self, torch: Any, compile: Callable[[Any], Any]):
        self.torch, self.compile, self.entries = torch, compile, list[Entry]()

    def wave(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> Any:
        """A Tensor of the default dtype, whose elements are sines that repeat late."""
        n = np.arange(np.prod(shape, dtype=int))
        elements = scale * np.sin(1.3 * n + 0.017 * n * n + shift)
        return self.torch.tensor(elements.tolist()).reshape(shape)

    def labels(self, *shape: int, classes: int, shift: int = 0) -> Any:
        """A Tensor of integers from 0 to `classes` - 1."""
        n = np.arange(np.prod(shape, dtype=int)) + shift
        return self.torch.tensor(((n * n + n // 3) % classes).tolist()).reshape(shape)

    def fill(self, module: Any, scale: float = 1.0) -> Any:
        """Set the parameters of a module to waves, scaled by the number of inputs; 1-D weights are around 1."""
        with self.torch.no_grad():
            for n, (name, p) in enumerate(module.named_parameters()):
                shape = tuple(p.shape)
                if len(shape) > 1:
                    p.copy_(self.wave(*shape, scale=scale * 1.4 / np.sqrt(np.prod(shape[1:])), shift=n))
                else:
                    p.copy_(self.wave(*shape, scale=0.1, shift=n) + (1.0 if name.endswith("weight") else 0.0))
        return module

    def log(self, **tensors: Any) -> None:
        """Note Tensors, numbers, and sequences of Tensors."""
        for name, x in tensors.items():
            if isinstance(x, list | tuple):
                for n, each in enumerate(x):
                    self._note(f"{name}.{n}", each)
            else:
                self._note(name, x)

    def state(self, module: Any, prefix: str = "") -> None:
        """Note the parameters and buffers of a module, and the gradients."""
        for name, x in module.state_dict().items():
            self._note(prefix + name, x)
        for name, p in module.named_parameters():
            self._note(f"{prefix}{name}.grad", p.grad)

    def _note(self, name: str, x: Any) -> None:
        if not isinstance(x, self.torch.Tensor):
            numbers = [] if x is None else [float(x)]
            self.entries.append(Entry(name, type(x).__name__, [], numbers))
            return
        dtype = str(x.dtype).removeprefix("torch.")
        self.entries.append(Entry(name, dtype, list(x.shape), summary(x.detach().numpy())))


@contextmanager
def _named_torch(library: ModuleType) -> Iterator[None]:
    """Import the modules of a library under PyTorch's names."""
    names = [] if library.__name__ == "torch" else [f"torch{suffix}" for suffix in MODULES]
    for name in names:
        sys.modules[name] = importlib.import_module(library.__name__ + name.removeprefix("torch"))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def _loaded(program: Path, library: ModuleType) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pytorch_program_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _named_torch(library):
        spec.loader.exec_module(module)
    return module


def played(program: Path, library: Any, dtype: str, compile: Callable[[Any], Any]) -> list[Entry]:
    """The entries of one run of a program with a default dtype."""
    before = library.get_default_dtype()
    library.set_default_dtype(getattr(library, dtype))
    try:
        run = Run(library, compile)
        _loaded(program, library).train(run)
    finally:
        library.set_default_dtype(before)
        library.set_grad_enabled(True)
    return run.entries


def transcript(program: Path) -> dict[str, list[Entry]]:
    """What a program noted with PyTorch, by its default dtype."""
    table = json.loads(program.with_suffix(".json").read_text(encoding="utf-8"))
    return {dtype: [Entry(*row) for row in rows] for dtype, rows in table.items()}


def differences(expected: list[Entry], entries: list[Entry], rtol: float, atol: float) -> list[str]:
    """A line for each entry that is not as expected. Errors are relative to the largest number of an entry."""
    if [e.name for e in expected] != [e.name for e in entries]:
        return [f"the entries are {[e.name for e in entries]}, expected {[e.name for e in expected]}"]
    lines = []
    for want, got in zip(expected, entries):
        if (want.dtype, want.shape) != (got.dtype, got.shape):
            lines.append(f"{want.name}: {got.dtype} {got.shape}, expected {want.dtype} {want.shape}")
            continue
        scale = max(map(abs, want.numbers), default=0.0)
        if not np.allclose(got.numbers, want.numbers, rtol=0, atol=atol + rtol * scale):
            lines.append(f"{want.name}: {got.numbers}, expected {want.numbers}")
    return lines
