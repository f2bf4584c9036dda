"""Node recorders: the one place that fills the fields of an op's node.

A plan decides once which operands have an edge and which values are saved. The recorder of a plan is straight-line
Python, generated from `RECORDER`: a statement for each field, without a decision. `record_any` fills the same fields in
loops, for many operands, for ndarrays among the operands, and in unusual modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import LITERALS, Aval, Literal, is_literal
from tracegrad.ops.core.dispatch import TapeCarrier
from tracegrad.ops.core.op import Op
from tracegrad.torch.tape.recording.node import Spec, next_number
from tracegrad.torch.tape.recording.op_node import OpNode, RecordingPlan
from tracegrad.torch.tape.recording.saved_tensor import SavedArray, copy_saved_borrowed, private, save
from tracegrad.utils.source import define

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


_new = object.__new__
_NONE: dict[str, Any] = {}

# A function of a result (a list of results, if the op has several), the parameters, the shapes, the operands and their
# arrays. It gives the result a node.
Recorder = Callable[..., OpNode | None]

RECORDER = """
def recorder(plan, new, next_number, SavedArray, copy_saved_borrowed, save):
    cls, spec, results, floating = plan.cls, plan.spec, plan.saved_results, plan.floating_results
    {blanks}, = plan.blank
    {specs}, = plan.specs

    def record(out, params, shapes, {xs}, {arrays}):
        node = new(cls)
        node.plan = plan
        node.params = params
        node.hooks = None
        node.shapes = shapes
        node.edges = ({edges},)
        node.number = next_number()  # after the rebuilt node of a view
        {saving}
        node.operands = ({operands},)
        {result}
        {history}

    return record
"""
# The edge of an operand: of one that requires grad, and of another one.
EDGES = {True: "x{k}._edge or x{k}._source()", False: "blank{k}"}
# What is saved of an operand: nothing but a Spec, a number, an array, or a copy of an array.
OPERANDS = {"": "spec{k}", "number": "x{k}", "array": "saved{k}", "copy": "saved{k}"}
SAVING = """
        saved{k} = new(SavedArray)
        saved{k}.array = a{k}
        saved{k}.counter = counter = x{k}._counter
        saved{k}.version = counter[0] if counter.__class__ is list else copy_saved_borrowed(saved{k})
"""
COPYING = """
        saved{k}.protect(x{k})
"""
# What is saved of the result.
RESULTS = {
    "": "node.saved_result = spec",
    "one": """
        node.saved_result = saved = new(SavedArray)
        saved.array = out.array
        saved.counter = out._counter
        saved.version = 0
""",
    "several": "node.saved_result = tuple([save(x, x.array) if k in results else spec[k] for k, x in enumerate(out)])",
}
# The edges from the result to the node, for one result and for several.
HISTORIES = {
    False: """
        out._requires = True
        out._edge = node
""",
    True: """
        for k in floating:
            x = out[k]
            x._requires = True
            x._edge = (node, k) if k else node
""",
}
_SAVING = {"array": SAVING, "copy": SAVING + COPYING.lstrip("\n")}
_SAVED = {(False, False): "", (False, True): "", (True, True): "number", (True, False): "array"}
MAX_UNROLLED = 4  # operands of a generated recorder, at most


def recorder_of(
    op: Op,
    wanted: tuple[int, ...],
    operands: tuple[Aval | Literal, ...],
    node: str = "",
    params: dict[str, object] = _NONE,
) -> Recorder:
    """Return the recorder of an op for arrays on the tape and numbers, in the usual modes.

    The arguments are those of a plan. The recorder does nothing if no operand is differentiated.
    """
    if not wanted:
        return _record_nothing
    plan = RecordingPlan(op, wanted, operands, params, node)
    count = len(plan.blank)
    if count > MAX_UNROLLED:
        return partial(record_any, plan)
    tracked = tuple([k in plan.wanted for k in range(count)])
    saved = tuple([_SAVED[k in plan.saved_operands, k in plan.numbers] for k in range(count)])
    if plan.copies:
        saved = tuple(["copy" if kind == "array" else kind for kind in saved])
    is_multi = plan.cls.is_multi_result
    result = ("several" if is_multi else "one") if plan.saves_result else ""
    factory = _factory(tracked, saved, result, is_multi)
    recorder: Recorder = factory(plan, _new, next_number, SavedArray, copy_saved_borrowed, save)
    return recorder


@cache
def _factory(tracked: tuple[bool, ...], saved: tuple[str, ...], result: str, is_multi: bool) -> Callable[..., Recorder]:
    """Compile the text of the recorder; the arguments are keys of the tables above."""
    count = len(tracked)

    def each(text: str) -> str:
        return ", ".join([text.format(k=k) for k in range(count)])

    source = RECORDER.format(
        blanks=each("blank{k}"),
        specs=each("spec{k}"),
        xs=each("x{k}"),
        arrays=each("a{k}"),
        edges=", ".join([EDGES[t].format(k=k) for k, t in enumerate(tracked)]),
        saving="".join([_SAVING[kind].format(k=k) for k, kind in enumerate(saved) if kind in _SAVING]).strip(),
        operands=", ".join([OPERANDS[kind].format(k=k) for k, kind in enumerate(saved)]),
        result=RESULTS[result].strip(),
        history=HISTORIES[is_multi].strip(),
    )
    factory: Callable[..., Recorder] = define("recorder", source.strip(), {}, "recorder of an op's node")
    return factory


def _record_nothing(out: Array, params: Mapping[str, object], shapes: object, *operands: Operand) -> None:
    pass


def record_any(plan: RecordingPlan, out: Any, params: dict[str, Any], shapes: Any, *operands: Any) -> OpNode:
    """Give a result, or each floating result of several, the node of the op that computed it, and return the node.

    Arrays after the operands are not read; a recorder takes them too.
    """
    node: OpNode = _new(plan.cls)
    node.plan, node.params, node.hooks, node.shapes = plan, params, None, shapes
    edges = [*plan.blank]
    for k in plan.wanted:
        x = operands[k]
        edges[k] = x._edge or x._source()
    node.edges = tuple(edges)
    node.number = next_number()  # after the rebuilt node of a view
    saved = [*plan.specs]
    for k in plan.saved_operands:
        x = operands[k]
        saved[k] = save(x) if isinstance(x, TapeCarrier) else x if is_literal(x) else private(x)
        if plan.copies and saved[k].__class__ is SavedArray:
            saved[k].protect(x)
    node.operands = tuple(saved)
    if not node.is_multi_result:
        node.saved_result = save(out) if plan.saves_result else plan.spec
        out._requires, out._edge = True, node
        return node
    node.saved_result = tuple([save(x) if k in plan.saved_results else plan.spec[k] for k, x in enumerate(out)])
    for k in plan.floating_results:
        out[k]._requires, out[k]._edge = True, (node, k) if k else node
    return node


def shapes_of(arrays: Sequence[Any], ans: Any) -> tuple[Spec | None, ...] | None:
    """Return the specs of an elementwise op's operands if one differs from the result in shape or dtype, else None."""
    shape, dtype = ans.shape, ans.dtype
    for x in arrays:
        if type(x) not in LITERALS and (x.shape != shape or (x.dtype is not dtype and x.dtype != dtype)):
            return tuple([None if is_literal(a) else Spec(a.shape, np.dtype(a.dtype)) for a in arrays])
    return None
