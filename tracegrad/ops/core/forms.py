"""Define forms: the structural kind of an op, declared with the op.

    @primitive(FoldForm("add"))
    def reduce_sum(x, *, axes): ...

The compiler has one handler for each form (`tracegrad.codegen.lower.form_rules`). Sweeps, passes and tapes dispatch on
the form instead of the op's name, so an op of a known form needs no code outside its own section. A form names the
parameters it interprets; an op may have others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class Form:
    """The structural kind of an op.

    `cheap`: recomputing the op costs less than storing its result, because compiled code computes it in its consumer.
    `moves`: the derivative rules move, add, negate or drop cotangents, and multiply by nothing. A zero cotangent
    therefore never becomes nan, and a rule applied to booleans maps the positions where cotangents may be nonzero.
    `raises`: some operand values raise an exception; `foreseen`: code that could catch it is traced with the exception;
    `checks`: it raises for indices, whatever the elements are. `order`: NumPy's memory order of the result
    (`tracegrad.ops.core.memory_order`). `rounds`: the result may contain numbers that no operand contains.
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
    """General form: compiled code calls the NumPy implementation of the op."""

    raises = True
    foreseen = True


@record(frozen=True)
class Draw(Call):
    """A call that raises nothing."""

    raises = False
    foreseen = False


@record(frozen=True)
class Compose(Form):
    """Composite op: `parts(*operands, **params)` is its decomposition, which is compiled. The op is differentiated as a
    whole. Without `fails` it never raises."""

    decomposition: Callable[..., Any]
    moves: bool = False
    fails: bool = True

    @property
    def raises(self) -> bool:  # type: ignore[override]
        """Whether it may raise; moving slices of arrays never does."""
        return self.fails and not self.moves

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return not self.moves


@record(frozen=True)
class Map(Form):
    """Elementwise form: each element is a function of the elements of the operands at the same index.

    `scalar` is that function as a template over operand names (`tracegrad.ops.core.elementwise_op`); None: NumPy is
    called.
    """

    cheap = True
    order = "K"
    scalar: str | None = None
    moves: bool = False


@record(frozen=True)
class Cast(Map):
    """Conversion of each element to the dtype `dtype`."""

    rounds = False
    moves: bool = True


@record(frozen=True)
class Move(Form):
    """Data movement: each element is an element of an operand, or the parameter `value` (0 without one).

    `reads` is the index map: see `tracegrad.ops.core.index_maps` and `Op.def_reads`. `partial`: some elements of an
    operand may not be in the result.
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
    """Data movement along the axes of one operand: `axes(n, m, **params)` gives for each of the m result axes the
    operand's axis, of n. An axis is read from end to end, in either direction, if the sizes are equal; None repeats the
    operand. `fills`: some elements hold `value`. `selection(**params)` gives, for a slice, the first index and the step
    along each axis."""

    axes: Callable[..., Any] | None = None
    fills: bool = False
    selection: Callable[..., tuple[tuple[int, ...], tuple[int, ...]]] | None = None


@record(frozen=True)
class IdentityForm(Move):
    """The first operand under another name: visible to derivatives, invisible to compiled code."""

    order = "K"


@record(frozen=True)
class Reshape(Move):
    """The elements of the operand in row-major order, in another shape, in the same memory."""


@record(frozen=True)
class Gather(Form):
    """Elements of the first operand at the indices in the other operands, one for each of `axes`: the axes of the
    indices come first, then the axes that are not indexed."""

    rounds = False
    raises = checks = True
    order = "picked"

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class Scatter(Form):
    """Zeros of `shape`, combined with the first operand at the indices in the other operands, one for each of `axes`.
    With `combine` "add" it is the transpose of a gather; else "maximum"."""

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
    """Indices of an axis of `length`, normalized to count from the front; out of range indices raise."""

    rounds = False
    raises = checks = True
    order = "K"


@record(frozen=True)
class Window(Form):
    """A window of the first operand, of `sizes`, with every `step`-th element, that starts at the other operands
    (dynamic slice)."""

    rounds = False
    cheap = True

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class Patch(Form):
    """The first operand with a window of every `step`-th element replaced by the second one; it starts at the other
    operands (dynamic update)."""

    rounds = False

    @property
    def moves(self) -> bool:
        return True


@record(frozen=True)
class FoldForm(Form):
    """Reduction of `axes` by `combine`: add, mul, maximum, minimum, logical_and or logical_or."""

    order = "K"
    combine: str

    @property
    def moves(self) -> bool:
        return self.combine == "add"

    @property
    def idempotent(self) -> bool:
        """Whether combining equal elements gives the element."""
        return self.combine not in ("add", "mul")

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self.combine in ("add", "mul")


@record(frozen=True)
class Scan(Form):
    """Cumulative reduction along `axis` by `combine`, with all partial results."""

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
    """An array with `value` everywhere."""

    rounds = False
    cheap = True


@record(frozen=True)
class Progression(Form):
    """An arithmetic progression `start + step * i`, as a vector."""

    cheap = True


@record(frozen=True)
class Result(Form):
    """Result number `index` of an operand with several results."""

    rounds = False


@record(frozen=True)
class Repeat(Form):
    """A loop of `length` iterations over the region `body`: the first `carries` results of an iteration are the first
    operands of the next, `xs` operands are read row by row, and the other results are stacked."""

    rounds = False
    raises = True


@record(frozen=True)
class While(Form):
    """A loop over the region `body` while the region `cond` is true, with carries and stacked results as in `Repeat`,
    and room for the results of `capacity` iterations. The trip count is a result after the carries."""

    rounds = False
    raises = True


@record(frozen=True)
class Branch(Form):
    """The region of `branches` selected by the first operand, applied to the other operands."""

    rounds = False
    raises = True


@record(frozen=True)
class Run(Form):
    """The region `body` applied to the operands: expanded in place if `inlined`, else a separate step, which recomputes
    values even if they have been computed before."""

    rounds = False
    raises = True
