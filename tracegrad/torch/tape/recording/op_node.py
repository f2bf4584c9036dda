"""Node of one op: it saves the values that the op's derivative rules read, and applies the rules.

A *plan* lists the values to save, from the op, the operands that require grad, and the shapes, dtypes and parameters of
the call (`generated_vjps`). The backward pass on ndarrays applies rules of elementwise ops as plain NumPy functions.
All other rules, and recorded passes, use the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import ad
from tracegrad.avals import LITERALS, Aval, Literal
from tracegrad.errors import located
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import TABLE, Carrier, Op
from tracegrad.ops.elementwise.table import divide, power, sign, where
from tracegrad.ops.shape.linear import broadcast_to, full, in_dtype, reduce_sum, reshape, sum_over
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.batched_grad import Batched
from tracegrad.torch.tape.recording import node as nodes
from tracegrad.torch.tape.recording.generated_vjps import needs_of, numpy_rules
from tracegrad.torch.tape.recording.node import DualArray, MaskedCotangent, Node, Spec, next_number, rewrap, unmasked
from tracegrad.torch.tape.recording.node_names import node_name, saved_names, saved_options, saved_result, wraps_numbers
from tracegrad.torch.tape.recording.saved_results import INVERSES, pull_by_result, twin_of
from tracegrad.torch.tape.recording.saved_tensor import RawSaved, SavedArray, private

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array, NDArray


_ndarray = np.ndarray


class RecordingPlan:
    """Plan to record an op: the class of its node, the saved operands (positions `saved_operands`), and the saved
    results.

    `wanted` are the positions of the operands that require grad, `numbers` those of Python numbers. For several
    results, `saved_results` says which are saved, and `floating_results` which are floating. `specs` and `spec` replace
    operands and result that are not saved; for elementwise ops they are None, because their rules read no shapes.
    `blank` are the edges of operands without a record. `again` says that the rules read the result, which is recomputed
    from the operands; `inverse` computes the operand from the result. `twin` is the op with the rule of a recorded
    pass, if it differs. `copies` says that copies of the operands are saved.
    """

    __slots__ = (
        "again",
        "blank",
        "cls",
        "copies",
        "elementwise",
        "floating_results",
        "inverse",
        "numbers",
        "op",
        "rules",
        "saved_operands",
        "saved_results",
        "saves",
        "saves_result",
        "spec",
        "specs",
        "twin",
        "wanted",
    )
    rules: Any
    floating_results: tuple[int, ...]

    def __init__(
        self,
        op: Op,
        wanted: Sequence[int],
        operands: Sequence[Aval | Literal],
        params: dict[str, object],
        node: str = "",
    ):
        """`operands` are avals, and Python numbers; `node` is the name of the node, if not that of the op."""
        self.op, self.elementwise, self.wanted = op, isinstance(op, Elementwise), wanted
        self.saved_results, read = needs_of(op, wanted, operands, params)
        self.inverse = INVERSES.get(op)
        self.twin = twin_of(op, operands) if 0 in wanted else None
        if self.inverse is not None or self.twin is not None:
            self.saved_results = frozenset({0})
        if self.twin is not None:
            read |= {0}
        self.saves_result = bool(self.saved_results)
        self.again = op in _AGAIN and self.saves_result
        if self.again:
            self.saves_result, read = False, frozenset(range(len(operands)))
        if op is power and type(operands[0]) in LITERALS:
            read |= {1}
        self.saved_operands = tuple(sorted(read))
        self.numbers = frozenset([k for k, x in enumerate(operands) if type(x) in LITERALS])
        self.saves = self.saves_result or not read <= self.numbers
        self.copies = any(op is TABLE.get(name) for name in _COPYING) or (
            op is divide and type(operands[0]) in LITERALS
        )
        self.blank = tuple([_blank(op, k, x) for k, x in enumerate(operands)])
        # The rules of an elementwise op for array operands, as NumPy functions; None if not generated yet.
        self.rules = None
        result_aval = None if self.elementwise else op.aval(*operands, **params)
        self.cls = node_class(
            node or node_name(op), isinstance(result_aval, tuple) and not isinstance(result_aval, Aval)
        )
        self.specs: tuple[Any, ...] = (None,) * len(operands)
        self.spec: Any = None
        self.floating_results = ()
        if result_aval is not None:
            self.spec = _spec(result_aval)
            is_multi = self.spec.__class__ is tuple
            if is_multi:
                self.floating_results = tuple([k for k, x in enumerate(self.spec) if x.dtype.kind in "fc"])
            self.specs = tuple([x if type(x) in LITERALS else _spec(x) for x in operands])


# Ops whose result is recomputed, not saved: PyTorch saves their operands, so that the result may be updated in place.
_AGAIN = frozenset({divide, TABLE["erfinv"]})
# Ops that save copies of their operands, as does a number divided by an array: PyTorch saves their results, so that the
# operands may be updated in place.
_COPYING = ("svdvals", "eigvals")


def _spec(aval: Any) -> Any:
    return Spec(aval.shape, aval.dtype) if isinstance(aval, Aval) else tuple([_spec(a) for a in aval])


def _blank(op: Op, k: int, x: object) -> bool | None:
    """Return the edge of an operand without a record."""
    if type(x) in LITERALS:
        return None if wraps_numbers(op) else False
    return None if op.differentiable_in(k) else False


# -- nodes -------------------------------------------------------------------------------------------------------------
class OpNode(Node):
    """Node of one op: `operands` are `SavedArray` values, numbers, and None or a `Spec` for unsaved ones.

    `saved_result` is the result in the same form. `shapes`, for an elementwise op that broadcasts or promotes, has the
    `Spec` of each operand.
    """

    __slots__ = ("operands", "params", "plan", "saved_result", "shapes")
    batches = True
    plan: RecordingPlan
    operands: Any
    params: dict[str, Any]
    saved_result: Any
    shapes: Any

    @property
    def op(self) -> Op:
        return self.plan.op

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        plan, operands, ans = self.plan, self.operands, self.saved_result
        if plan.saves:
            operands, ans = self._values()
            if plan.again and not recording:
                ans = plan.op(*operands)
        if plan.elementwise and not recording and (ct.__class__ is _ndarray or isinstance(ct, np.generic)):
            rules = plan.rules
            if rules is None:
                rules = self._rules(operands)
            if rules and ct.dtype.kind != "c":
                return self._computed(rules, ct, ans, operands)
        if recording:
            if plan.inverse is not None and STATE.level is None and ans.dtype.kind == "f":
                return [pull_by_result(plan.op, self, ct, self.saved_result, operands[0])]
            operands, ans = self._recorded(operands, ans)
        if plan.op.pulls_all:
            return self._pulled_at_once(ct, ans, operands)
        op = plan.twin if recording and plan.twin is not None and STATE.level is None else plan.op
        results = [self._pulled(i, ct, ans, operands, op) if e else None for i, e in enumerate(self.edges)]
        if recording and plan.op.piecewise_linear:
            x = operands[0] if hasattr(operands[0], "_edge") else ans
            return [tied(ct_x, x._edge_of(), x) for ct_x in results]
        return results

    def _values(self) -> tuple[tuple[Any, ...], Any]:
        """Return the operands and the result, unpacked and checked to be unchanged."""
        operands, ans = self.operands, self.saved_result
        if operands is nodes.RELEASED:
            raise RuntimeError(located(nodes.SECOND_TIME))
        values = []
        inverse = self.plan.inverse
        for k, x in enumerate(operands):
            if x.__class__ is SavedArray and inverse is not None and x.counter[0] != x.version:
                with np.errstate(all="ignore"):
                    x = inverse(ans.value(self, is_own_result=True))
            elif x.__class__ is SavedArray:
                # The usual case of `SavedArray.value`, without a call.
                x = x.array if x.counter[0] == x.version and x.array.__class__ is _ndarray else x.value(self.edges[k])
            values.append(x)
        return tuple(values), ans.value(self, is_own_result=True) if ans.__class__ is SavedArray else ans

    def _rules(self, operands: tuple[Any, ...]) -> Any:
        """Return the rules as NumPy functions, or False; False for `where`, whose cotangents need masks."""
        op = self.plan.op
        if op is where:
            self.plan.rules = False
            return False
        key: Any = op
        for k, x in enumerate(operands):
            kind = x.__class__
            if kind is float or kind is int or kind is bool:
                # The text identifies 0.0, -0.0 and nan, which `==` does not: 0.0 == -0.0, and nan != nan.
                key = (key, k, kind, x if x and x == x else repr(x))
        rules = _RULES.get(key)
        if rules is None:
            literals = [(k, repr(v)) for k, v in enumerate(operands) if type(v) in (float, int, bool)]
            rules = numpy_rules(op, tuple(literals)) or False
            if len(_RULES) < _MAX_RULES:
                _RULES[key] = rules
        if key is op:
            self.plan.rules = rules
        return rules

    def _computed(self, rules: Any, ct: Any, ans: NDArray | None, operands: tuple[Array, ...]) -> list[Array]:
        results: list[Any] = []
        shapes = self.shapes
        for i, e in enumerate(self.edges):
            if not e:
                results.append(None)
            elif (rule := rules[i]) is False:
                results.append(self._pulled(i, ct, ans, operands, self.plan.op))
            else:
                ct_x = rule(ct, ans, *operands)
                results.append(ct_x if shapes is None else summed_to(ct_x, shapes[i]))
        return results

    def _pulled(self, i: int, ct: Any, ans: Array | Spec | None, operands: tuple[Array, ...], op: Op) -> Any:
        """Compute the cotangent of operand `i` by the rule of `op`."""
        mask = None
        if ct.__class__ is MaskedCotangent:
            ct, mask = ct.ct, ct.mask
        ct_x, mask = ad.pull_masked(op, i, ct, mask, ans, operands, self.params)
        if ct_x is None:
            return None
        if self.shapes is not None:
            spec = self.shapes[i]
            if mask is not None and mask.shape != ct_x.shape:
                mask = broadcast_to(mask, shape=ct_x.shape)
            if mask is not None and mask.shape != spec.shape:
                mask = ad.mask_of_repeated(mask, spec.shape)
            ct_x = summed_to(ct_x, spec)
        return ct_x if mask is None else MaskedCotangent(ct_x, mask)

    def _pulled_at_once(self, ct: Any, ans: Array | Spec, operands: tuple[Array, ...]) -> list[Array]:
        """Compute the cotangents of all operands by the common rule of an op that moves data."""
        ct, mask = (ct.ct, ct.mask) if ct.__class__ is MaskedCotangent else (ct, None)
        wanted = [i for i, e in enumerate(self.edges) if e]
        results: list[Any] = [None] * len(self.edges)
        pulled = ad.pull_each(self.plan.op, wanted, ct, mask, ans, operands, self.params)
        for i, (ct_x, moved) in zip(wanted, pulled):
            results[i] = ct_x if moved is None else MaskedCotangent(ct_x, moved)
        return results

    def _recorded(self, operands: tuple[Array, ...], ans: Array | Spec | None) -> tuple[tuple[Any, ...], Any]:
        """Return the saved values, as Tensors on the tape."""
        arrays = tuple([_opened(s, x, e) for s, x, e in zip(self.operands, operands, self.edges)])
        return arrays, self.plan.op(*arrays) if self.plan.again else _opened(self.saved_result, ans, self)

    def release(self) -> None:
        if self.plan.saves:
            self.operands = self.saved_result = nodes.RELEASED

    def saved_values(self) -> list[tuple[SavedArray, object]]:
        """Return the saved values, with the edges to the nodes that made them."""
        if self.operands is nodes.RELEASED:
            return []
        return [
            (x, e)
            for x, e in zip((*self.operands, self.saved_result), (*self.edges, None))
            if x.__class__ is SavedArray
        ]

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        for x, e in self.saved_values():
            x.pack(rewrap(x.array, e), pack, unpack)

    def protect(self, x: Array) -> None:
        for saved, _ in self.saved_values():
            saved.protect(x)

    def relocate_result(self, old: Array, tensor: Any) -> None:
        ans = self.saved_result
        if ans.__class__ is not SavedArray:
            return
        if ans.array.__class__ is DualArray and ans.array.array is old:
            ans.array = DualArray(tensor.array, ans.array.dual)
        elif ans.array is old:
            ans.array = tensor.array
        else:
            return
        ans.counter, ans.version = tensor._counter, tensor._counter[0]

    def move(self, outs: Sequence[Array]) -> None:
        """Note that the results have tangents."""
        for x, out in zip((self.saved_result,), outs):
            if x.__class__ is SavedArray:
                x.move(out)

    def copy_saved_result(self) -> None:
        """Save a copy of the result, so that the result may be updated in place."""
        ans = self.saved_result
        if ans.__class__ is SavedArray and isinstance(ans.array, _ndarray):
            self.saved_result = private(ans.array.copy())

    # -- saved values ------------------------------------------------------------------------------------------
    def _attributes(self) -> dict[str, Any]:
        """Return saved values with their edges, and options in tuples, by name."""
        operands, ans = self.operands, self.saved_result
        if operands is nodes.RELEASED:
            raise RuntimeError(located(nodes.SECOND_TIME))
        table: dict[str, Any] = {}
        for k, name in enumerate(saved_names(self.name(), len(operands))):
            x = operands[k]
            table[f"_saved_{name}"] = (
                (x, self.edges[k]) if x.__class__ is SavedArray else (x if type(x) in LITERALS else None,)
            )
        if ans.__class__ is SavedArray:
            table["_saved_result"] = (ans, self)
        elif ans.__class__ is tuple:
            for k, x, dtype in (
                (k, x, self.plan.spec[k].dtype) for k, x in enumerate(ans) if x.__class__ is SavedArray
            ):
                edge = (self, k) if dtype.kind in "fc" else None
                table[f"_saved_{saved_result(k, len(ans), dtype)}"] = (x, edge)
        shapes = [_shape(x) for x in (operands[0] if operands else None, ans)]
        options = saved_options(self.name(), self.params, *shapes)
        return {**table, **{f"_saved_{k}": (v,) for k, v in options.items()}}

    def __dir__(self) -> list[str]:
        known = {} if self.operands is nodes.RELEASED else self._attributes()
        return [*super().__dir__(), *(name for name, result in known.items() if result != (None,))]

    def __getattr__(self, name: str) -> Any:
        raw = name.startswith("_raw_saved_")
        known = self._attributes() if raw or name.startswith("_saved_") else {}
        result = known.get(name.removeprefix("_raw"))
        if result is None or (raw and len(result) == 1):
            raise AttributeError(f"'{self.name()}' object has no attribute {name!r}")
        if len(result) == 1:
            return result[0]
        saved, edge = result
        if raw:
            return RawSaved(saved, edge)
        is_own_result = (edge[0] if edge.__class__ is tuple else edge) is self
        return saved.sharing(rewrap(saved.value(edge, is_own_result=is_own_result), edge))


def _opened(saved: Any, array: Operand | Spec | None, edge: object) -> Any:
    """Return a saved array as a Tensor on the tape; unsaved values stay unchanged."""
    x = rewrap(array, edge)
    return saved.sharing(x) if saved.__class__ is SavedArray else x


def _moves(x: Any) -> bool:
    """Whether a saved value has a dtype with derivatives."""
    return x is not None and x.dtype.kind in "fc"


def _shape(x: Any) -> Any:
    if x.__class__ is SavedArray:
        x = x.array
    return getattr(x, "shape", ())


_FIRST = (0,)


class MultiResultNode(OpNode):
    """One op with several results: `saved_result` is a tuple."""

    __slots__ = ()
    is_multi_result = True

    @property
    def count(self) -> int:  # type: ignore[override]
        """Return the number of outputs."""
        return len(self.plan.spec)

    def pull(self, cts: Any, recording: bool) -> Sequence[Any]:
        op, edges = self.plan.op, self.edges
        args, result = self._read(recording) if self.plan.saves else (self.operands, self.saved_result)
        if len(edges) == 1 and MaskedCotangent not in map(type, cts):
            return op.pull_all(_FIRST, cts, result, args, self.params)
        wanted = [i for i, e in enumerate(edges) if e]
        results: list[Any] = [None] * len(edges)
        masks = [ct.mask if ct.__class__ is MaskedCotangent else None for ct in cts]
        plain = tuple(map(unmasked, cts))
        for i, (ct, mask) in zip(wanted, ad.pull_all_masked(op, wanted, plain, masks, result, args, self.params)):
            results[i] = ct if mask is None else MaskedCotangent(ct, mask)
        return results

    def _read(self, recording: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the saved operands and results, as Tensors if `recording`."""
        if self.operands is nodes.RELEASED:
            raise RuntimeError(located(nodes.SECOND_TIME))
        edges = [(self, k) if k else self for k in range(self.count)]
        args = [x.value(e) if x.__class__ is SavedArray else x for x, e in zip(self.operands, self.edges)]
        results = [
            x.value(e, is_own_result=True) if x.__class__ is SavedArray else x for x, e in zip(self.saved_result, edges)
        ]
        if recording:
            args = [_opened(s, x, e) for s, x, e in zip(self.operands, args, self.edges)]
            tied = [e if _moves(getattr(x, "array", x)) else None for x, e in zip(results, edges)]
            results = [_opened(s, x, e) for s, x, e in zip(self.saved_result, results, tied)]
        return tuple(args), tuple(results)

    def saved_values(self) -> list[tuple[SavedArray, object]]:
        if self.operands is nodes.RELEASED:
            return []
        values = [*zip(self.operands, self.edges), *((x, None) for x in self.saved_result)]
        return [(x, e) for x, e in values if x.__class__ is SavedArray]

    def relocate_result(self, old: object, tensor: Array) -> None:
        pass

    def move(self, outs: Sequence[Array]) -> None:
        for x, out in zip(self.saved_result, outs):
            if x.__class__ is SavedArray:
                x.move(out)

    def copy_saved_result(self) -> None:
        pass


