"""Node of one op: it saves the values that the op's derivative rules read, and applies the rules.

A *plan* lists the values to save, from the op, the operands that require grad, and the shapes, dtypes and parameters of
the call (`generated_vjps`). The backward pass on ndarrays applies rules of elementwise ops as plain NumPy functions.
All other rules, and recorded passes, use the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tracegrad import ad
from tracegrad.avals import LITERALS, Aval
from tracegrad.errors import located
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import TABLE, Carrier, Op
from tracegrad.ops.elementwise.table import divide, power, sign, where
from tracegrad.ops.shape.linear import broadcast_to, full, in_dtype, reduce_sum, reshape, sum_over
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.batched_grad import Batched
from tracegrad.torch.tape.recording import node as nodes
from tracegrad.torch.tape.recording.generated_vjps import needs_of, numpy_rules
from tracegrad.torch.tape.recording.node import Masked, Moving, Node, Spec, next_number, rewrap, unmasked
from tracegrad.torch.tape.recording.node_names import node_name, saved_names, saved_options, saved_result, wraps_numbers
from tracegrad.torch.tape.recording.saved_results import INVERSES, pulled_by_answer, twin_of
from tracegrad.torch.tape.recording.saved_tensor import Packed, RawSaved, Saved, private

__all__ = ["OpNode", "Plan", "SeveralNode", "node_class", "plan_of", "remembered", "step_node", "summed_to", "tied"]

_ndarray = np.ndarray


class Plan:
    """Plan to record an op: the class of its node, the saved operands (positions `kept`), and the saved results.

    For several results, `answers` says which are saved, and `moving` which are floating. `specs` and `spec` replace
    operands and result that are not saved; for elementwise ops they are None, because their rules read no shapes.
    `blank` are the edges of operands without a record. `again` says that the rules read the result, which is recomputed
    from the operands; `inverse` computes the operand from the result. `twin` is the op with the rule of a recorded
    pass, if it differs.
    """

    __slots__ = (
        "again", "answer", "answers", "blank", "cls", "elementwise", "inverse", "kept", "moving", "op", "operands",
        "rules", "saves", "spec", "specs", "twin",
    )  # fmt: skip
    rules: Any
    moving: tuple[int, ...]

    def __init__(self, op: Op, wanted: Sequence[int], operands: Sequence[Any], params: dict[str, Any]):
        """`wanted` are the positions of the operands that require grad; `operands` are avals, and Python numbers."""
        self.op, self.elementwise = op, isinstance(op, Elementwise)
        self.answers, read = needs_of(op, wanted, operands, params)
        self.inverse = INVERSES.get(op)
        self.twin = twin_of(op, operands) if 0 in wanted else None
        if self.inverse is not None or self.twin is not None:
            self.answers = frozenset({0})
        if self.twin is not None:
            read |= {0}
        self.answer = bool(self.answers)
        self.again = op in _AGAIN and self.answer
        if self.again:
            self.answer, read = False, frozenset(range(len(operands)))
        if op is power and type(operands[0]) in LITERALS:
            read |= {1}
        self.operands = tuple([k in read for k in range(len(operands))])
        self.kept = tuple(sorted(read))
        self.saves = self.answer or any(f and type(x) not in LITERALS for f, x in zip(self.operands, operands))
        self.blank = tuple([_blank(op, k, x) for k, x in enumerate(operands)])
        # The rules of an elementwise op for array operands, as NumPy functions; None if not generated yet.
        self.rules = None
        answer = None if self.elementwise else op.aval(*operands, **params)
        self.cls = node_class(node_name(op), isinstance(answer, tuple) and not isinstance(answer, Aval))
        self.specs: tuple[Any, ...] = (None,) * len(operands)
        self.spec: Any = None
        if answer is not None:
            self.spec = _spec(answer)
            several = self.spec.__class__ is tuple
            self.moving = tuple([k for k, x in enumerate(self.spec) if x.dtype.kind in "fc"]) if several else ()
            self.specs = tuple([x if type(x) in LITERALS else _spec(x) for x in operands])


# Ops whose result is recomputed, not saved: PyTorch saves their operands, so that the result may be updated in place.
_AGAIN = frozenset({divide, TABLE["erfinv"]})


def _spec(aval: Any) -> Any:
    return Spec(aval.shape, aval.dtype) if isinstance(aval, Aval) else tuple([_spec(a) for a in aval])


def _blank(op: Op, k: int, x: Any) -> Any:
    """Return the edge of an operand without a record."""
    if type(x) in LITERALS:
        return None if wraps_numbers(op) else False
    return None if op.differentiable_in(k) else False


# -- which plan --------------------------------------------------------------------------------------------------------
_NONE: dict[str, Any] = {}


def plan_of(
    op: Op, wanted: tuple[int, ...], operands: tuple[Any, ...], node: str = "", params: Any = _NONE
) -> Plan | None:
    """Return the plan for recording an op; None if no operand is differentiated."""
    if not wanted:
        return None
    plan = Plan(op, wanted, operands, params)
    if node:
        plan.cls = node_class(node)
    return plan


_MOST_PLANS = 4096


def remembered(plans: dict[Any, Any], key: Any, plan: Any) -> Any:
    """Cache the plan, unless its key cannot be hashed."""
    if len(plans) >= _MOST_PLANS:
        plans.clear()
    with suppress(TypeError):
        plans[key] = plan
    return plan


# -- nodes -------------------------------------------------------------------------------------------------------------
class OpNode(Node):
    """Node of one op: `operands` are `Saved` values, numbers, and None or a `Spec` for unsaved ones.

    `answer` is the result in the same form. `shapes`, for an elementwise op that broadcasts or promotes, has the `Spec`
    of each operand.
    """

    __slots__ = ("answer", "operands", "params", "plan", "shapes")
    batches = True
    plan: Plan
    operands: Any
    params: dict[str, Any]
    answer: Any
    shapes: Any

    @property
    def op(self) -> Op:
        return self.plan.op

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        plan, operands, answer = self.plan, self.operands, self.answer
        if plan.saves:
            operands, answer = self._values()
            if plan.again and not recording:
                answer = plan.op(*operands)
        if plan.elementwise and not recording and (ct.__class__ is _ndarray or isinstance(ct, np.generic)):
            rules = plan.rules
            if rules is None:
                rules = self._rules(operands)
            if rules and ct.dtype.kind != "c":
                return self._computed(rules, ct, answer, operands)
        if recording:
            if plan.inverse is not None and STATE.level is None and answer.dtype.kind == "f":
                return [pulled_by_answer(plan.op, self, ct, self.answer, operands[0])]
            operands, answer = self._recorded(operands, answer)
        if plan.op.pulls_all:
            return self._pulled_at_once(ct, answer, operands)
        op = plan.twin if recording and plan.twin is not None and STATE.level is None else plan.op
        results = [self._pulled(i, ct, answer, operands, op) if e else None for i, e in enumerate(self.edges)]
        if recording and plan.op.bends:
            x = operands[0] if hasattr(operands[0], "_edge") else answer
            return [tied(ct_x, x._edge_of(), x) for ct_x in results]
        return results

    def _values(self) -> tuple[tuple[Any, ...], Any]:
        """Return the operands and the result, unpacked and checked to be unchanged."""
        operands, answer = self.operands, self.answer
        if operands is nodes.RELEASED:
            raise RuntimeError(located(nodes.SECOND_TIME))
        values = []
        inverse = self.plan.inverse
        for k, x in enumerate(operands):
            if x.__class__ is Saved and inverse is not None and x.counter[0] != x.version:
                with np.errstate(all="ignore"):
                    x = inverse(answer.value(self, own=True))
            elif x.__class__ is Saved:
                # The usual case of `Saved.value`, without a call.
                x = x.array if x.counter[0] == x.version and x.array.__class__ is _ndarray else x.value(self.edges[k])
            values.append(x)
        return tuple(values), answer.value(self, own=True) if answer.__class__ is Saved else answer

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
            if len(_RULES) < _MOST_RULES:
                _RULES[key] = rules
        if key is op:
            self.plan.rules = rules
        return rules

    def _computed(self, rules: Any, ct: Any, answer: Any, operands: tuple[Any, ...]) -> list[Any]:
        results: list[Any] = []
        shapes = self.shapes
        for i, e in enumerate(self.edges):
            if not e:
                results.append(None)
            elif (rule := rules[i]) is False:
                results.append(self._pulled(i, ct, answer, operands, self.plan.op))
            else:
                ct_x = rule(ct, answer, *operands)
                results.append(ct_x if shapes is None else summed_to(ct_x, shapes[i]))
        return results

    def _pulled(self, i: int, ct: Any, answer: Any, operands: tuple[Any, ...], op: Op) -> Any:
        """Compute the cotangent of operand `i` by the rule of `op`."""
        mask = None
        if ct.__class__ is Masked:
            ct, mask = ct.ct, ct.mask
        ct_x, mask = ad.pull_masked(op, i, ct, mask, answer, operands, self.params)
        if ct_x is None:
            return None
        if self.shapes is not None:
            spec = self.shapes[i]
            if mask is not None and mask.shape != ct_x.shape:
                mask = broadcast_to(mask, shape=ct_x.shape)
            if mask is not None and mask.shape != spec.shape:
                mask = ad.mask_of_repeated(mask, spec.shape)
            ct_x = summed_to(ct_x, spec)
        return ct_x if mask is None else Masked(ct_x, mask)

    def _pulled_at_once(self, ct: Any, answer: Any, operands: tuple[Any, ...]) -> list[Any]:
        """Compute the cotangents of all operands by the common rule of an op that moves data."""
        ct, mask = (ct.ct, ct.mask) if ct.__class__ is Masked else (ct, None)
        wanted = [i for i, e in enumerate(self.edges) if e]
        results: list[Any] = [None] * len(self.edges)
        pulled = ad.pull_each(self.plan.op, wanted, ct, mask, answer, operands, self.params)
        for i, (ct_x, moved) in zip(wanted, pulled):
            results[i] = ct_x if moved is None else Masked(ct_x, moved)
        return results

    def _recorded(self, operands: tuple[Any, ...], answer: Any) -> tuple[tuple[Any, ...], Any]:
        """Return the saved values, as Tensors on the tape."""
        arrays = tuple([_opened(s, x, e) for s, x, e in zip(self.operands, operands, self.edges)])
        return arrays, self.plan.op(*arrays) if self.plan.again else _opened(self.answer, answer, self)

    def release(self) -> None:
        if self.plan.saves:
            self.operands = self.answer = nodes.RELEASED

    def keeps(self) -> list[tuple[Saved, Any]]:
        """Return the saved values, with the edges to the nodes that made them."""
        if self.operands is nodes.RELEASED:
            return []
        return [(x, e) for x, e in zip((*self.operands, self.answer), (*self.edges, None)) if x.__class__ is Saved]

    def pack(self, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
        for x, e in self.keeps():
            x.pack(rewrap(x.array, e), pack, unpack)

    def protect(self, x: Any) -> None:
        for saved, _ in self.keeps():
            saved.protect(x)

    def settle(self, old: Any, tensor: Any) -> None:
        answer = self.answer
        if answer.__class__ is not Saved:
            return
        if answer.array.__class__ is Moving and answer.array.array is old:
            answer.array = Moving(tensor.array, answer.array.dual)
        elif answer.array is old:
            answer.array = tensor.array
        else:
            return
        answer.counter, answer.version = tensor._counter, tensor._counter[0]

    def move(self, outs: Sequence[Any]) -> None:
        """Note that the results have tangents."""
        for x, out in zip((self.answer,), outs):
            if x.__class__ is Saved:
                x.move(out)

    def keep_answer(self) -> None:
        """Save a copy of the result, so that the result may be updated in place."""
        answer = self.answer
        if answer.__class__ is Saved and isinstance(answer.array, _ndarray):
            self.answer = private(answer.array.copy())

    # -- saved values ------------------------------------------------------------------------------------------
    def _attributes(self) -> dict[str, Any]:
        """Return saved values with their edges, and options in tuples, by name."""
        operands, answer = self.operands, self.answer
        if operands is nodes.RELEASED:
            raise RuntimeError(located(nodes.SECOND_TIME))
        table: dict[str, Any] = {}
        for k, name in enumerate(saved_names(self.name(), len(operands))):
            x = operands[k]
            table[f"_saved_{name}"] = (
                (x, self.edges[k]) if x.__class__ is Saved else (x if type(x) in LITERALS else None,)
            )
        if answer.__class__ is Saved:
            table["_saved_result"] = (answer, self)
        elif answer.__class__ is tuple:
            for k, x, dtype in ((k, x, self.plan.spec[k].dtype) for k, x in enumerate(answer) if x.__class__ is Saved):
                edge = (self, k) if dtype.kind in "fc" else None
                table[f"_saved_{saved_result(k, len(answer), dtype)}"] = (x, edge)
        shapes = [_shape(x) for x in (operands[0] if operands else None, answer)]
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
        own = (edge[0] if edge.__class__ is tuple else edge) is self
        return saved.sharing(rewrap(saved.value(edge, own=own), edge))


def _opened(saved: Any, array: Any, edge: Any) -> Any:
    """Return a saved array as a Tensor on the tape; unsaved values stay unchanged."""
    x = rewrap(array, edge)
    return saved.sharing(x) if saved.__class__ is Saved else x


def _moves(x: Any) -> bool:
    """Whether a saved value has a dtype with derivatives."""
    return x is not None and x.dtype.kind in "fc"


def _shape(x: Any) -> Any:
    if x.__class__ is Saved:
        x = x.array() if x.array.__class__ is Packed else x.array
    return getattr(x, "shape", ())


_FIRST = (0,)


class SeveralNode(OpNode):
    """One op with several results: `answer` is a tuple."""

    __slots__ = ()
    several = True

    @property
    def count(self) -> int:  # type: ignore[override]
        """Return the number of outputs."""
        return len(self.plan.spec)

    def pull(self, cts: Any, recording: bool) -> Sequence[Any]:
        op, edges = self.plan.op, self.edges
        args, result = self._read(recording) if self.plan.saves else (self.operands, self.answer)
        if len(edges) == 1 and Masked not in map(type, cts):
            return op.pull_all(_FIRST, cts, result, args, self.params)
        wanted = [i for i, e in enumerate(edges) if e]
        results: list[Any] = [None] * len(edges)
        masks = [ct.mask if ct.__class__ is Masked else None for ct in cts]
        plain = tuple(map(unmasked, cts))
        for i, (ct, mask) in zip(wanted, ad.pull_all_masked(op, wanted, plain, masks, result, args, self.params)):
            results[i] = ct if mask is None else Masked(ct, mask)
        return results

    def _read(self, recording: bool) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the saved operands and results, as Tensors if `recording`."""
        if self.operands is nodes.RELEASED:
            raise RuntimeError(located(nodes.SECOND_TIME))
        edges = [(self, k) if k else self for k in range(self.count)]
        args = [x.value(e) if x.__class__ is Saved else x for x, e in zip(self.operands, self.edges)]
        results = [x.value(e, own=True) if x.__class__ is Saved else x for x, e in zip(self.answer, edges)]
        if recording:
            args = [_opened(s, x, e) for s, x, e in zip(self.operands, args, self.edges)]
            tied = [e if _moves(getattr(x, "array", x)) else None for x, e in zip(results, edges)]
            results = [_opened(s, x, e) for s, x, e in zip(self.answer, results, tied)]
        return tuple(args), tuple(results)

    def keeps(self) -> list[tuple[Saved, Any]]:
        if self.operands is nodes.RELEASED:
            return []
        values = [*zip(self.operands, self.edges), *((x, None) for x in self.answer)]
        return [(x, e) for x, e in values if x.__class__ is Saved]

    def settle(self, old: Any, tensor: Any) -> None:
        pass

    def move(self, outs: Sequence[Any]) -> None:
        for x, out in zip(self.answer, outs):
            if x.__class__ is Saved:
                x.move(out)

    def keep_answer(self) -> None:
        pass


