"""Declare elementwise ops, each in one statement.

    exp = elementwise("exp(x)", np.exp, "exp(x)", lambda t, ans, x: multiply(t, ans), domain=(-2, 2), doc="...")

The arguments are the signature, the NumPy function, the scalar template, and one rule per operand (None without a
derivative). A rule `rule(t, ans, *operands)` is linear in `t` and serves as vjp and jvp alike.
The call broadcasts and promotes once, with explicit `broadcast_to` and `cast`; rules and codegen only ever see operands
of one shape.

`loop` gives the dtypes in which an op computes: a NumPy ufunc (its own type resolution applies), or a function from
the operand dtypes (Python types for literals) to the dtypes of operands and result.

`moves` states that the rules multiply by nothing, as in `Form`; the rules then hold for complex numbers, too.

The scalar template is an expression in the operands: `+ - * / < <= == != > >=`, unary `-`, literals, and calls of the
scalar functions of `tracegrad.codegen.loopir.scalar_templates`. With `scalar=None` compiled code calls `impl`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, SUPPORTED, Aval, aval_of, is_literal, literal_of, name_of, weak_dtype
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.ops.core.dispatch import Operand
from tracegrad.ops.core.forms import Map
from tracegrad.ops.core.half_rounding import in_single
from tracegrad.ops.core.op import AS_WRITTEN, TABLE, Carrier, Op, Sample, bind, dispatch_operand
from tracegrad.ops.core.samples import uniform
from tracegrad.typing import Array, DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Loop = tuple[np.dtype[Any], ...]


class UndefinedLoopError(DTypeError, RuntimeError):
    """An elementwise op is not defined for these dtypes: a TypeError as in NumPy, and a RuntimeError as in PyTorch."""

    _numpys: Any = TypeError


class Elementwise(Op[Array]):
    """An elementwise op on arrays of one shape."""

    binds_as_is = False

    def __init__(
        self,
        name: str,
        operands: tuple[str, ...],
        impl: Callable[..., Any],
        doc: str,
        *,
        scalar: str | None,
        rules: tuple[Callable[..., object] | None, ...],
        loop: Any,
        on_complex: str = "",
        aliases: bool = False,
        moves: bool = False,
        piecewise_constant: bool = False,
    ):
        computed = impl if isinstance(impl, np.ufunc) else in_single(impl)
        super().__init__(name, operands, computed, doc, variadic=False, form=Map(scalar, moves))
        self.on_complex, self.aliases = on_complex or (AS_WRITTEN if moves else ""), aliases
        self.piecewise_constant = piecewise_constant
        self.aval = self._aval
        self.loop_dtypes: Callable[..., Loop] = lru_cache(maxsize=4096)(self._resolver(loop))
        self._floating = self._has_float_loop()
        self._has_float_result = (
            self._floating and self.loop_dtypes(*[np.dtype(np.float64)] * len(self.operands))[-1] == np.float64
        )
        for i, rule in enumerate(rules):
            if rule is not None:
                self._vjp[i] = rule

    def _has_float_loop(self) -> bool:
        double = (np.dtype(np.float64),) * len(self.operands)
        try:
            return self.loop_dtypes(*double)[:-1] == double
        except DTypeError:
            return False

    def _resolver(self, loop: Any) -> Callable[..., Loop]:
        def resolve(*dtypes: DType | type) -> Loop:
            # bool is the lowest dtype, and not weak
            dtypes = tuple(d if isinstance(d, type) and d is not bool else np.dtype(d) for d in dtypes)
            if all(d is int for d in dtypes):
                dtypes = (np.dtype(np.int64),) * len(dtypes)  # NumPy compares two Python integers as objects
            try:
                result = loop.resolve_dtypes((*dtypes, None)) if isinstance(loop, np.ufunc) else loop(*dtypes)
            except TypeError as error:
                operands = ", ".join(getattr(d, "__name__", str(d)) for d in dtypes)
                raise UndefinedLoopError(f"{self.name} is not defined for dtypes ({operands}): {error}") from None
            for dtype in result:
                if dtype.kind == "c" and not self.on_complex:
                    raise DTypeError(located(f"{self.name} is not defined for complex numbers"))
                if dtype not in SUPPORTED:
                    raise DTypeError(f"{self.name} of these operands would compute in {dtype}, which is not supported")
            return tuple(result)

        return resolve

    def __call__(self, *operands: Operand, **params: object) -> Array:
        if len(operands) != len(self.operands):
            raise TypeError(f"{self.name} takes {len(self.operands)} operands, got {len(operands)}")
        cached_bind = self.dispatch_cache.get(tuple(map(type, operands)))
        if cached_bind is not None:
            return cached_bind(operands, params)
        owner = dispatch_operand(operands)
        if owner is not None and owner.accepts_unconformed:
            return owner.bind(self, operands, {})
        if self._floating and (ready := _conforming(operands)) is not None:
            return bind(self, ready, {}) if owner is None else owner.bind(self, ready, {})
        if all(map(is_literal, operands)):
            return bind(self, operands, {}).item()  # type: ignore[attr-defined, no-any-return]
        return bind(self, self.conformed(operands), {})

    def conformed(self, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The operands, at least one of them an array, broadcast to one shape and cast to the dtypes of the
        computation."""
        arrays = [x for x in operands if type(x) not in LITERALS]
        loop = self.loop_dtypes(*map(weak_dtype, operands))
        shape = self.shape_of(operands, arrays)
        conformed = [conform(x, shape, dtype) for x, dtype in zip(operands, loop)]
        self._anchor(conformed, shape, loop)
        return tuple(conformed)

    def push(self, tangents: Sequence[Any], ans: Any, operands: tuple[Any, ...], params: Mapping[str, object]) -> Any:
        # The rules act on each element by itself, so they are their own transposes. For complex numbers, only the rules
        # of holomorphic ops are.
        moved = [i for i, t in enumerate(tangents) if t is not None]
        as_written = self.on_complex is AS_WRITTEN and "c" in (ans.dtype.kind, *(tangents[i].dtype.kind for i in moved))
        if self._jvp is not None or not moved or as_written:
            return super().push(tangents, ans, operands, params)
        return functools.reduce(TABLE["accumulate"], [self._vjp[i](tangents[i], ans, *operands) for i in moved])

    def shape_of(self, operands: tuple[Operand, ...], arrays: list[Any]) -> tuple[int, ...]:
        first: tuple[int, ...] = arrays[0].shape
        for x in arrays:
            if x.shape != first:
                break
        else:
            return first
        try:
            return np.broadcast_shapes(*(x.shape for x in arrays))
        except ValueError:
            shapes = ", ".join(str(x) if is_literal(x) else str(aval_of(x)) for x in operands)
            raise ShapeError(f"{self.name}: shapes cannot be broadcast together: {shapes}") from None

    @staticmethod
    def _anchor(operands: list[Array], shape: tuple[int, ...], loop: Loop) -> None:
        """Ensure an array operand for each loop dtype, so that the avals follow from the operands."""
        if LITERALS.isdisjoint(map(type, operands)):
            return
        for dtype in set(loop[:-1]):
            same_dtype = [i for i, d in enumerate(loop[:-1]) if d == dtype]
            if all(is_literal(operands[i]) for i in same_dtype):
                value = operands[same_dtype[0]]
                constant = TABLE["full"](shape=(), value=value, dtype=name_of(dtype))
                operands[same_dtype[0]] = TABLE["broadcast_to"](constant, shape=shape) if shape else constant

    def _aval(self, *operands: Any) -> Aval:
        result = self._usual(operands) if self._has_float_result else None
        return self._general(operands) if result is None else result

    def _usual(self, operands: tuple[Any, ...]) -> Aval | None:
        """The aval of the result, if it equals the aval of each operand, except floating literals."""
        result: Any = None
        for x in operands:
            if type(x) is float:
                continue
            if result is None:
                result = x
            if type(x) in LITERALS or x.dtype is not result.dtype or x.shape != result.shape:
                return None
        return result if result is not None and result.dtype.kind == "f" else None

    def _general(self, operands: tuple[Any, ...]) -> Aval:
        shape = None
        kinds: list[Any] = []
        for a in operands:
            if type(a) in LITERALS:
                kinds.append(type(a))
                continue
            kinds.append(a.dtype)
            if shape is None:
                shape = a.shape
            elif a.shape != shape:
                break
        if shape is None or len(kinds) < len(operands):
            raise ShapeError(f"{self.name} wants operands of one shape, got {', '.join(map(str, operands))}")
        loop = self.loop_dtypes(*kinds)
        for kind, dtype in zip(kinds, loop):
            if kind is not dtype and kind not in LITERALS and kind != dtype:
                raise DTypeError(f"{self.name} computes in {dtype}, got {', '.join(map(str, operands))}")
        return Aval(shape, loop[-1])