_RULES: dict[Any, Any] = {}
_MAX_RULES = 4096

_CLASSES: dict[tuple[str, bool], type[OpNode]] = {}


def node_class(name: str, is_multi: bool = False) -> type[OpNode]:
    """Return the node class of this name, for an op with one result or with several."""
    result = _CLASSES.get((name, is_multi))
    if result is None:
        cls = type(name, (MultiResultNode if is_multi else OpNode,), {"__slots__": ()})
        result = _CLASSES.setdefault((name, is_multi), cls)
    return result


class PiecewiseConstantNode(Node):
    """Node of a piecewise constant op: its derivative is zero."""

    __slots__ = ("spec",)
    batches = True
    spec: Spec

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        zeros = full(shape=self.spec.shape, value=0.0, dtype=self.spec.dtype.name)
        return [rewrap(zeros, None) if recording else zeros]


_CONSTANT_CLASSES: dict[Op, type[PiecewiseConstantNode]] = {}


def piecewise_constant_node(op: Op, edge: Node, ans: Array | Spec) -> PiecewiseConstantNode:
    """Return the node of an op whose derivative is 0, because PyTorch's tape has a node too."""
    cls = _CONSTANT_CLASSES.get(op)
    if cls is None:
        cls = _CONSTANT_CLASSES.setdefault(op, type(node_name(op), (PiecewiseConstantNode,), {"__slots__": ()}))
    node = cls()
    node.edges, node.hooks, node.number, node.spec = (edge,), None, next_number(), Spec(ans.shape, ans.dtype)
    return node


