"""Define the op table: the record of an op, its declaration, and its application.

An op is defined once, in one section of one module of this package. It has

- `impl`, its NumPy meaning: eager mode, and the reference for everything else;
- `aval`, its shape and dtype rule, which is also the verifier's rule;
- `vjp` rules, one per operand, written in ops: `rule(ct, ans, *operands, **params)` is the cotangent of the operand; or
  one for all of them (`def_vjp_all`);
- its forward-mode rule: `linear_in`, `separately_linear` or a rule (`def_jvp`); by default the vjp rules are
  transposed;
- `batch`, its rule for a batch of operands, if working along leading axes is not enough (`def_batch`);
- `samples`, operands to test it on;
- `form`, its structural kind (`tracegrad.ops.core.forms`): elementwise, data movement, reduction, ... For the general
  form `Call`, compiled code calls `impl`.

Other properties are declared with the op, as traits of `Op`.

An op may have several results: then `impl` and `aval` return tuples (of avals: `ResultAvals`), applying it returns a
tuple, and its rules get tuples for `ct` (None where a cotangent is zero) and `ans`.

Arrays are positional operands, everything static is a keyword parameter. `bind` is the one way to apply an op: the
operands decide whether it computes (ndarray), computes and records on a tape (Tensor) or emits a node (Tracer).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from tracegrad.avals import LITERALS, Aval, aval_of
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ops.core.dispatch import Carrier, DispatchLevel, Entry, Operand, Term, dispatch_operand, named, one_node
from tracegrad.ops.core.forms import Call, Compose, Form, Map, Move
from tracegrad.ops.core.half_rounding import in_single
from tracegrad.ops.core.recorders import RECORDERS
from tracegrad.typing import Array, Axes, NDArray, Number, Results, Rule
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = [
    "AS_WRITTEN",
    "HOLOMORPHIC",
    "TABLE",
    "Carrier",
    "DispatchLevel",
    "Op",
    "ResultAvals",
    "bind",
    "dispatch_operand",
    "multi_result",
    "named",
    "one_node",
    "primitive",
    "refusing_complex",
]

TABLE: dict[str, Op] = {}

# Validity for complex numbers of derivative rules, which are written for real numbers. AS_WRITTEN: they hold as they
# are, because the op is linear with real coefficients, or because they are written for both. HOLOMORPHIC: they hold up
# to conjugation, because the op is holomorphic.
AS_WRITTEN, HOLOMORPHIC = "as written", "holomorphic"

Sample = tuple[tuple[Any, ...], dict[str, Any]]


class ResultAvals(tuple[Aval, ...]):
    """The avals of an op with several results.

    >>> import numpy as np
    >>> print(ResultAvals((Aval((), np.dtype("float64")), Aval((2,), np.dtype("int64")))))
    f64[], i64[2]
    """

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self)) + "," * (len(self) == 1)


def bind(op: Op[Results], operands: tuple[Any, ...], params: dict[str, Any]) -> Results:
    """Apply `op` to operands that already conform to it."""
    kinds = tuple(map(type, operands))
    cached_bind = op.dispatch_cache.get(kinds)
    return _bound(op, kinds, operands, params) if cached_bind is None else cached_bind(operands, params)


def _bound(op: Op[Results], kinds: tuple[type, ...], operands: tuple[Any, ...], params: dict[str, Any]) -> Results:
    """As `bind`, for operand kinds that have no cached dispatch yet."""
    owner, level = None, DispatchLevel.PLAIN
    for x in operands:  # as `dispatch_operand` does
        if isinstance(x, Carrier) and x.level > level:
            owner, level = x, x.level
    if owner is not None:
        return owner.bind(op, operands, params)
    if not operands and (recorder := RECORDERS.current) is not None:
        return recorder.bind(op, operands, params)  # type: ignore[no-any-return]
    if op.binds_as_is and kinds and all(kind is np.ndarray for kind in kinds):
        op.dispatch_cache[kinds] = op.compute
    return op.compute(operands, params)


_CALL = Call()


class Op(Generic[Results]):
    """One row of the op table.

    `variadic` ops take any number of operands, and `operands` names the first ones; their rules take the position as
    first argument. The traits:

    - `on_complex`: the validity of the rules for complex numbers, `AS_WRITTEN` or `HOLOMORPHIC`; if empty, the op
      refuses complex operands;
    - `aliases`: the result is a view of the first operand if NumPy makes a view; `def_view_update` defines how an
      update of
      the view changes the operand;
    - `piecewise_constant`: of one operand, piecewise constant: its derivative is 0 wherever it exists;
    - `piecewise_linear`: of one operand, piecewise linear: its derivative is piecewise constant in the operand;
    - `pointwise`: each element of the result depends only on the operands' elements at the same index;
    - `order`: NumPy's memory order of the result (`tracegrad.ops.core.memory_order`), unless the form gives it;
    - `exact`: floating results are exact in the operand dtype, so nothing has to be rounded;
    - `typed`: the result depends on the dtype too, and not only on the values;
    - `impl_unchecked`: `impl` without the check for float16 operands;
    - `commutative`: exchanging the operands gives the same bits, except for the payload of a nan.
    """

    commutative = False
    exact = False
    typed = False
    on_complex = ""
    aliases = False
    piecewise_constant = False
    piecewise_linear = False
    # Whether a call takes its operands as `bind` does, without making them conform.
    binds_as_is = True

    def __init__(
        self,
        name: str,
        operands: tuple[str, ...],
        impl: Callable[..., Any],
        doc: str,
        variadic: bool,
        form: Form = _CALL,
        listed: bool = True,
    ):
        self.name, self.operands, self.impl, self.__doc__ = name, operands, impl, doc
        self.variadic, self.form = variadic, form
        self.pointwise = isinstance(form, Map)
        self.impl_unchecked = getattr(impl, "of_others", impl)
        self.aval: Callable[..., Aval] = self._no_aval
        self.samples: Callable[[], Iterable[Sample]] | None = None
        self.view_update: Callable[..., Any] | None = None
        self.view = impl  # for `aliases`: returns the view, or None where `impl` copies; reads no elements
        self.result_rules: dict[int, Callable[..., Any]] = {}
        self.impl_out: Callable[..., Any] | None = None
        self.native_equivalent: Callable[..., Any] | None = None
        self._vjp: dict[int, Callable[..., Any]] = {}
        self._vjp_all: Callable[..., Sequence[Any]] | None = None
        self._batch: Callable[..., Any] | None = None
        self._jvp: Callable[..., Any] | None = None
        self._order = ""
        # Dispatch cache: for the classes of the operands, a function of operands and parameters that a carrier has
        # stored. `bind` calls it without determining the dispatching carrier.
        self.dispatch_cache: dict[tuple[type, ...], Callable[..., Results]] = {}
        if listed and TABLE.setdefault(name, self) is not self:
            raise ValueError(f"op {name} is defined twice")

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *operands: Operand, **params: object) -> Results:
        kinds = tuple(map(type, operands))
        cached_bind = self.dispatch_cache.get(kinds)
        return _bound(self, kinds, operands, params) if cached_bind is None else cached_bind(operands, params)

    def compute(self, operands: tuple[Operand, ...], params: Mapping[str, object]) -> Results:
        """The results for ndarrays and numbers."""
        before = traps()
        try:
            set_traps(QUIET)
            result = self.impl(*operands, **params)
        finally:
            restore_traps(before)
        if result.__class__ is np.ndarray:
            return result  # type: ignore[return-value]
        return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)  # type: ignore[return-value]

    def _no_aval(self, *avals: object, **params: object) -> Aval:
        raise NotImplementedError(f"op {self.name} has no shape rule")

    # -- rules, each given once, right under the op --------------------------------------
    def def_aval(self, rule: Callable[..., Aval | ResultAvals]) -> Callable[..., Aval | ResultAvals]:
        self.aval = rule  # type: ignore[assignment]
        return rule

    def def_samples(self, rule: Callable[[], Iterable[Sample]]) -> Callable[[], Iterable[Sample]]:
        self.samples = rule
        return rule

    def def_reads(self, rule: Rule) -> Rule:
        """Define the index map of a `Move`: see `tracegrad.ops.core.index_maps`."""
        assert isinstance(self.form, Move)
        self.form = dataclasses.replace(self.form, reads=rule)
        return rule

    def def_view_update(self, rule: Rule) -> Rule:
        """Define the view update of an op that `aliases`: `rule(base, new, **params)` is `base` with the view replaced
        by `new`.

        For an op with several results, `number=` selects the replaced result.
        """
        self.view_update = rule
        return rule

    def def_decompose(self, rule: Rule) -> Rule:
        """Define the op in terms of simpler ops; its form becomes `Compose`."""
        self.form = Compose(rule)
        return rule

    def def_result_rule(self, index: int) -> Callable[[Rule], Rule]:
        """Define a single result of an op with several: `rule(*operands, **params)` is result `index`, if no other is
        used."""

        def declare(rule: Rule) -> Rule:
            self.result_rules = {**self.result_rules, index: rule}
            return rule

        return declare

    def def_native_equivalent(self, rule: Rule) -> Rule:
        """Define the op that this op calls: `rule(*avals, **params)` gives the op, its parameters, and the avals of its
        operands and its result, which share memory with those of this op."""
        self.native_equivalent = rule
        return rule

    def def_impl_out(self, rule: Rule) -> Rule:
        """Define an output variant: `rule(out, *operands, **params)` writes the result of `impl` into `out`."""
        self.impl_out = rule
        return rule

    def def_vjp(self, operand: str) -> Callable[[Rule], Rule]:
        def declare(rule: Rule) -> Rule:
            self._vjp[self.operands.index(operand)] = rule
            return rule

        return declare

    def def_vjp_all(self, rule: Callable[..., Sequence[object]]) -> Callable[..., object]:
        """Define one VJP rule for all operands: `rule(wanted, ct, ans, *operands, **params)` gives the cotangents
        (None: zero) of the operands at the positions `wanted`."""
        self._vjp_all = rule
        return rule

    def def_jvp(self, rule: Rule) -> Rule:
        """Define the forward-mode rule: `rule(tangents, ans, *operands, **params)` is the tangent of the result.

        `tangents` has None for zero, but at least one tangent. For an op with several results the rule returns a tuple.
        """
        self._jvp = rule
        return rule

    def linear_in(self, *names: str) -> None:
        """Declare the op linear in these operands together: its tangent is the op applied to their tangents."""
        positions = self._operand_positions(names)

        def rule(tangents: Sequence[Any], ans: Array, *operands: Array, **params: object) -> Any:
            moved = [
                _moved(x, t) if self.variadic or i in positions else x
                for i, (x, t) in enumerate(zip(operands, tangents))
            ]
            return self(*moved, **params)

        self._jvp = self._for_tangents_of(positions, rule)

    def separately_linear(self, *names: str) -> None:
        """Declare the op linear in each of these operands with the others fixed, as a product."""
        positions = self._operand_positions(names)

        def rule(tangents: Sequence[Any], ans: Array, *operands: Array, **params: Any) -> Any:
            moved = [i for i in positions if tangents[i] is not None]
            shares = [self(*operands[:i], tangents[i], *operands[i + 1 :], **params) for i in moved]
            accumulate: Callable[..., Any] = TABLE["accumulate"]
            return functools.reduce(accumulate, shares)

        self._jvp = self._for_tangents_of(positions, rule)

    def _operand_positions(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple([self.operands.index(name) for name in names])

    def _for_tangents_of(self, positions: tuple[int, ...], rule: Callable[..., object]) -> Callable[..., object]:
        """`rule` if only the operands at `positions` have tangents, else the transpose of the VJP."""
        if self.variadic or len(positions) == len(self.operands):
            return rule

        def either(tangents: tuple[Array | None, ...], ans: Array, *operands: Array, **params: Any) -> Any:
            if any(t is not None and i not in positions for i, t in enumerate(tangents)):
                return transposed(self, tangents, ans, operands, params)
            return rule(tangents, ans, *operands, **params)

        return either

    def def_batch(self, rule: Rule) -> Rule:
        """Define the batching rule: `rule(size, batched, *operands, **params)`, as for `batch`.

        Without a rule an op works along leading axes: it is applied to operands that all have the axis of the batch,
        with its parameters `axis` and `axes`, which count the axes of the operands, one higher.
        """
        self._batch = rule
        return rule

    @property
    def order(self) -> str:
        return self._order or self.form.order

    # -- queries of transforms -------------------------------------------------------------
    def differentiable_in(self, i: int) -> bool:
        return self._vjp_all is not None or (0 if self.variadic else i) in self._vjp

    @property
    def differentiable(self) -> bool:
        return bool(self._vjp) or self._vjp_all is not None

    @property
    def pulls_all(self) -> bool:
        """Whether one rule gives the cotangents of all operands."""
        return self._vjp_all is not None

    def pull_all(
        self, wanted: Sequence[int], ct: object, ans: Any, operands: tuple[Any, ...], params: Mapping[str, object]
    ) -> Sequence[Array | None]:
        """The cotangents (None: zero) of the operands at the positions `wanted`, given the cotangent of the result."""
        if type(ct) is tuple and _all_zero(ct):
            return [None for _ in wanted]
        if self._vjp_all is not None:
            return self._vjp_all(wanted, ct, ans, *operands, **params)
        return [self.pull(i, ct, ans, operands, params) for i in wanted]

    def pull(self, i: int, ct: Any, ans: Any, operands: tuple[Any, ...], params: Mapping[str, object]) -> Any:
        """The cotangent of operand `i`, given the cotangent of the result."""
        if self._vjp_all is not None:
            return self._vjp_all([i], ct, ans, *operands, **params)[0]
        if type(ct) is not tuple and self.on_complex is not AS_WRITTEN and ct.dtype.kind == "c":
            return self._pull_of_complex(i, ct, ans, operands, params)
        if self.variadic:
            return self._vjp[0](i, ct, ans, *operands, **params)
        return self._vjp[i](ct, ans, *operands, **params)

    def _pull_of_complex(
        self, i: int, ct: Array, ans: Operand | None, operands: tuple[Array | None, ...], params: Mapping[str, object]
    ) -> Any:
        """`pull` for a holomorphic op: the cotangent times the conjugate of the derivative, which is the derivative at
        the conjugate operands, because a rule has real coefficients."""
        if self.on_complex is not HOLOMORPHIC:
            raise UnsupportedError(located(f"the derivative of {self.name} of complex numbers is not known"))
        return self._vjp[i](ct, _conjugate(ans, ct), *[_conjugate(x, ct) for x in operands], **params)

    def push(self, tangents: Sequence[Any], ans: Any, operands: tuple[Any, ...], params: Mapping[str, object]) -> Any:
        """The tangent of the result (None for zero; a tuple for an op with several results), given the operand
        tangents: None for zero, and for operands without derivatives."""
        if all(t is None for t in tangents):
            return (None,) * len(ans) if type(ans) is tuple else None
        if self._jvp is not None:
            return self._jvp(tangents, ans, *operands, **params)
        return transposed(self, tangents, ans, operands, params)

    def batch(self, size: int, batched: Sequence[bool], operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """The results for a batch of `size`, along axis 0. The `batched` operands, at least one, have the batch along
        axis 0 too; the others are shared by all examples."""
        if self._batch is not None:
            return self._batch(size, tuple(batched), *operands, **params)
        args = [
            x if is_batched or type(x) in LITERALS else TABLE["broadcast_to"](x, shape=(size, *x.shape))
            for x, is_batched in zip(operands, batched)
        ]
        shifted = dict(params)
        if "axis" in params:
            shifted["axis"] = params["axis"] + 1
        if "axes" in params:
            shifted["axes"] = tuple([a + 1 for a in params["axes"]])
        return bind(self, tuple(args), shifted)

    def sample_cases(self) -> Iterator[Sample]:
        yield from self.samples() if self.samples else ()


def _conjugate(x: Any, like: Array) -> Any:
    """The complex conjugate of an operand, or of the placeholder of one that was not saved, in the dtype of `like`.

    A real operand becomes complex too, because the logarithm of the negative base of a complex power is complex.
    """
    if type(x) in LITERALS:
        return complex(x).conjugate()
    if not isinstance(x, np.ndarray | np.generic | Carrier):
        return x
    dtype = x.dtype
    return TABLE["conj"](x if dtype == like.dtype else TABLE["cast"](x, dtype=like.dtype.name))


def _all_zero(cts: tuple[Operand | None, ...]) -> bool:
    for ct in cts:  # noqa: SIM110 (a loop is faster)
        if ct is not None:
            return False
    return True


def _moved(x: Array | Number, t: Array) -> Array:
    """The tangent of an operand in which an op is linear; an index is unchanged."""
    if t is not None:
        return t
    if type(x) in LITERALS:
        return 0.0
    return x if x.dtype.kind not in "fc" else TABLE["full"](shape=x.shape, value=0.0, dtype=x.dtype.name)


class SymbolicCotangent(Term):
    """Symbolic cotangent, to which only linear ops are applied."""

    __slots__ = ()

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if any(isinstance(x, SymbolicCotangent) and not op.differentiable_in(i) for i, x in enumerate(operands)):
            raise TypeError(f"{op.name} is not linear: a rule that applies it to cotangents cannot be transposed")
        return super().bind(op, operands, params)


def transposed(
    op: Op, tangents: Sequence[Any], ans: Any, operands: tuple[Any, ...], params: Mapping[str, object]
) -> Any:
    """`push` derived from the VJP rules: a rule is linear in the cotangent, and its transpose maps tangents.

    The rules are applied to terms, which record their operations; the recording is swept backwards from the tangents.
    All operations are ops, so this works for ndarrays, Tensors and values of a graph, and can be differentiated again.
    """
    tape: list[Entry] = []
    is_multi_result = type(ans) is tuple
    terms = [
        SymbolicCotangent(aval_of(y), tape) if y.dtype.kind in "fc" else None
        for y in (ans if is_multi_result else (ans,))
    ]
    wanted = [i for i, t in enumerate(tangents) if t is not None]
    pulled = op.pull_all(wanted, tuple(terms) if is_multi_result else terms[0], ans, operands, params)
    table: dict[Any, Any] = {}

    def arrive(term: Any, t: Array) -> None:
        if isinstance(t, SymbolicCotangent):
            raise TypeError(f"the vjp rule of {op.name} is not linear in the cotangent: give it a rule by def_jvp")
        if isinstance(term, SymbolicCotangent) and t is not None:
            table[term] = TABLE["accumulate"](table[term], t) if term in table else t

    for i, ct in zip(wanted, pulled):
        arrive(ct, tangents[i])
    for result, tape_op, args, inputs in reversed(tape):
        if result in table:
            for i, x in enumerate(args):
                if isinstance(x, SymbolicCotangent):
                    arrive(x, tape_op.pull(i, table[result], result, args, inputs))
    return tuple(map(table.get, terms)) if is_multi_result else table.get(terms[0])


def primitive(
    form: Form = _CALL, *, on_complex: str | None = None, aliases: bool = False, order: str = "", typed: bool = False
) -> Callable[[Callable[..., Any]], Op[Array]]:
    """Declare an op by decorating its NumPy implementation: positional arguments are operands, keywords params.

    Rules that only move cotangents are right for complex numbers as they are, unless `on_complex` says "".
    """

    def declare(impl: Callable[..., object]) -> Op[Array]:
        code = impl.__code__
        variadic = bool(code.co_flags & inspect.CO_VARARGS)
        names = code.co_varnames[: code.co_argcount]
        if variadic:
            names += (code.co_varnames[code.co_argcount + code.co_kwonlyargcount],)
        complex_rules = (AS_WRITTEN if form.moves else "") if on_complex is None else on_complex
        computed = impl if complex_rules else refusing_complex(impl.__name__, impl)
        if form.rounds and not typed:
            computed = in_single(computed)
        op: Op[Array] = Op(impl.__name__, names, computed, impl.__doc__ or "", variadic, form)
        op.on_complex, op.aliases, op._order, op.typed = complex_rules, aliases, order, typed
        return op

    return declare


def multi_result(
    form: Form = _CALL, **traits: Any
) -> Callable[[Callable[..., tuple[NDArray, ...]]], Op[tuple[Array, ...]]]:
    """As `primitive`, for an op with several results."""
    declaration: Any = primitive(form, **traits)
    return declaration  # type: ignore[no-any-return]


def refusing_complex(name: str, impl: Callable[..., object]) -> Callable[..., object]:
    """Wrap `impl` of the op `name` to refuse complex operands."""

    @functools.wraps(impl)
    def call(*operands: Array, **params: object) -> Any:
        for x in operands:
            if type(x) not in LITERALS and x.dtype.kind == "c":
                raise UnsupportedError(located(f"{name} of complex numbers is not supported"))
        return impl(*operands, **params)

    return call


def normalize_axis(name: str, axis: int, ndim: int) -> int:
    """`axis` counted from the front; NumPy's AxisError names the op when there is no such axis."""
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(located(f"{name}: axis {axis} is out of bounds for an array of {ndim} axes"))
    return axis % ndim


def normalize_axes(name: str, axis: Axes, ndim: int) -> tuple[int, ...]:
    """The axes named by NumPy's `axis=None | int | tuple`, counted from the front, in order, each once."""
    if axis is None:
        return tuple(range(ndim))
    operands = (axis,) if not isinstance(axis, tuple | list) else tuple(axis)
    if not all(hasattr(a, "__index__") for a in operands):
        raise TypeError(located(f"{name}: an axis is an integer, got axis={axis!r}"))
    axes = tuple(normalize_axis(name, a.__index__(), ndim) for a in operands)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: an axis is given twice in {operands}")
    return tuple(sorted(axes))
