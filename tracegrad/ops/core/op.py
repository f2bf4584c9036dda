"""The op table: what an op is, how one is declared, and how one is applied.

An op is defined once, in one section of one module of this package. It has

- `impl`, its NumPy meaning: eager mode, and the reference for everything else;
- `aval`, its shape and dtype rule, which is also the verifier's rule;
- `vjp` rules, one per operand, written in ops: `rule(ct, ans, *operands, **params)` is the cotangent of the operand; or
  one for all of them (`def_vjp_all`);
- what it does to tangents, for forward mode: `linear_in`, `separately_linear` or a rule (`def_jvp`); where nothing is
  said, the vjp rules are transposed;
- `batch`, what it is for a batch of operands, where it is not enough that it works along leading axes (`def_batch`);
- `samples`, operands to test it on;
- `form`, what it is structurally (`tracegrad.ops.core.forms`): an op on elements, a move of data, a reduction, ... Of
  an op of the form `Call`, which is any, compiled code calls `impl`.

And what else others have to know of it is said where it is defined, as a trait of `Op`.

An op may have several results: then `impl` and `aval` give tuples (of avals: `Several`), applying it gives a tuple, and
its rules get tuples for `ct` (None where a cotangent is zero) and `ans`.

Arrays are positional operands, everything static is a keyword parameter. `bind` is the one way to apply an op: the
operands decide whether that computes (ndarray), computes and records on a tape (Tensor) or emits a node (Tracer).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS, Aval, aval_of
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ops.core.dispatch import Abstract, Carrier, Level, lead, named, one_node
from tracegrad.ops.core.forms import Call, Compose, Form, Map, Move
from tracegrad.ops.core.half_rounding import in_single
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps

__all__ = [
    "AS_WRITTEN", "HOLOMORPHIC", "TABLE", "Carrier", "Level", "Op", "Several", "bind", "lead", "named", "one_node",
    "primitive", "refusing_complex",
]  # fmt: skip

TABLE: dict[str, Op] = {}

# What the derivative rules of an op, which are written for real numbers, are for complex ones: right as they stand,
# because the op is linear with real coefficients or because they are written for both; or, because the op is
# holomorphic, right up to conjugation.
AS_WRITTEN, HOLOMORPHIC = "as written", "holomorphic"

Sample = tuple[tuple[Any, ...], dict[str, Any]]


class Several(tuple[Aval, ...]):
    """The avals of an op with several results.

    >>> import numpy as np
    >>> print(Several((Aval((), np.dtype("float64")), Aval((2,), np.dtype("int64")))))
    f64[], i64[2]
    """

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self)) + "," * (len(self) == 1)


def bind(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply `op` to operands that already conform to it."""
    kinds = tuple(map(type, operands))
    way = op.ways.get(kinds)
    return _bound(op, kinds, operands, params) if way is None else way(operands, params)