class _Tied(Node):
    """Value of a Tensor that also depends piecewise constantly on another one."""

    __slots__ = ("spec",)
    batches = True
    spec: Spec

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        zeros = full(shape=self.spec.shape, value=0.0, dtype=self.spec.dtype.name)
        return [ct, rewrap(zeros, None) if recording else zeros]


def tied(ct: Any, edge: Any, spec: Any) -> Any:
    """Tie a cotangent to the history `edge` on which it depends piecewise constantly.

    `spec` has the shape and dtype of the value.
    """
    plain = unmasked(ct)
    held = plain.array if isinstance(plain, Batched) else plain
    if ct is None or not edge:
        return ct
    if held._requires:
        node: Any = _Tied()
        node.edges, node.hooks, node.number = (held._edge_of(), edge), None, next_number()
        node.spec = Spec(spec.shape, spec.dtype)
    else:
        node = piecewise_constant_node(sign, edge, spec)
    alike = rewrap(held.array, node)
    alike = Batched(alike) if held is not plain else alike
    return MaskedCotangent(alike, ct.mask) if ct.__class__ is MaskedCotangent else alike


def summed_to(ct: Any, spec: Any) -> Any:
    """Sum and convert a cotangent to the shape and dtype of an operand that was broadcast and promoted."""
    shape = spec.shape
    if ct.shape != shape:
        new = len(ct.shape) - len(shape)
        axes = tuple([k for k, n in enumerate(ct.shape) if k < new or shape[k - new] != n])
        if isinstance(ct, Carrier):
            ct = reduce_sum(ct, axes=axes)
            ct = ct if ct.shape == shape else reshape(ct, shape=shape)
        else:
            ct = sum_over(ct, axes).reshape(shape)
    return ct if ct.dtype is spec.dtype or ct.dtype == spec.dtype else in_dtype(ct, spec.dtype)
