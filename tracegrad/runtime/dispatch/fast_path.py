"""Generate the fast path of a program: straight-line Python code around its entry point.

The code unpacks the arguments of a call, checks the guards that the entry point does not check, calls it and builds the
result. Anything unexpected goes to the slow path. Dicts, lists and tuples of inputs go to the entry point unchanged,
unless the code needs their items.

The code is the `__call__` of a generated class, because a method that forwards its arguments costs as much as a small
program. For a function `f(p, x)` it reads like this:

    def call(self, /, p=MISS, x=MISS, *more, **keywords):
        if more or keywords or unusual: return self.call_slowly(...)
        try:
            fits = type(read_0 := object_0().scale) is float
            if fits: input_2 = read_0
        except GONE: fits = False
        if not fits: return self.call_slowly(...)
        outputs = entry(p, x, input_2)
        if outputs is MISS or not outputs[2]: return self.call_slowly(...)
        return (outputs[0], {'b': outputs[1], })

`TRACEGRAD_LOG=source` prints the code.

For alternating kinds of calls, the code is a function of the dispatcher and all argument values. On a mismatch it
returns MISS, and the next entry of the polymorphic inline cache is tried. `fast_path_tensors` unpacks calls on Tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import is_huge
from tracegrad.codegen.loopir.random_draws import native_of
from tracegrad.ir import Graph
from tracegrad.ops.calls.random_streams import draw, draw_by
from tracegrad.runtime.dispatch.fast_path_code import FastPathCode, NotSimple, Then, opened
from tracegrad.runtime.dispatch.fast_path_header import Header, name_after_missing
from tracegrad.runtime.dispatch.native_guards import SlotFields, disjoint_checks_of, empty, guard_slots_of
from tracegrad.runtime.execution.entry_callable import watching
from tracegrad.runtime.execution.program import conformed
from tracegrad.runtime.execution.strided_inputs import InputLayouts
from tracegrad.settings import disabled, unusual
from tracegrad.target.tuning import TUNING
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.effects.effects import NAMES, are_disjoint, statements
from tracegrad.trace.effects.result_template import ContainerTemplate, Output
from tracegrad.trace.random.draws import Drawn
from tracegrad.trace.sources.signature import BoundCall
from tracegrad.trace.sources.sources import on_call
from tracegrad.trace.world.guards import SourceGuard
from tracegrad.utils.source import define

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.compiled_backward import OnTape
    from tracegrad.typing import NDArray

MAX_GUARDS = TUNING.dispatch.max_guards


def generate_fast_path(
    trace: Trace,
    program: Any,
    call: BoundCall,
    header: Header,
    on_tape: OnTape | None = None,
    layouts: InputLayouts = (),
    strided_programs: Mapping[Any, Any] = MappingProxyType({}),
) -> Callable[..., object] | None:
    """Generate the fast path for calls like `call`, or None if they need the slow path.

    `header` binds the arguments. `layouts` are the layouts of strided arrays; a path that copies them rejects the
    layouts that are keys of `strided_programs`.

    If the program overwrites inputs, the path is for calls whose inputs own their memory and share it with nothing
    else.
    """
    draws = trace.world.draws
    if draws is not None and (not draws.at_hand or (draws.streams and _draws_by_numpy(trace.graph))):
        return None  # plain Python may draw faster, which the slow path measures
    if len(trace.world.guards) > MAX_GUARDS or not (layouts or all(x.plain for x in trace.layouts)):
        return None  # the entry point takes row-major arrays only
    try:
        code = _code(program, header, on_tape)
        _unpack_arguments(code, call, header.args, header.kwargs)
        code.prepare(call)
        _convert_scalars(code, call)
        checks = _split_guards(trace.world.guards, code.native and not disabled("native-guards"))
        code.assume_guards(checks.native)
        code.count([guard.source for guard in checks.others] + [c.source for c in trace.captures if c.source])
        for guard in checks.others:
            code.guard(guard)
        if draws is not None:
            with on_call(call):
                code.draw(functools.partial(draws.draw, draws.passed_generators()))
            if any(isinstance(x, Drawn) for x in (*trace.written, *[x for group in trace.groups for x in group])):
                return None
        captured = code.captured(_captured(trace, code))
        disjoint_checks = disjoint_checks_of(trace, len(code.leaves), program.donors) if code.native else None
        ready = _written(trace, code, [*code.leaves, *captured], disjoint_checks is None)
        result, effects = _result(trace, code), _effects(trace, code)
        recorded = code.recorded(captured)
        guards = trace.explicit_guards(program.checked)
        tests = [_guard_test(code.output(i + trace.arrays), g.value) for i, g in enumerate(guards)]
    except NotSimple:
        return None
    captured = _convert_layouts(code, captured, layouts, strided_programs)
    (args, containers), keepalive = code.entry_arguments(captured)
    # Without other checks, the entry point checks the mode.
    bare = code.native and not code.checks and all(text.isidentifier() for text in args)
    quiet = empty(unusual) if bare else None
    code.objects["entry"] = program.entry
    if code.native:
        checked = [*checks.slots, *([quiet] if quiet else [])]
        alive = (checks.native, keepalive, checks.referents)
        code.objects["entry"] = watching(program.entry, checked, containers, alive, disjoint_checks or ())
    trouble = [*header.trouble, *([] if quiet else ["unusual"]), *code.trouble, *([] if code.native else ["sprung()"])]
    space = {**code.objects, "without_gaps": name_after_missing}
    if not space.keys().isdisjoint([*header.args, *header.kwargs.values()]):
        return None  # a user's parameter has a name that the code needs
    begin = [header.line, *[f"    {text}" for text in header.ready]]
    begin[1:1] = [f"    if {' or '.join(trouble)}: return {header.otherwise}"] if trouble else []
    otherwise = header.otherwise
    if draws is not None:  # the fallback draws by itself
        begin.append("    drawn = None")
        otherwise = f"(put_back(drawn), {otherwise})[1]"
    lines = [*begin, *_body(code, args, ready, tests, otherwise), *recorded, *_ending(result, effects)]
    return define("call", "\n".join(lines), space, "fast path")


class _Guards(NamedTuple):
    """Guards that the entry point checks, with the memory locations that it reads and the objects that must stay alive
    for them; and the others."""

    native: list[SourceGuard]
    slots: list[SlotFields]
    referents: list[Any]
    others: list[SourceGuard]


def _split_guards(guards: Sequence[SourceGuard], has_native: bool) -> _Guards:
    result = _Guards([], [], [], [])
    for guard in guards:
        slots = guard_slots_of(guard, result.referents) if has_native else ()
        (result.native if slots else result.others).append(guard)
        result.slots.extend(slots)
    return result


def _draws_by_numpy(graph: Graph) -> bool:
    """Whether a random draw in a loop is a call of NumPy."""
    compiles = not disabled("native-draws")
    return any(x.op in (draw, draw_by) and not (compiles and native_of(x)) for x in graph.everywhere())


def _code(program: object, header: Header, on_tape: OnTape | None) -> FastPathCode:
    if on_tape is None:
        return FastPathCode(program, header.args, header.kwargs)
    from tracegrad.runtime.dispatch.fast_path_tensors import TensorCode

    return TensorCode(program, header.args, header.kwargs, on_tape)


def _body(code: FastPathCode, leaves: list[str], ready: list[str], tests: list[str], otherwise: str) -> list[str]:
    """Write the checks, the reads, the call with these `leaves`, and the checks of the guard values; a mismatch returns
    `otherwise`."""
    lines = []
    if code.checks or not all(text.isidentifier() for text in leaves):
        names = [text if text.isidentifier() else f"input_{i}" for i, text in enumerate(leaves)]
        # The slow path runs the user's code, whose exceptions must not be caught here.
        assignments = "; ".join([f"{name} = {text}" for name, text in zip(names, leaves) if name != text]) or "pass"
        lines = ["    try:", *_checked(code.checks, assignments), "    except GONE: fits = False"]
        lines.append(f"    if not fits: return {otherwise}")
        leaves = names
    lines += [f"    if not ({text}): return {otherwise}" for text in ready]
    mismatches = "".join(f" or not ({t})" for t in tests)
    return [
        *lines,
        *code.entering(f"entry({', '.join(leaves)})"),
        f"    if outputs is MISS{mismatches}: return {otherwise}",
    ]


def _checked(checks: Sequence[str], assignments: str) -> list[str]:
    """Write the checks, whose result is `fits`, and the lines `assignments` if they hold."""
    lines, space, before = [], " " * 8, list[str]()
    for check in checks:
        if not isinstance(check, Then):
            before.append(check)
            continue
        if before:
            lines += [f"{space}fits = {' and '.join(before)}", f"{space}if fits:"]
            space, before = space + "    ", []
        lines.append(f"{space}{check}")
    return [*lines, f"{space}fits = {' and '.join(before) or 'True'}", f"{space}if fits: {assignments}"]


def _ending(result: str, effects: list[str]) -> list[str]:
    """Write the result, and the side effects of the call."""
    return [f"    out = {result}", *effects, "    return out"] if effects else [f"    return {result}"]


def _unpack_arguments(code: FastPathCode, call: BoundCall, args: Sequence[str], kwargs: Mapping[str, str]) -> None:
    """Write the unpacking of the arguments with these names, and the checks of static ones."""
    both = opened(call.structure)
    assert both is not None
    positional, keywords = (opened(x) for x in both[2])
    assert positional is not None
    assert keywords is not None
    code.generators = call.passed_generators()
    for parameter, value in call.statics:
        code.fixed(args[parameter] if isinstance(parameter, int) else kwargs[parameter], value)
    static = {parameter for parameter, _ in call.statics}
    for name, structure in zip([a for i, a in enumerate(args) if i not in static], positional[2], strict=True):
        code.unpack_value(name, structure)
    for k, structure in zip(sorted(k for k in kwargs if k not in static), keywords[2], strict=True):
        code.unpack_value(kwargs[k], structure)


def _convert_scalars(code: FastPathCode, call: BoundCall) -> None:
    """Write the conversion of NumPy scalars, ints and bools to 0-d arrays, as the entry point takes them."""
    code.objects["asarray"] = np.asarray
    for i, x in enumerate(call.leaves):
        text = code.leaves[i]
        if is_huge(x):
            code.checks += [f"type({text}) is int", f"{text} == {x}"]
            code.leaves[i] = code.name(conformed(x))
            code.used.add(i)
        elif type(x) is complex:
            code.objects["repr"] = repr
            code.checks += [f"type({text}) is complex", f"repr({text}) == {repr(x)!r}"]
            code.leaves[i] = code.name(conformed(x))
            code.used.add(i)
        elif type(x) is int or type(x) is bool:
            code.checks.append(f"type({text}) is {type(x).__name__}")
            code.leaves[i] = f"asarray({text})"
            code.used.add(i)
        elif type(x) is np.ndarray and x.ndim == 0 and call.key[1][i][2:] == (np.generic,):
            code.checks.append(f"type({text}) is {code.name(x.dtype.type)}")
            code.leaves[i] = f"asarray({text})"
            code.used.add(i)


def _convert_layouts(
    code: FastPathCode, captured: list[str], layouts: InputLayouts, strided_programs: Mapping[object, object]
) -> list[str]:
    """Write the conversion of the arrays to the program's layout: returns the captured ones, and updates the leaves in
    `code`."""
    texts = [*code.leaves, *captured]
    for i, layout in enumerate(layouts):
        if layout is not None and layout.strides is None:
            code.checks += layout.checks(texts[i])
            code.objects["rows"] = np.ascontiguousarray
            code.used.add(i)
    if strided_programs and not any(layout and layout.strides for layout in layouts):
        code.objects["laid"] = strided_programs
        result = "".join([f"{x}.strides, " if layout else "None, " for x, layout in zip(texts, layouts)])
        code.checks.append(f"({result}) not in laid")
    texts = [x if layout is None else layout.text(x) for x, layout in zip(texts, layouts or (None,) * len(texts))]
    count = len(code.leaves)
    code.leaves = texts[:count]
    return texts[count:]


def _captured(trace: Trace, code: FastPathCode) -> list[str]:
    """Write the reads of captured arrays and numbers."""
    results = []
    for capture in trace.captures:
        text = code.read(capture.source) if capture.source else code.name(capture.array)
        if capture.number not in (None, float):
            code.checks.append(f"type({text}) is {code.name(capture.number)}")
            text = f"asarray({text})"
        results.append(text)
    return results


def _result(trace: Trace, code: FastPathCode) -> str:
    """Write the construction of the result from `outputs`, the result of the entry point."""
    template = trace.result
    if code.on_tape is not None:
        return template.text(code)
    count = trace.arrays + len(trace.explicit_guards(code.checked))
    if isinstance(template, ContainerTemplate) and template.kind.cls is tuple and not code.single:
        flat = [x.position for x in template.children if isinstance(x, Output) and x.kind is x.axes is None]
        if flat == list(range(count)) and len(template.children) == count:
            return "outputs"
    return template.text(code)


def _effects(trace: Trace, code: FastPathCode) -> list[str]:
    """Write the side effects of a call on outside objects."""
    code.objects |= NAMES
    others = [effect for effect in trace.effects if not code.overwrites(effect)]
    ready = []
    for i, effect in enumerate(others):
        ready += [f"holder_{i} = {code.checked_text(effect.holder)}", f"value_{i} = {effect.template.text(code)}"]
    whole = code.overwritten([effect for effect in trace.effects if code.overwrites(effect)])
    return [f"    {line}" for line in (*ready, *statements(others, code.name, whole))]


def _written(trace: Trace, code: FastPathCode, leaves: Sequence[str], check_disjoint: bool) -> list[str]:
    """Write the checks that a call may write as its graph does. The entry point checks memory overlap, unless the
    checks stand `check_disjoint`."""
    results = []
    for group in trace.groups:
        results.append(f"len({{{', '.join(f'id({source.text(code.name)})' for source in group)}}}) == {len(group)}")
    if not trace.written or not check_disjoint:
        return results
    code.objects["apart"] = are_disjoint
    code.used.update(range(len(leaves)))
    arrays = [text for text, kind in zip(leaves, trace.kinds) if kind == "array"]
    targets = [source.text(code.name) for source in trace.written]
    return [
        *results,
        f"apart(({''.join(f'{text}, ' for text in targets)}), ({''.join(f'{text}, ' for text in arrays)}))",
    ]


def _guard_test(text: str, expected: NDArray) -> str:
    """Write the comparison of a guard value with the value seen in the trace."""
    if expected.ndim or (expected.dtype.kind == "f" and (expected == 0 or not math.isfinite(expected))):
        raise NotSimple
    if expected.dtype.kind == "b":  # faster than a comparison
        return text if expected else f"not {text}"
    return f"{text} == {expected.item()!r}"