_RULES: dict[Any, Any] = {}
_MOST_RULES = 4096

_CLASSES: dict[tuple[str, bool], type[OpNode]] = {}


def node_class(name: str, several: bool = False) -> type[OpNode]:
    """Return the node class of this name, for an op with one result or with several."""
    result = _CLASSES.get((name, several))
    if result is None:
        result = _CLASSES[name, several] = type(name, (SeveralNode if several else OpNode,), {"__slots__": ()})
    return result


class StepNode(Node):
    """Node of a piecewise constant op: its derivative is zero."""

    __slots__ = ("spec",)
    batches = True
    spec: Spec

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        zeros = full(shape=self.spec.shape, value=0.0, dtype=self.spec.dtype.name)
        return [rewrap(zeros, None) if recording else zeros]


_STEPS: dict[Op, type[StepNode]] = {}


def step_node(op: Op, edge: Any, answer: Any) -> StepNode:
    """Return the node of an op whose derivative is 0, because PyTorch's tape has a node too."""
    cls = _STEPS.get(op)
    if cls is None:
        cls = _STEPS[op] = type(node_name(op), (StepNode,), {"__slots__": ()})
    node = cls()
    node.edges, node.hooks, node.number, node.spec = (edge,), None, next_number(), Spec(answer.shape, answer.dtype)
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
        node = step_node(sign, edge, spec)
    alike = rewrap(held.array, node)
    alike = Batched(alike) if held is not plain else alike
    return Masked(alike, ct.mask) if ct.__class__ is Masked else alike


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