def _conforming(operands: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The operands of an op that computes in their dtype, if nothing has to be broadcast, cast or promoted; else None.

    This is a fast path for the common case: one shape, one floating dtype, and literals.
    """
    dtype = shape = None
    literals = False
    for x in operands:
        if type(x) in LITERALS:
            if type(x) is complex:
                return None
            literals = True
        elif dtype is None:
            dtype, shape = x.dtype, x.shape
            if dtype.kind != "f" or getattr(x, "weak", False):
                return None
        elif x.dtype is not dtype or x.shape != shape or getattr(x, "weak", False):
            return None
    if dtype is None or dtype not in SUPPORTED:
        return None
    return tuple([float(x) if type(x) in LITERALS else x for x in operands]) if literals else operands


def conform(x: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """`x` with the dtype and shape of the computation; literals stay literals."""
    if is_literal(x):
        return literal_of(x, dtype)
    if x.dtype != dtype:
        beyond = x.beyond(dtype) if isinstance(x, Carrier) and x.weak else None
        if beyond is not None:
            return literal_of(beyond, dtype)
        x = TABLE["cast"](x, dtype=name_of(dtype))
    if x.shape != shape:
        x = TABLE["broadcast_to"](x, shape=shape)
    return x


def same_loop(*dtypes: DType | type) -> Loop:
    """Loop rule: all operands and the result have the promoted dtype."""
    dtype = promote(dtypes)
    return (dtype,) * (len(dtypes) + 1)


def float_loop(*dtypes: DType | type) -> Loop:
    """Loop rule: as `same_loop`, with integers and booleans promoted to float64 (small ones too; NumPy uses
    float16)."""
    dtype = promote(dtypes)
    return (dtype if dtype.kind in "fc" else np.dtype(np.float64),) * (len(dtypes) + 1)


def promote(dtypes: Any) -> np.dtype[Any]:
    """The common dtype of operands with these `dtypes` (Python types for literals), by NumPy's rules."""
    return np.result_type(*(d(0) if isinstance(d, type) else d for d in dtypes))


def elementwise(
    signature: str,
    impl: Callable[..., Any],
    scalar: str | None,
    *rules: Callable[..., object] | None,
    doc: str,
    loop: object = None,
    domain: tuple[float, float] | None = (-2, 2),
    on_complex: str = "",
    aliases: bool = False,
    moves: bool = False,
    piecewise_constant: bool = False,
) -> Elementwise:
    """Declare an elementwise op in one statement; its samples are reals from `domain`."""
    name, inside = signature[:-1].split("(")
    operands = tuple(inside.split(", "))
    op = Elementwise(
        name,
        operands,
        impl,
        doc,
        scalar=scalar,
        rules=rules,
        loop=loop or impl,
        on_complex=on_complex,
        aliases=aliases,
        moves=moves,
        piecewise_constant=piecewise_constant,
    )
    if domain:
        low, high = domain

        @op.def_samples
        def _() -> Iterator[Sample]:
            for dtype in ("float64", "float32"):
                yield tuple(uniform((3, 4), low, high, seed=k, dtype=dtype) for k in range(len(operands))), {}

    return op
