"""Random NumPy programs about memory: views of views, what may alias, all layouts, updates in place of anything.

`program(seed)` writes the text of a function of one array and runs it while it does, so that each line fits what the
lines before it made. `check(seed)` compares: the results and what was asked of memory, plainly and traced, for several
layouts of the argument; the derivative, in a trace and on the tape, with differences of the plain function.

By hand, without compiling but every 50th:

    python tests/samples/random_programs.py 0 20000
"""

from __future__ import annotations

import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

import tracegrad as tg
from tracegrad.errors import TraceError, UnsupportedError
from tracegrad.runtime.dispatch import dispatcher
from tracegrad.torch.tape import eager_vjp

__all__ = ["check", "interpreted", "program"]

Array = Any
MOST_ELEMENTS = 64


class Writer:
    """Writes one program. `plain` holds the variables as NumPy has them."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.on_tape = rng.random() < 0.7  # else it may use what NumPy makes arrays of without asking them
        self.shape = tuple(rng.choice([1, 2, 3, 3, 4, 4]) for _ in range(rng.choice([1, 2, 2, 2, 3])))
        self.updates_outside = rng.random() < 0.4  # the argument and the captured array, too
        self.table = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
        if rng.random() < 0.5:
            self.table = np.asfortranarray(self.table)
        self.x = LAYOUTS[rng.choice(list(LAYOUTS))](argument(self.shape))
        self.plain: dict[str, Array] = {"np": np, "table": self.table, "x": self.x, "facts": []}
        self.lines: list[str] = []
        self.names = ["x", "table"]
        self.of_x = {"x"}  # computed from the argument; the tape keeps no copies of others
        for start in rng.sample(["x.copy()", "np.copy(x)", "x * 0.5", "np.tanh(x.T)", "x.copy('F')"], 2):
            self.assign(start)
        wanted, tries = rng.randint(4, 14), 0
        while len(self.lines) < wanted and tries < 200:
            tries += 1
            rng.choice([self.view, self.view, self.view, self.new, self.update, self.update, self.ask])()

    # -- parts of programs ---------------------------------------------------------------------------------------
    def run(self, line: str) -> bool:
        """Add the line, if it runs."""
        before = {k: v for k, v in self.plain.items() if k != "__builtins__"}
        try:
            with np.errstate(all="raise"):
                exec(line, self.plain)
        except Exception:
            self.plain = before
            return False
        self.lines.append(line)
        return True

    def assign(self, text: str) -> None:
        name = f"v{len(self.lines)}"
        if self.run(f"{name} = {text}"):
            result = self.plain[name]
            fits = type(result) is np.ndarray and result.dtype == np.float64 and 0 < result.size <= MOST_ELEMENTS
            if not fits or result.ndim > 4:
                self.lines.pop()
                self.plain.pop(name)
            else:
                self.names.append(name)
                if self.of_x & {*re.findall(r"\w+", text)}:
                    self.of_x.add(name)

    def pick(self) -> tuple[str, Array]:
        """A variable, more often a late one."""
        name = self.rng.choice(self.names[-4:] if self.rng.random() < 0.6 else self.names)
        return name, self.plain[name]

    def index(self, x: Array) -> str:
        rng = self.rng
        parts = []
        for n in x.shape:
            k = rng.randrange(n)
            choices = [":", "::-1", "::2", f"{k}", f"{k}:", f":{n - 1 or 1}", f"{n}:0:-1", ":", "::-2", f"-{n}:"]
            parts.append(rng.choice(choices))
        parts = parts[: rng.randint(0, len(parts))]
        if rng.random() < 0.2:
            parts.insert(rng.randint(0, len(parts)), "None")
        if rng.random() < 0.3 or not parts:
            parts.insert(rng.choice([0, len(parts)]), "...")
        return ", ".join(parts)

    def other_shape(self, size: int) -> str:
        rng, sizes = self.rng, []
        while size > 1 and len(sizes) < 3:
            n = rng.choice([k for k in range(1, size + 1) if size % k == 0])
            sizes.append(n)
            size //= n
        sizes.append(size)
        if rng.random() < 0.3:
            sizes[rng.randrange(len(sizes))] = -1
        return f"({', '.join(map(str, sizes))},)"

    def view(self) -> None:
        """What may be a view of a variable."""
        rng = self.rng
        name, x = self.pick()
        axis, other = (rng.randrange(x.ndim or 1) for _ in range(2))
        order = rng.choice(["C", "F", "A", "C"])
        perm = rng.sample(range(x.ndim), x.ndim)
        choices = [
            f"{name}[{self.index(x)}]",
            f"{name}[{self.index(x)}]",
            f"{name}[{self.index(x)}]",
            f"{name}.T",
            f"np.transpose({name}, {perm})",
            f"np.swapaxes({name}, {axis}, {other})",
            f"np.moveaxis({name}, {axis}, {other})",
            f"{name}.reshape({self.other_shape(x.size)})",
            f"{name}.reshape({self.other_shape(x.size)})",
            f"np.reshape({name}, {self.other_shape(x.size)}, order={order!r})",
            f"np.ravel({name})",
            f"{name}.ravel()",
            f"np.ravel({name}, {rng.choice('CFAK')!r})",
            f"np.flip({name}, {rng.choice([axis, None])})",
            f"np.rot90({name}, {rng.randrange(4)}, ({axis}, {other}))",
            f"np.squeeze({name})",
            f"{name}.view()",
            f"np.expand_dims({name}, {axis})",
            f"np.atleast_{rng.randint(1, 3)}d({name})",
            f"np.real({name})",
            f"np.broadcast_to({name}, ({rng.randint(1, 2)}, *{name}.shape))",
            f"np.diagonal({name}, {rng.randint(-1, 1)})",
            f"np.einsum('...ii->...i', {name}[..., :2, :2])",
            f"np.einsum('...ij->...ji', {name})",
            f"np.array_split({name}, 2, {axis})[{rng.randrange(2)}]",
            f"np.split({name}, [1], {axis})[1]",
            f"{name}.astype(float, copy=False)",
            f"{name}.astype(float, {order!r}, copy=False)",
            f"{name}.conj()",
            f"np.rollaxis({name}, {axis}, {other})",
            f"np.matrix_transpose({name})",
            f"np.broadcast_arrays({name}, {name})[0]",
        ]
        if not self.on_tape:
            choices += [
                f"np.asarray({name})",
                f"np.ascontiguousarray({name})",
                f"np.asfortranarray({name})",
                f"np.asarray({name}, order={order!r})",
                f"np.array({name}, copy=None, order={order!r})",
                f"np.require({name}, None, {rng.choice('CF')!r})",
            ] * 2
        self.assign(rng.choice(choices))

    def new(self) -> None:
        """A new array, in whatever layout."""
        rng = self.rng
        (name, x), (other, _) = self.pick(), self.pick()
        axis = rng.randrange(x.ndim or 1)
        order = rng.choice("CFKA")
        choices = [
            f"np.tanh({name})", f"{name} * 0.5", f"{name} + {other}", f"{name} - {other}",
            f"np.sin({name}) * {other}",
            f"np.copy({name})", f"np.copy({name}, {order!r})", f"{name}.copy()", f"{name}.copy({order!r})",
            f"-{name}",
            f"{name}.flatten({order!r})", f"np.tile({name}, {rng.randint(1, 2)})",
            f"np.repeat({name}, {rng.randint(1, 2)}, {axis})",
            f"np.concatenate([{name}, {name}], {axis})", f"np.stack([{name}, {name}], {axis})",
            f"np.roll({name}, 1, {axis})",
            f"np.take({name}, [0, -1], {axis})", f"{name}[[0, -1]]", f"{name}[..., [0, -1]]", f"{name}.sum({axis})",
            f"{name}.mean({axis}, keepdims=True)", f"np.cumsum({name}, {axis}) * 0.5", f"np.zeros_like({name})",
            f"np.full_like({name}, 0.25, order={order!r})", f"np.where({name} > 9.0, {other}, {name})",
            f"np.pad({name}, 1)",
            f"{name}.astype(float)", f"{name}.astype(float, {order!r})", f"np.diff({name}, axis={axis})",
            f"np.roll({name}, 1)",
            f"np.einsum('...i,...i->...i', {name}, {name}) * 0.5",
            f"np.einsum('...ij,...kj->...ki', {name}, {name}) * 0.1",
            f"np.tril({name})", f"np.multiply({name}, 0.5, order={order!r})", f"np.sort({name}, {axis})",
            f"np.conj({name})",
            f"np.meshgrid({name}.ravel(), {name}.ravel())[1]", f"np.hypot({name}, 2.0)", f"np.round({name} * 0.0, 1)",
            f"np.append({name}, {other})", f"np.outer({name}, {other})", f"{name} @ {name}.T * 0.1",
            f"np.positive({name})",
        ]  # fmt: skip
        if not self.on_tape:
            choices += [f"np.array({name})", f"np.array({name}, order={order!r})", f"np.array([{name}, {name}])"] * 2
        self.assign(rng.choice(choices))

    def update(self) -> None:
        """An update in place of a variable that may be updated."""
        rng = self.rng
        (name, x), (other, _) = self.pick(), self.pick()
        outside = any(np.may_share_memory(x, z) for z in (self.x, self.table))
        if not x.flags.writeable or not x.ndim or (outside and not self.updates_outside):
            return
        if self.on_tape and name not in self.of_x:
            return
        overlapping = 0 in [s for n, s in zip(x.shape, x.strides) if n > 1]
        if overlapping:
            return
        at = self.index(x)
        number = rng.choice(["0.5", "-1.25", "0.75"])
        value = rng.choice([number, other, f"{other} * 0.5", f"np.sin({other})"])
        choices = [
            f"{name} += {value}",
            f"{name} -= {value}",
            f"{name} *= {number}",
            f"{name}[{at}] = {value}",
            f"{name}[{at}] += {number}",
            f"{name}[{at}] *= {number}",
            f"{name}[...] = {value}",
            f"np.add({name}, {value}, out={name})",
            f"{name}.fill({number})",
            f"np.tanh({name}, out={name})",
            f"{name}[{at}] = {name}[{at}] * {number}",
            f"{name}[0] = {value}",
            f"np.negative({name}, out={name})",
            f"{name}[[0, -1]] = {number}",
            f"{name}[{name} > 1.0] = {number}",
            f"{name}.ravel()[1:] = {number}",
            f"{name}.T[0] += {number}",
            f"{name}.reshape(-1)[::2] *= {number}",
        ]
        self.run(rng.choice(choices))

    def ask(self) -> None:
        rng = self.rng
        (name, x), (other, y) = self.pick(), self.pick()
        mine = not any(np.may_share_memory(x, z) for z in (self.x, self.table))
        theirs = any(np.may_share_memory(y, z) for z in (self.x, self.table))
        questions = (
            [] if mine and theirs else [f"np.shares_memory({name}, {other})", f"np.may_share_memory({name}, {other})"]
        )
        questions += [
            f"{name}.flags.c_contiguous",
            f"{name}.flags.f_contiguous",
            f"[s for n, s in zip({name}.shape, {name}.strides) if n > 1]",
        ]
        self.run(f"facts.append({rng.choice(questions)})")

    # -- the whole ------------------------------------------------------------------------------------------------
    @property
    def text(self) -> str:
        results = [name for name in self.names if name not in ("x", "table")]
        lines = [
            "global table",
            "facts = []",
            *self.lines,
            f"return facts, [{', '.join(f'{n} * 1.0' for n in results)}]",
        ]
        return "def f(x):\n" + "".join(f"    {line}\n" for line in lines)


def _strided(x: Array) -> Array:
    wide = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    wide[tuple(slice(None, None, 2) for _ in x.shape)] = x
    return wide[tuple(slice(None, None, 2) for _ in x.shape)]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "strided": _strided,
    "backwards": lambda x: np.flip(np.flip(x).copy()),
    "backwards F": lambda x: np.flip(np.flip(x).copy("F")),
}


def argument(shape: tuple[int, ...], at: float = 0.0) -> Array:
    return np.cos(np.arange(float(np.prod(shape))) * 1.7 + 0.3 + at).reshape(shape)


def program(seed: int) -> tuple[str, dict[str, Any], tuple[int, ...], bool]:
    """The text of a function `f`, its globals, the shape of its argument, and whether the tape can run it."""
    writer = Writer(seed)
    return writer.text, {"np": np, "table": writer.table}, writer.shape, writer.on_tape


class _Replayed(dispatcher.Interpreted):
    """Stands for a compiled program, whose last output says whether the implicit guards hold, if it has such."""

    def __init__(self, graph: Any, kinds: Any, single: bool, name: str, checked: bool, *how: Any):
        super().__init__(graph)
        self.checked = checked
        self.foreseen = sum(n.op is not None and n.op.form.foreseen for n in graph.nodes)

    def attempt(self, leaves: Any) -> Any:
        result = super().attempt(leaves)
        if result is None or not self.checked:
            return result
        return result[:-1] if result[-1] else None


@contextmanager
def interpreted() -> Iterator[None]:
    """While traces are run op by op instead of compiled."""
    before = dispatcher.compile_program
    dispatcher.compile_program = _Replayed  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        dispatcher.compile_program = before


class Runner:
    """A program, and the world around it, which is as at first whenever it is called."""

    def __init__(self, seed: int):
        self.text, self.space, self.shape, self.on_tape = program(seed)
        exec(compile(self.text, f"<program {seed}>", "exec"), self.space)
        self.function = self.space["f"]
        self.table = self.space["table"].copy()

    def run(self, f: Callable[[Array], Any], layout: str, at: float, step: float = 0.0) -> Any:
        """The result of `f`, and the arrays outside after it; or the exception that it raised."""
        self.space["table"][...] = self.table
        x = LAYOUTS[layout](argument(self.shape, at) + step * self.direction)
        try:
            return f(x), x.copy(), self.space["table"].copy()
        except (ValueError, IndexError) as error:
            return error

    @property
    def direction(self) -> Array:
        return np.cos(np.arange(float(np.prod(self.shape))) * 0.9).reshape(self.shape)


def check(seed: int) -> None:
    """Compare the program of this seed with itself: plain, traced, differentiated in a trace and on the tape."""
    runner = Runner(seed)
    traced = tg.trace(runner.function)
    order = random.Random(seed).sample(list(LAYOUTS), 3)
    for k, layout in enumerate([*order, order[0]]):
        plain = runner.run(runner.function, layout, k)
        try:
            result = runner.run(traced, layout, k)
        except UnsupportedError as error:
            if not _is_of_outside(error):
                raise
            continue
        if isinstance(plain, Exception):
            assert type(result) is type(plain), (layout, plain, result)
            continue
        assert not isinstance(result, Exception), (layout, result)
        _compare(result, plain, layout)
    if not isinstance(runner.run(runner.function, order[1], 0.1), Exception):
        _check_derivative(runner, order[1])


def _compare(found: Any, plain: Any, what: str) -> None:
    assert found[0][0] == plain[0][0], (what, found[0][0], plain[0][0])
    for a, b in zip([*plain[0][1], *plain[1:]], [*found[0][1], *found[1:]], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9, err_msg=what)


def _is_of_outside(error: Exception) -> bool:
    """Whether the program wants what is refused of arrays from outside: to update them, or to know about others; or
    wants to write a value of the tape into an ndarray."""
    known = "from outside|an argument|of a leaf|leaf Variable|cannot become an ndarray|did not make"
    return re.search(known, str(error)) is not None


def _check_derivative(runner: Runner, layout: str, step: float = 1e-6) -> None:
    results = runner.run(runner.function, layout, 0.1)[0][1]
    weights = [np.cos(np.arange(float(a.size)) + k).reshape(a.shape) for k, a in enumerate(results)]
    seen: list[Any] = []

    def loss(x: Array) -> Array:
        facts, arrays = runner.function(x)
        seen.append(facts)
        return sum(np.sum(a * w) for a, w in zip(arrays, weights))

    up, down, value = (runner.run(loss, layout, 0.1, s)[0] for s in (step, -step, 0.0))
    facts = seen[-1]
    del seen[:]
    derivative, result = tg.value_and_grad(loss), {}
    ways = {"traced": derivative, "eager": tg.disable_jit()(derivative)}
    if runner.on_tape:
        ways["on the tape"] = lambda x: _pulled(loss, x)
    for what, way in ways.items():
        try:
            result[what] = runner.run(way, layout, 0.1)
        except (UnsupportedError, TraceError, RuntimeError) as error:
            if not _is_of_outside(error):
                raise
    for what, answer in result.items():
        assert not isinstance(answer, Exception), (what, answer)
        (v, gradient), _, _ = answer
        np.testing.assert_allclose(v, value, rtol=1e-9, atol=1e-9, err_msg=what)
        slope, got = (up - down) / (2 * step), np.sum(gradient * runner.direction)
        np.testing.assert_allclose(got, slope, rtol=1e-5, atol=1e-5 * (1 + abs(value)), err_msg=what)
    assert all(each == facts for each in seen), (seen, facts)


def _pulled(loss: Any, x: Array) -> tuple[Array, Array]:
    (value,), pullback = eager_vjp(lambda v: [loss(v)], [x])
    return value, pullback([1.0])[0]


def main(first: int, last: int, every: int = 50) -> int:
    """Check the programs of these seeds; returns how many have failed, and tells of each."""
    failed = 0
    for seed in range(first, last):
        try:
            with interpreted() if seed % every else nullcontext():
                check(seed)
        except Exception as error:
            failed += 1
            sys.stdout.write(f"-- {seed}: {type(error).__name__}: {str(error)[:600]}\n")
            if failed <= 3:
                sys.stdout.write(program(seed)[0])
                traceback.print_exc(limit=-3)
    sys.stdout.write(f"{last - first} programs, {failed} failed\n")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