def _bound(op: Op, kinds: tuple[type, ...], operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """As `bind`, of operands of these kinds, for which there is no way yet."""
    owner, level = None, Level.PLAIN
    for x in operands:  # as `lead` does
        if isinstance(x, Carrier) and x.level > level:
            owner, level = x, x.level
    if owner is not None:
        return owner.bind(op, operands, params)
    if op.ambient is not None and not operands and (recorder := op.ambient()) is not None:
        return recorder.bind(op, operands, params)
    if op.takes_ready and kinds and all(kind is np.ndarray for kind in kinds):
        op.ways[kinds] = op.compute
    return op.compute(operands, params)


_CALL = Call()


class Op:
    """One row of the table.

    `variadic` ops take any number of operands, of which `operands` names the first, and their rules take the position
    first. The traits:

    - `on_complex`: what the rules are for complex numbers, `AS_WRITTEN`, `HOLOMORPHIC`, or nothing at all, and then the
      op refuses them;
    - `aliases`: where NumPy can, it gives the answer as a view of the first operand; `def_put` says what an update of
      that view makes of the operand;
    - `steps`: of one operand, its derivative is 0 wherever there is one;
    - `bends`: of one operand, its derivative depends on that by steps alone;
    - `pointwise`: each element of the answer depends on the operands' elements at the same index alone;
    - `order`: how NumPy lays out the answer in memory (`tracegrad.ops.core.memory_order`), where the form does not say
      it;
    - `exact`: of floating numbers it computes what their dtype has, so that nothing has to be rounded;
    - `typed`: the answer is no function of the values alone, but of the dtype, too;
    - `direct`: `impl` without asking whether there is float16 among the operands;
    - `commutative`: the operands may change places: the result has the same bits, but for the payload of a nan.
    """

    commutative = False
    exact = False
    typed = False
    on_complex = ""
    aliases = False
    steps = False
    bends = False
    # Whether a call takes operands as `bind` does, which need not be made to conform.
    takes_ready = True
    # Ops without operands ask this hook whether a trace is under way; set by the trace layer.
    ambient: Callable[[], Any] | None = None

    def __init__(self, name: str, operands: tuple[str, ...], impl: Callable[..., Any], doc: str, variadic: bool,
                 form: Form = _CALL, listed: bool = True):  # fmt: skip
        self.name, self.operands, self.impl, self.__doc__ = name, operands, impl, doc
        self.variadic, self.form = variadic, form
        self.pointwise = isinstance(form, Map)
        self.direct = getattr(impl, "of_others", impl)
        self.aval: Callable[..., Aval] = self._no_aval
        self.samples: Callable[[], Iterable[Sample]] | None = None
        self.put: Callable[..., Any] | None = None
        self.view = impl  # of an op that `aliases`: the view, or None where `impl` copies, without reading elements
        self.alone: dict[int, Callable[..., Any]] = {}
        self.into: Callable[..., Any] | None = None
        self.meant: Callable[..., Any] | None = None
        self._vjp: dict[int, Callable[..., Any]] = {}
        self._vjp_all: Callable[..., Sequence[Any]] | None = None
        self._batch: Callable[..., Any] | None = None
        self._jvp: Callable[..., Any] | None = None
        self._order = ""
        # By the classes of the operands, the function of operands and parameters that a carrier has put there: what
        # `bind` does for them, without asking who leads.
        self.ways: dict[tuple[type, ...], Callable[..., Any]] = {}
        if listed and TABLE.setdefault(name, self) is not self:
            raise ValueError(f"op {name} is defined twice")

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __call__(self, *operands: Any, **params: Any) -> Any:
        kinds = tuple(map(type, operands))
        way = self.ways.get(kinds)
        return _bound(self, kinds, operands, params) if way is None else way(operands, params)

    def compute(self, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The results for ndarrays and numbers."""
        before = traps()
        try:
            set_traps(QUIET)
            answer = self.impl(*operands, **params)
        finally:
            restore_traps(before)
        if answer.__class__ is np.ndarray:
            return answer
        return tuple(map(np.asarray, answer)) if isinstance(answer, tuple) else np.asarray(answer)

    def _no_aval(self, *avals: Any, **params: Any) -> Aval:
        raise NotImplementedError(f"op {self.name} has no shape rule")

    # -- rules, each given once, right under the op --------------------------------------
    def def_aval(self, rule: Callable[..., Aval | Several]) -> Callable[..., Aval | Several]:
        self.aval = rule  # type: ignore[assignment]
        return rule

    def def_samples(self, rule: Callable[[], Iterable[Sample]]) -> Callable[[], Iterable[Sample]]:
        self.samples = rule
        return rule

    def def_reads(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Where a `Move` reads each element: see `tracegrad.ops.core.index_maps`."""
        assert isinstance(self.form, Move)
        self.form = dataclasses.replace(self.form, reads=rule)
        return rule

    def def_put(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Of an op that `aliases`: `rule(base, new, **params)` is `base` with `new` in the place of the view of it.

        Of one with several results, `number=` says in the place of which.
        """
        self.put = rule
        return rule

    def def_decompose(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The op in terms of simpler ops, which makes its form `Compose`."""
        self.form = Compose(rule)
        return rule

    def def_alone(self, index: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Of an op with several results: `rule(*operands, **params)` is the one at `index`, for where no other is
        used."""

        def declare(rule: Callable[..., Any]) -> Callable[..., Any]:
            self.alone = {**self.alone, index: rule}
            return rule

        return declare

    def def_meant(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Of an op that calls another one: `rule(*avals, **params)` gives that, its parameters, and the avals of its
        operands and its answer, which lie in the memory of these."""
        self.meant = rule
        return rule

    def def_into(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """`rule(out, *operands, **params)` writes the answer, which `impl` would give, into `out`."""
        self.into = rule
        return rule

    def def_vjp(self, operand: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def declare(rule: Callable[..., Any]) -> Callable[..., Any]:
            self._vjp[self.operands.index(operand)] = rule
            return rule

        return declare

    def def_vjp_all(self, rule: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """One rule for all operands: `rule(wanted, ct, ans, *operands, **params)` gives the cotangents (None: zero) of
        the operands at the positions `wanted`."""
        self._vjp_all = rule
        return rule

    def def_jvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The rule of forward mode: `rule(tangents, ans, *operands, **params)` is the tangent of the answer.

        `tangents` has None for zero, but at least one tangent. Of an op with several results the rule gives a tuple.
        """
        self._jvp = rule
        return rule

    def linear_in(self, *names: str) -> None:
        """Say that the op is linear in these operands together, so that it is itself what becomes of their tangents."""
        places = self._places(names)

        def rule(tangents: Sequence[Any], ans: Any, *operands: Any, **params: Any) -> Any:
            moved = [
                _moved(x, t) if self.variadic or i in places else x for i, (x, t) in enumerate(zip(operands, tangents))
            ]
            return self(*moved, **params)

        self._jvp = self._for_tangents_of(places, rule)

    def separately_linear(self, *names: str) -> None:
        """Say that the op is linear in each of these operands, the others held: a product."""
        places = self._places(names)

        def rule(tangents: Sequence[Any], ans: Any, *operands: Any, **params: Any) -> Any:
            moved = [i for i in places if tangents[i] is not None]
            shares = [self(*operands[:i], tangents[i], *operands[i + 1 :], **params) for i in moved]
            return functools.reduce(TABLE["accumulate"], shares)

        self._jvp = self._for_tangents_of(places, rule)

    def _places(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple([self.operands.index(name) for name in names])

    def _for_tangents_of(self, places: tuple[int, ...], rule: Callable[..., Any]) -> Callable[..., Any]:
        """`rule` where the operands at `places` are the only ones with tangents, else the transpose of the vjp."""
        if self.variadic or len(places) == len(self.operands):
            return rule

        def either(tangents: Sequence[Any], ans: Any, *operands: Any, **params: Any) -> Any:
            if any(t is not None and i not in places for i, t in enumerate(tangents)):
                return transposed(self, tangents, ans, operands, params)
            return rule(tangents, ans, *operands, **params)

        return either

    def def_batch(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """The op for a batch: `rule(size, batched, *operands, **params)`, as `batch` has it.

        Without a rule an op works along leading axes: it is applied to operands that all have the axis of the batch,
        with its parameters `axis` and `axes`, which count the axes of the operands, one higher.
        """
        self._batch = rule
        return rule

    @property
    def order(self) -> str:
        return self._order or self.form.order

    # -- what the transforms ask -----------------------------------------------------------
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
        self, wanted: Sequence[int], ct: Any, ans: Any, operands: tuple[Any, ...], params: dict[str, Any]
    ) -> Sequence[Any]:
        """The cotangents (None: zero) of the operands at the positions `wanted`, given that of the answer."""
        if type(ct) is tuple and _all_zero(ct):
            return [None for _ in wanted]
        if self._vjp_all is not None:
            return self._vjp_all(wanted, ct, ans, *operands, **params)
        return [self.pull(i, ct, ans, operands, params) for i in wanted]

    def pull(self, i: int, ct: Any, ans: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The cotangent of operand `i`, given the cotangent of the answer."""
        if self._vjp_all is not None:
            return self._vjp_all([i], ct, ans, *operands, **params)[0]
        if type(ct) is not tuple and self.on_complex is not AS_WRITTEN and ct.dtype.kind == "c":
            return self._pull_of_complex(i, ct, ans, operands, params)
        if self.variadic:
            return self._vjp[0](i, ct, ans, *operands, **params)
        return self._vjp[i](ct, ans, *operands, **params)

    def _pull_of_complex(self, i: int, ct: Any, ans: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """`pull` for a holomorphic op: the cotangent times the conjugate of the derivative, which is that at the
        conjugate operands, because a rule has real coefficients."""
        if self.on_complex is not HOLOMORPHIC:
            raise UnsupportedError(located(f"the derivative of {self.name} of complex numbers is not known"))
        return self._vjp[i](ct, _conjugate(ans, ct), *[_conjugate(x, ct) for x in operands], **params)

    def push(self, tangents: Sequence[Any], ans: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The tangent of the answer (None for zero; of an op with several results a tuple of such), given those of the
        operands: None for zero, and for operands that the op is not differentiable in."""
        if all(t is None for t in tangents):
            return (None,) * len(ans) if type(ans) is tuple else None
        if self._jvp is not None:
            return self._jvp(tangents, ans, *operands, **params)
        return transposed(self, tangents, ans, operands, params)

    def batch(self, size: int, batched: Sequence[bool], operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """The results for a batch of `size`, along axis 0; the operands that are `batched` have it there too, the
        others are the same for all. At least one is."""
        if self._batch is not None:
            return self._batch(size, tuple(batched), *operands, **params)
        given = [
            x if many or type(x) in LITERALS else TABLE["broadcast_to"](x, shape=(size, *x.shape))
            for x, many in zip(operands, batched)
        ]
        shifted = dict(params)
        if "axis" in params:
            shifted["axis"] = params["axis"] + 1
        if "axes" in params:
            shifted["axes"] = tuple([a + 1 for a in params["axes"]])
        return bind(self, tuple(given), shifted)

    def sample_cases(self) -> Iterator[Sample]:
        yield from self.samples() if self.samples else ()


def _conjugate(x: Any, like: Any) -> Any:
    """The complex conjugate of an operand, or of what stands for one that was not saved, in the dtype of `like`.

    Of a real one, too: the logarithm of the negative base of a complex power is complex.
    """
    if type(x) in LITERALS:
        return complex(x).conjugate()
    if not isinstance(x, np.ndarray | np.generic | Carrier):
        return x
    dtype = x.dtype  # type: ignore[union-attr]
    return TABLE["conj"](x if dtype == like.dtype else TABLE["cast"](x, dtype=like.dtype.name))


def _all_zero(cts: tuple[Any, ...]) -> bool:
    for ct in cts:  # noqa: SIM110 (a loop is faster)
        if ct is not None:
            return False
    return True


def _moved(x: Any, t: Any) -> Any:
    """The tangent of an operand in which an op is linear; an index stays as it is."""
    if t is not None:
        return t
    if type(x) in LITERALS:
        return 0.0
    return x if x.dtype.kind not in "fc" else TABLE["full"](shape=x.shape, value=0.0, dtype=x.dtype.name)


class Term(Abstract):
    """Stands for a cotangent while a derivative rule writes down what it does to it."""

    __slots__ = ("tape",)
    level = Level.TERM

    def __init__(self, aval: Aval, tape: list[Any]):
        super().__init__(aval)
        self.tape = tape

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if any(isinstance(x, Term) and not op.differentiable_in(i) for i, x in enumerate(operands)):
            raise TypeError(f"{op.name} is not linear: a rule that applies it to cotangents cannot be transposed")
        answer = Term(op.aval(*[x if type(x) in LITERALS else aval_of(x) for x in operands], **params), self.tape)
        self.tape.append((answer, op, operands, params))
        return answer


def transposed(op: Op, tangents: Sequence[Any], ans: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """`push` by the vjp rules alone: what they do to cotangents is linear, and its transpose is what tangents become.

    The rules are applied to terms, and what these wrote down is swept backwards from the tangents. Everything is done
    in ops, so it holds for ndarrays, Tensors and values of a graph, and can be differentiated again.
    """
    tape: list[Any] = []
    several = type(ans) is tuple
    terms = [Term(aval_of(y), tape) if y.dtype.kind in "fc" else None for y in (ans if several else (ans,))]
    wanted = [i for i, t in enumerate(tangents) if t is not None]
    pulled = op.pull_all(wanted, tuple(terms) if several else terms[0], ans, operands, params)
    found: dict[Any, Any] = {}

    def arrive(term: Any, t: Any) -> None:
        if isinstance(t, Term):
            raise TypeError(f"the vjp rule of {op.name} is not linear in the cotangent: give it a rule by def_jvp")
        if isinstance(term, Term) and t is not None:
            found[term] = TABLE["accumulate"](found[term], t) if term in found else t

    for i, ct in zip(wanted, pulled):
        arrive(ct, tangents[i])
    for answer, step, args, given in reversed(tape):
        if answer in found:
            for i, x in enumerate(args):
                if isinstance(x, Term):
                    arrive(x, step.pull(i, found[answer], answer, args, given))
    return tuple(map(found.get, terms)) if several else found.get(terms[0])


def primitive(
    form: Form = _CALL, *, on_complex: str | None = None, aliases: bool = False, order: str = "", typed: bool = False
) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op by decorating its NumPy implementation: positional arguments are operands, keywords params.

    Rules that only move cotangents are right for complex numbers as they are, unless `on_complex` says "".
    """

    def declare(impl: Callable[..., Any]) -> Op:
        code = impl.__code__
        variadic = bool(code.co_flags & inspect.CO_VARARGS)
        names = code.co_varnames[: code.co_argcount]
        if variadic:
            names += (code.co_varnames[code.co_argcount + code.co_kwonlyargcount],)
        complex_rules = (AS_WRITTEN if form.moves else "") if on_complex is None else on_complex
        computed = impl if complex_rules else refusing_complex(impl.__name__, impl)
        if form.rounds and not typed:
            computed = in_single(computed)
        op = Op(impl.__name__, names, computed, impl.__doc__ or "", variadic, form)
        op.on_complex, op.aliases, op._order, op.typed = complex_rules, aliases, order, typed
        return op

    return declare


def refusing_complex(name: str, impl: Callable[..., Any]) -> Callable[..., Any]:
    """`impl` of the op `name`, for real operands alone."""

    @functools.wraps(impl)
    def call(*operands: Any, **params: Any) -> Any:
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


def normalize_axes(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes named by NumPy's `axis=None | int | tuple`, counted from the front, in order, each once."""
    if axis is None:
        return tuple(range(ndim))
    given = (axis,) if not isinstance(axis, tuple | list) else tuple(axis)
    if not all(hasattr(a, "__index__") for a in given):
        raise TypeError(located(f"{name}: an axis is an integer, got axis={axis!r}"))
    axes = tuple(normalize_axis(name, a.__index__(), ndim) for a in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: an axis is given twice in {given}")
    return tuple(sorted(axes))
