"""Programs that mean the same plainly and traced: what the tests of the promise "only the speed changes" share.

A program is a generator function of `trace`: it decorates functions with it, calls them, changes the world between the
calls, and yields whatever can be seen: results, arguments, attributes, containers, globals. It runs with `trace` as a
decorator that does nothing, and then with `tracegrad.trace`, with `disable_jit`, or with Tensors for the arrays; each
twice, and what it yields must be the same each time. So it must where it stands elsewhere: `placements.py`.

    @program
    def test_a_counter(trace):
        class Counter: n = 0
        counter = Counter()

        @trace
        def step(x):
            counter.n += 1
            return x * counter.n

        for _ in range(3):
            yield step(np.ones(2)), counter.n
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from placements import PLACEMENTS, Placement, placed

import tracegrad as tg
from tracegrad.ops import Carrier

__all__ = ["Raised", "attempt", "compare", "program", "seen", "tell_apart"]

Program = Callable[[Callable[..., Any]], Iterator[Any]]

# Compiled and NumPy's results differ by a few roundings.
CLOSE = {"float64": 1e-12, "float32": 2e-5, "complex128": 1e-12, "complex64": 2e-5}


class Raised:
    """An exception that a call raised, for comparison: its class, and its text if that is the program's own."""

    def __init__(self, error: BaseException, text: bool):
        self.error, self.text = error, text


def attempt(f: Callable[..., Any], *args: Any, text: bool = False, **kwargs: Any) -> Any:
    """`f(*args, **kwargs)`, or what it raised. With `text`, the exception's arguments must be the same too."""
    try:
        return f(*args, **kwargs)
    except Exception as error:  # whatever it is, it is compared
        return Raised(error, text)


def seen(x: Any) -> Any:
    """What can be seen of `x` now, so that later changes do not matter."""
    if isinstance(x, tg.Tensor):
        x = x.detach().numpy()[()]
    assert not isinstance(x, Carrier), f"a traced value was left behind: {type(x).__name__}"
    if isinstance(x, np.ndarray):
        return ("array", x.dtype.name, x.shape, x.flags.writeable, x.copy())
    if isinstance(x, Raised):
        return x
    if isinstance(x, list | tuple):
        return (type(x).__name__, len(x), [seen(y) for y in x])
    if isinstance(x, dict):
        return (type(x).__name__, len(x), [(k, seen(y)) for k, y in x.items()])
    if isinstance(x, set | frozenset):
        return (type(x).__name__, sorted(map(repr, x)))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return (type(x).__name__, [(f.name, seen(getattr(x, f.name))) for f in dataclasses.fields(x)])
    if isinstance(x, type | types.FunctionType | enum.Enum) or not hasattr(x, "__dict__"):
        return (type(x).__name__, x) if not isinstance(x, type | types.FunctionType) else ("name", x.__name__)
    return (type(x).__name__, seen(dict(vars(x))))


def tell_apart(a: Any, b: Any, where: str) -> None:
    """Raise AssertionError unless what was seen is the same."""
    if isinstance(a, Raised) or isinstance(b, Raised):
        assert isinstance(a, Raised), f"{where}: plain {a!r}, but {b.error!r} was raised"
        assert isinstance(b, Raised), f"{where}: plain raised {a.error!r}, but got {b!r}"
        assert isinstance(b.error, type(a.error)), f"{where}: plain raised {a.error!r}, but got {b.error!r}"
        assert not a.text or a.error.args == b.error.args, f"{where}: {a.error.args} and {b.error.args}"
        return
    assert type(a) is type(b), f"{where}: {a!r} and {b!r}"
    if isinstance(a, tuple | list):
        assert len(a) == len(b), f"{where}: {a!r} and {b!r}"
        for k, (x, y) in enumerate(zip(a, b)):
            tell_apart(x, y, f"{where}[{k}]")
    elif isinstance(a, np.ndarray | np.generic | float | complex) and not isinstance(a, bool):
        x, y = np.asarray(a), np.asarray(b)
        if x.dtype.kind in "fc":
            tolerance = CLOSE.get(x.dtype.name, 1e-2)
            np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance, err_msg=where)
            if x.dtype.kind == "f":
                zero = (x == 0) & (y == 0)
                assert np.array_equal(np.signbit(x[zero]), np.signbit(y[zero])), f"{where}: signs of zeros"
        else:
            np.testing.assert_array_equal(y, x, err_msg=where)
    else:
        assert a == b, f"{where}: plain {a!r}, but got {b!r}"


def _plain(f: Any = None, **_: Any) -> Any:
    return f if f is not None else _plain


def _on_tensors(f: Any) -> Any:
    """`f` traced, with Tensors that share memory with the arrays it is given."""
    traced = tg.trace(f)

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tg.tree.map(_tensor, (args, kwargs))
        return traced(*args, **kwargs)

    return call


def _tensor(x: Any) -> Any:
    return tg.from_numpy(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


MODES: dict[str, tuple[Callable[..., Any], Callable[[], AbstractContextManager[Any]]]] = {
    "traced": (tg.trace, nullcontext),
    "disabled": (tg.trace, tg.disable_jit),
    "tensors": (_on_tensors, nullcontext),
}


def compare(script: Program, mode: str) -> None:
    """Run a program plainly and in a mode or placement, twice, and compare all that it yields."""
    where = placed(script, mode, _plain) if mode in PLACEMENTS else Placement(script, _plain, *MODES[mode])
    for iteration in range(2):
        expected = [seen(x) for x in where.script(where.plain)]
        assert expected, f"{script.__name__} yields nothing"
        with where.around():
            count = -1
            for count, result in enumerate(where.script(where.traced)):
                tell_apart(expected[count], seen(result), f"{script.__name__}, run {iteration}, yield {count}")
        assert count + 1 == len(expected), f"{script.__name__}: {count + 1} yields of {len(expected)}"


def program(script: Program | None = None, *, modes: tuple[str, ...] = ("traced", "disabled")) -> Any:
    """A test that compares a program with itself in each of the modes, and in other placements (`placements.py`)."""
    if script is None:
        return lambda f: program(f, modes=modes)

    def test(mode: str) -> None:
        compare(script, mode)

    test.__doc__ = script.__doc__
    test.script, test.modes = script, modes  # type: ignore[attr-defined]
    return test
