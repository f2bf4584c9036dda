"""Dispatch ops by operand type: the carriers that ops can be applied to, and which of them takes precedence."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from tracegrad.avals import LITERALS, SIZES, Aval, aval_of
from tracegrad.errors import UnsupportedError, located
from tracegrad.tensor_dtype import TENSOR_DTYPES
from tracegrad.typing import Args, Array, DType, Number, Results, Shape

if TYPE_CHECKING:
    from tracegrad.ops.core.op import Op


class DispatchLevel(enum.IntEnum):
    """Dispatch level of a carrier: the operand with the highest level decides the meaning of an op."""

    PLAIN = 0  # ndarrays and numbers, which are no carriers
    ARRAY_ON_TAPE = 1  # computes and records, with NumPy's methods
    TENSOR = 2  # computes and records, with PyTorch's
    VALUE = 3  # emits a node of a graph
    TRACED_TENSOR = 4  # emits a node and records
    SPAN = 5  # emits nodes, for an array whose size is a number of a loop
    PAIR = 6  # emits nodes, for complex numbers whose parts are values of a graph
    COMPOSITE = 7  # computes and records, within a function of several ops
    BATCH = 8  # computes for a batch
    TERM = 9  # records, in the analysis of a derivative rule


class Carrier:
    """A value other than an ndarray that ops can be applied to; the highest `level` among operands decides.

    A subclass defines `aval`, or `shape` and `dtype`.

    `accepts_unconformed`: its `bind` takes the operands of an elementwise op as they are, neither broadcast nor
    promoted.
    """

    __slots__ = ()
    level = DispatchLevel.PLAIN
    weak = False
    accepts_unconformed = False
    # A function from (dtype or class of a number, number of axes) pairs to the result dtype; None for NumPy's rules.
    common_dtype: Any = None

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, np.dtype(self.dtype))

    @property
    def shape(self) -> Shape:
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        return self.aval.dtype

    def bind(self, op: Op[Results], operands: tuple[object, ...], params: dict[str, object]) -> Results:
        raise NotImplementedError

    def zero_d(self) -> Operand:
        """This value as a zero-dimensional array, which can be updated, instead of a scalar."""
        return self

    def preserve_kind(self, result: Operand) -> Operand:
        """`result`, a view of this value, as a scalar if this value is a scalar, else as an array."""
        return result

    def composed(
        self, name: str, fn: Callable[..., Results], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Results:
        """Apply `fn(*args, **kwargs)`, a function of several ops, as one operation called `name` if the carrier
        supports it."""
        return fn(*args, **kwargs)

    def beyond(self, dtype: DType) -> Number | None:
        """The Python number of a `weak` value, if it is known not to fit `dtype`."""
        return None

    def refusal(self, why: str) -> BaseException:
        """The exception to raise if no carrier of this kind can represent a conversion."""
        return UnsupportedError(located(why))

    def is_valid_index(self, length: int) -> bool:
        """Whether this is known to be an integer from 0 to `length` - 1."""
        return False

    def whole(self, xs: Sequence[object]) -> Operand | None:
        """The array whose rows `xs` are, starting with this value; None if there is no such array."""
        return None

    def named(self, name: str, copies_result: bool = False) -> Self:
        """This result of an op, named after the user's operation `name`; see `named`."""
        return self


class Holder(Carrier):
    """A carrier that holds an array: an ndarray or another carrier."""

    __slots__ = ()
    array: Any

    @property
    def aval(self) -> Aval:
        return Aval(self.array.shape, self.array.dtype)

    @property
    def shape(self) -> Shape:
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> DType:
        return self.array.dtype  # type: ignore[no-any-return]


class TapeCarrier(Holder):
    """A carrier that records on a tape: a Tensor, or an array inside an eager derivative. `torch.tape` makes them."""

    __slots__ = ()
    _public_class: Any  # the public class of values of this kind, unless the user has subclassed it

    def _like(self, array: object) -> Self:
        """A value of the same public class that holds `array`."""
        raise NotImplementedError


class TensorCarrier(TapeCarrier):
    """A carrier that is a Tensor."""

    __slots__ = ()

    @property
    def shape(self) -> Shape:
        return SIZES[self.array.shape]

    @property
    def dtype(self) -> DType:
        return TENSOR_DTYPES[self.array.dtype]


Operand: TypeAlias = Array | Carrier | np.generic | Number  # what ops take


class Abstract(Carrier):
    """A carrier known only by its aval."""

    __slots__ = ("_aval",)

    def __init__(self, aval: Aval):
        self._aval = aval

    @property
    def aval(self) -> Aval:
        return self._aval


Entry = tuple[Any, "Op", tuple[Any, ...], dict[str, Any]]


class Term(Abstract):
    """Symbolic operand, which records the ops applied to it: entries `(result, op, operands, params)` of one tape."""

    __slots__ = ("tape",)
    level = DispatchLevel.TERM

    def __init__(self, aval: Aval, tape: list[Entry]):
        super().__init__(aval)
        self.tape = tape

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        result = self.alike(op.aval(*[x if type(x) in LITERALS else aval_of(x) for x in operands], **params))
        self.tape.append((result, op, operands, params))
        return result

    def alike(self, aval: Any) -> Any:
        """Return a term of this aval with the same tape, or a tuple of terms for several results."""
        return type(self)(aval, self.tape) if isinstance(aval, Aval) else tuple([self.alike(a) for a in aval])


def dispatch_operand(xs: Iterable[object]) -> Carrier | None:
    """The dispatching carrier: the highest level among `xs`, including items of lists and tuples; None if there is
    none."""
    result: Carrier | None = None
    level = DispatchLevel.PLAIN
    for x in xs:
        if isinstance(x, Carrier):
            if x.level > level:
                result, level = x, x.level
        elif isinstance(x, _SEQUENCES) and (inner := dispatch_operand(x)) is not None and inner.level > level:
            result, level = inner, inner.level
    return result


_SEQUENCES = (list, tuple)


def one_node(name: str) -> Callable[[Callable[Args, Results]], Callable[Args, Results]]:
    """Make a function of several ops one node `name` of the eager tape.

    Its arrays are positional arguments, or lists of them; it may return a tuple of arrays.
    """

    def declare(fn: Callable[Args, Results]) -> Callable[Args, Results]:
        @functools.wraps(fn)
        def call(*args: Args.args, **kwargs: Args.kwargs) -> Results:
            owner = dispatch_operand(args)
            return fn(*args, **kwargs) if owner is None else owner.composed(name, fn, args, kwargs)

        return call

    return declare


def named(name: str, result: Results, copies_result: bool = False) -> Results:
    """`result` of one op, with `name` as the name of its node on the eager tape.

    With `copies_result` the node has its own copy of the result if its rule reads it, because the result may be updated
    in place.
    """
    if isinstance(result, tuple):
        return tuple([named(name, x, copies_result) for x in result])  # type: ignore[return-value]
    return result.named(name, copies_result) if isinstance(result, Carrier) else result
