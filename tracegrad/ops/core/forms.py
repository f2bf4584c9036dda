"""Forms: what an op is structurally, as a value that is declared with the op.

    @primitive(Fold("add"))
    def reduce_sum(x, *, axes): ...

The compiler has one handler for each form (`tracegrad.codegen.lower.form_rules`), and the sweeps, passes and tapes ask
a form where they would else have to know ops by name. So an op of a known form needs no line outside its own section. A
form names the parameters that it gives a meaning to; an op may have others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tracegrad.utils.lazy_dataclass import record

__all__ = [
    "Along", "Branch", "Call", "Cast", "Checked", "Compose", "Contract", "Draw", "Fill", "Fold", "Form", "Gather",
    "Identity", "Map", "Move", "Patch", "Progression", "Repeat", "Reshape", "Result", "Run", "Scan", "Scatter", "While",
    "Window",
]  # fmt: skip


@record(frozen=True)
class Form:
    """What an op is structurally.

    `cheap`: to compute the op once more costs less than to keep its answer, since compiled code computes it where it is
    read. `moves`: the derivative rules move, add, negate or drop cotangents, and multiply by nothing. So no nan comes
    of a cotangent 0, and a rule tells of the places where cotangents can differ from 0, given as booleans, what becomes
    of them. `raises`: there may be values of the operands for which there is no answer but an exception;
    `foreseen`: code that could catch it is traced with the exception; `checks`: it raises for indices, whatever the
    elements are. `order`: how NumPy lays out the answer in memory (`tracegrad.ops.core.memory_order`). `rounds`: the
    answer may have numbers that no operand has.
    """

    cheap: ClassVar[bool] = False
    raises: ClassVar[bool] = False
    foreseen: ClassVar[bool] = False
    checks: ClassVar[bool] = False
    order: ClassVar[str] = "C"
    rounds: ClassVar[bool] = True

    @property
    def moves(self) -> bool:
        return False


@record(frozen=True)
class Call(Form):
    """Anything: compiled code calls the NumPy meaning of the op."""

    raises = True
    foreseen = True


@record(frozen=True)
class Draw(Call):
    """A call that raises nothing."""

    raises = False
    foreseen = False


@record(frozen=True)
class Compose(Form):
    """Made of other ops: `parts(*operands, **params)` is the answer in terms of these, which is what is compiled.
    Derivatives are taken of the whole. If not `fails`, there is an answer for any values."""

    parts: Callable[..., Any]
    moves: bool = False
    fails: bool = True

    @property
    def raises(self) -> bool:  # type: ignore[override]
        """Pieces of arrays are moved for any values."""
        return self.fails and not self.moves

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return not self.moves


@record(frozen=True)
class Map(Form):
    """Each element is a function of the elements of the operands at the same index.

    `scalar` is that function as a template over operand names (`tracegrad.ops.core.elementwise_op`); None: NumPy is
    called.
    """

    cheap = True
    order = "K"
    scalar: str | None = None
    moves: bool = False


@record(frozen=True)
class Cast(Map):
    """Each element, converted to the dtype `dtype`."""

    rounds = False
    moves: bool = True


@record(frozen=True)
class Move(Form):
    """Each element is one of the operands' elements, or the parameter `value` (0 without one).

    `reads` says which, as an index map: see `tracegrad.ops.core.index_maps` and `Op.def_reads`. `partial`: some
    elements of an operand may not be in the answer.
    """

    rounds = False
    cheap = True
    reads: Callable[..., Any] | None = None
    partial: bool = False

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class Along(Move):
    """A move of one operand that goes along its axes: `axes(n, m, **params)` says for each of the m axes of the answer
    along which of the n of the operand. It runs from end to end where the sizes are equal, in either direction; along
    an axis that is None, the operand is read again and again. `fills`: there are elements that hold `value`."""

    axes: Callable[..., Any] | None = None
    fills: bool = False


@record(frozen=True)
class Identity(Move):
    """The first operand itself, under another name: derivatives see a difference, compiled code sees none."""

    order = "K"


@record(frozen=True)
class Reshape(Move):
    """The elements of the operand in row-major order, in another shape: the same block of memory."""


@record(frozen=True)
class Gather(Form):
    """Elements of the first operand at the indices that the others hold, one for each of `axes`: the axes of the
    indices come first, then those that are not indexed."""

    rounds = False
    raises = checks = True
    order = "picked"

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class Scatter(Form):
    """Zeros of `shape`, with which the first operand is combined at the indices that the others hold, one for each of
    `axes`. If `combine` is "add", it is the transpose of a gather; else "maximum"."""

    raises = checks = True
    combine: str = "add"

    @property
    def moves(self) -> bool:
        return self.combine == "add"

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self.combine in ("add", "mul")


@record(frozen=True)
class Checked(Form):
    """Indices of an axis of `length`, counted from the front; there is no answer for those out of range."""

    rounds = False
    raises = checks = True
    order = "K"


@record(frozen=True)
class Window(Form):
    """A window of the first operand, of `sizes` and every `step`-th element, that starts at the other operands."""

    rounds = False
    cheap = True

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class Patch(Form):
    """The first operand with the second one in the place of a window, of every `step`-th element, that starts at the
    other operands."""

    rounds = False

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class Fold(Form):
    """The elements along `axes`, which disappear, combined by `combine`: add, mul, maximum, minimum, logical_and or
    logical_or."""

    order = "K"
    combine: str

    @property
    def moves(self) -> bool:
        return self.combine == "add"

    @property
    def idempotent(self) -> bool:
        """Whether equal elements combine to what each of them is."""
        return self.combine not in ("add", "mul")

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self.combine in ("add", "mul")


@record(frozen=True)
class Scan(Form):
    """As a fold along `axis` by `combine`, with all that it comes to on the way."""

    order = "K"
    combine: str

    @property
    def moves(self) -> bool:
        return self.combine == "add"

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self.combine in ("add", "mul")


@record(frozen=True)
class Contract(Form):
    """The product of two stacks of matrices with equal leading axes."""


@record(frozen=True)
class Fill(Form):
    """An array that holds `value` everywhere."""

    rounds = False
    cheap = True


@record(frozen=True)
class Progression(Form):
    """A vector of `start + step * i`."""

    cheap = True


@record(frozen=True)
class Result(Form):
    """Number `index` of the several results of the operand."""

    rounds = False


@record(frozen=True)
class Repeat(Form):
    """A loop of `length` turns over the region `body`: the first `carries` results of a turn are the first operands of
    the next, `xs` operands are read row by row, and the other results are stacked."""

    rounds = False
    raises = True


@record(frozen=True)
class While(Form):
    """A loop over the region `body` while the region `cond` holds, which carries and stacks as `Repeat` does, with room
    for the results of `capacity` turns. The number of turns is a result behind the carries."""

    rounds = False
    raises = True


@record(frozen=True)
class Branch(Form):
    """The one of the regions `branches` that the first operand numbers, applied to the other operands."""

    rounds = False
    raises = True


@record(frozen=True)
class Run(Form):
    """The region `body`, applied to the operands: as if it stood there itself if `inlined`, else as a step of its own,
    which computes what it needs whether or not it has been computed before."""

    rounds = False
    raises = True
