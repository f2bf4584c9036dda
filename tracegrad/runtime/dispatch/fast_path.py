"""Generate the fast path of a program: straight-line Python code around its entry point.

The code unpacks the arguments of a call, checks the guards that the entry point does not check, calls it and builds the
result. Anything unexpected goes to the slow path. Dicts, lists and tuples of inputs go to the entry point unchanged,
unless the code needs their items.

The code is the `__call__` of a generated class, because a method that forwards its arguments costs as much as a small
program. For a function `f(p, x)` it reads like this:

    def call(self, /, p=MISS, x=MISS, *more, **keywords):
        if more or keywords or unusual: return self.call_slowly(...)
        try:
            fits = type(w0 := c0().scale) is float
            if fits: x2 = w0
        except GONE: fits = False
        if not fits: return self.call_slowly(...)
        r = entry(p, x, x2)
        if r is MISS or not r[2]: return self.call_slowly(...)
        return (r[0], {'b': r[1], })

For alternating kinds of calls, the code is a function of the dispatcher and all argument values. On a mismatch it
returns MISS, and the next entry of the polymorphic inline cache is tried. `fast_path_tensors` unpacks calls on Tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_huge
from tracegrad.codegen.loopir.random_draws import native_of
from tracegrad.errors import MADE
from tracegrad.ir import Graph
from tracegrad.ops.calls.random_streams import draw, draw_by
from tracegrad.runtime.dispatch.fast_path_code import Code, NotSimple, Then, opened
from tracegrad.runtime.dispatch.fast_path_header import Header, without_gaps
from tracegrad.runtime.dispatch.native_guards import apart_of, empty, places_of
from tracegrad.runtime.execution.entry_callable import watching
from tracegrad.runtime.execution.program import conformed
from tracegrad.runtime.execution.strided_inputs import Lies
from tracegrad.settings import disabled, unusual
from tracegrad.target.tuning import TUNING
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.effects.effects import NAMES, apart, statements
from tracegrad.trace.effects.result_template import Node, Output
from tracegrad.trace.random.draws import Drawn
from tracegrad.trace.sources.signature import Call
from tracegrad.trace.sources.sources import on_call

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.compiled_backward import OnTape

__all__ = ["hot_call"]

MOST_GUARDS = TUNING.dispatch.max_guards


def hot_call(
    trace: Trace,
    program: Any,
    call: Call,
    header: Header,
    on_tape: OnTape | None = None,
    lies: Lies = (),
    laid: Mapping[Any, Any] = MappingProxyType({}),
) -> Callable[..., Any] | None:
    """Generate the fast path for calls like `call`, or None if they need the slow path.

    `header` binds the arguments. `lies` are the layouts of strided arrays; a path that copies them rejects the layouts
    that are keys of `laid`.

    If the program overwrites inputs, the path is for calls whose inputs own their memory and share it with nothing
    else.
    """
    draws = trace.world.draws
    if draws is not None and (not draws.at_hand or (draws.streams and _asks_numpy(trace.graph))):
        return None  # plain Python may draw faster, which the slow path measures
    if len(trace.world.guards) > MOST_GUARDS or not (lies or all(x.plain for x in trace.layouts)):
        return None  # the entry point takes row-major arrays only
    try:
        code = _code(program, header, on_tape)
        _take_arguments(code, call, header.args, header.kwargs)
        code.prepare(call)
        _convert_scalars(code, call)
        held, native = list[Any](), code.native and not disabled("native-guards")
        places = {
            i: locations
            for i, guard in enumerate(trace.world.guards)
            if native and (locations := places_of(guard, held))
        }
        watched = [trace.world.guards[i] for i in places]
        code.settle(watched)
        unwatched = [guard for i, guard in enumerate(trace.world.guards) if i not in places]
        code.count([guard.source for guard in unwatched] + [c.source for c in trace.captures if c.source])
        for guard in unwatched:
            code.guard(guard)
        if draws is not None:
            with on_call(call):
                code.draw(functools.partial(draws.draw, draws.given()))
            if any(isinstance(x, Drawn) for x in (*trace.written, *[x for group in trace.groups for x in group])):
                return None
        captured = code.captured(_captured(trace, code))
        apart = apart_of(trace, len(code.leaves), program.donors) if code.native else None
        ready = _written(trace, code, [*code.leaves, *captured], apart is None)
        result, effects = _result(trace, code), _effects(trace, code)
        recorded = code.recorded(captured)
        guards = trace.asked(program.checked)
        tests = [_answer(code.output(i + trace.arrays), g.seen) for i, g in enumerate(guards)]
    except NotSimple:
        return None
    captured = _rows(code, captured, lies, laid)
    (args, containers), keep = code.given(captured)
    if code.native:
        checked = [place for locations in places.values() for place in locations]
        bare = not code.checks and all(text.isidentifier() for text in args)
        quiet = empty(unusual) if bare else None  # without other checks, the entry point checks the mode
        checked += [quiet] if quiet else []
        code.objects["entry"] = watching(program.entry, checked, containers, (watched, keep, held), apart or ())
    else:
        code.objects["entry"], quiet = program.entry, None
    trouble = [*header.trouble, *([] if quiet else ["unusual"]), *code.trouble, *([] if code.native else ["sprung()"])]
    space = {**code.objects, "without_gaps": without_gaps}
    if not space.keys().isdisjoint([*header.args, *header.kwargs.values()]):
        return None  # a user's parameter has a name that the code needs
    begin = [header.line, *[f"    {text}" for text in header.ready]]
    begin[1:1] = [f"    if {' or '.join(trouble)}: return {header.otherwise}"] if trouble else []
    otherwise = header.otherwise
    if draws is not None:  # the fallback draws by itself
        begin.append("    drawn = None")
        otherwise = f"(put_back(drawn), {otherwise})[1]"
    lines = [*begin, *_body(code, args, ready, tests, otherwise), *recorded, *_ending(result, effects)]
    exec(_compiled("\n".join(lines)), space)
    output: Callable[..., Any] = space["call"]
    return output


def _asks_numpy(graph: Graph) -> bool:
    """Whether a random draw in a loop is a call of NumPy."""
    compiles = not disabled("native-draws")
    return any(x.op in (draw, draw_by) and not (compiles and native_of(x)) for x in graph.everywhere())


@functools.lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    """Compile a source text (cached: calls of other shapes often have the same text)."""
    return compile(text, MADE, "exec")


def _code(program: Any, header: Header, on_tape: OnTape | None) -> Code:
    if on_tape is None:
        return Code(program, header.args, header.kwargs)
    from tracegrad.runtime.dispatch.fast_path_tensors import TensorCode

    return TensorCode(program, header.args, header.kwargs, on_tape)


def _body(code: Code, leaves: list[str], ready: list[str], tests: list[str], otherwise: str) -> list[str]:
    """Write the checks, the reads, the call with these `leaves`, and the checks of the guard values; a mismatch returns
    `otherwise`."""
    lines = []
    if code.checks or not all(text.isidentifier() for text in leaves):
        names = [text if text.isidentifier() else f"x{i}" for i, text in enumerate(leaves)]
        # The slow path runs the user's code, whose exceptions must not be caught here.
        taken = "; ".join([f"{name} = {text}" for name, text in zip(names, leaves) if name != text]) or "pass"
        lines = ["    try:", *_checked(code.checks, taken), "    except GONE: fits = False"]
        lines.append(f"    if not fits: return {otherwise}")
        leaves = names
    lines += [f"    if not ({text}): return {otherwise}" for text in ready]
    answers = "".join(f" or not ({t})" for t in tests)
    return [
        *lines,
        *code.entering(f"entry({', '.join(leaves)})"),
        f"    if r is MISS{answers}: return {otherwise}",
    ]


def _checked(checks: Sequence[str], taken: str) -> list[str]:
    """Write the checks, whose result is `fits`, and the lines `taken` if they hold."""
    lines, space, before = [], " " * 8, list[str]()
    for check in checks:
        if not isinstance(check, Then):
            before.append(check)
            continue
        if before:
            lines += [f"{space}fits = {' and '.join(before)}", f"{space}if fits:"]
            space, before = space + "    ", []
        lines.append(f"{space}{check}")
    return [*lines, f"{space}fits = {' and '.join(before) or 'True'}", f"{space}if fits: {taken}"]


def _ending(result: str, effects: list[str]) -> list[str]:
    """Write the result, and the side effects of the call."""
    return [f"    out = {result}", *effects, "    return out"] if effects else [f"    return {result}"]


def _take_arguments(code: Code, call: Call, args: Sequence[str], kwargs: Mapping[str, str]) -> None:
    """Write the unpacking of the arguments with these names, and the checks of static ones."""
    both = opened(call.structure)
    assert both is not None
    positional, keywords = (opened(x) for x in both[2])
    assert positional is not None
    assert keywords is not None
    code.generators = call.given_generators()
    for place, value in call.statics:
        code.fixed(args[place] if isinstance(place, int) else kwargs[place], value)
    static = {place for place, _ in call.statics}
    for name, structure in zip([a for i, a in enumerate(args) if i not in static], positional[2], strict=True):
        code.take(name, structure)
    for k, structure in zip(sorted(k for k in kwargs if k not in static), keywords[2], strict=True):
        code.take(kwargs[k], structure)


def _convert_scalars(code: Code, call: Call) -> None:
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


def _rows(code: Code, captured: list[str], lies: Lies, laid: Mapping[Any, Any]) -> list[str]:
    """Write the conversion of the arrays to the program's layout: returns the captured ones, and updates the leaves in
    `code`."""
    texts = [*code.leaves, *captured]
    for i, lie in enumerate(lies):
        if lie is not None and lie.strides is None:
            code.checks += lie.checks(texts[i])
            code.objects["rows"] = np.ascontiguousarray
            code.used.add(i)
    if laid and not any(lie and lie.strides for lie in lies):
        code.objects["laid"] = laid
        result = "".join([f"{x}.strides, " if lie else "None, " for x, lie in zip(texts, lies)])
        code.checks.append(f"({result}) not in laid")
    texts = [x if lie is None else lie.text(x) for x, lie in zip(texts, lies or (None,) * len(texts))]
    count = len(code.leaves)
    code.leaves = texts[:count]
    return texts[count:]


def _captured(trace: Trace, code: Code) -> list[str]:
    """Write the reads of captured arrays and numbers."""
    results = []
    for capture in trace.captures:
        text = code.read(capture.source) if capture.source else code.name(capture.array)
        if capture.number not in (None, float):
            code.checks.append(f"type({text}) is {code.name(capture.number)}")
            text = f"asarray({text})"
        results.append(text)
    return results


def _result(trace: Trace, code: Code) -> str:
    """Write the construction of the result from `r`, the result of the entry point."""
    answer = trace.answer
    if code.on_tape is not None:
        return answer.text(code)
    count = trace.arrays + len(trace.asked(code.checked))
    if isinstance(answer, Node) and answer.kind.cls is tuple and not code.single:
        flat = [x.position for x in answer.parts if isinstance(x, Output) and x.kind is x.axes is None]
        if flat == list(range(count)) and len(answer.parts) == count:
            return "r"
    return answer.text(code)


def _effects(trace: Trace, code: Code) -> list[str]:
    """Write the side effects of a call on outside objects."""
    code.objects |= NAMES
    others = [effect for effect in trace.effects if not code.overwrites(effect)]
    ready = []
    for i, effect in enumerate(others):
        ready += [f"h{i} = {code.place(effect.holder)}", f"v{i} = {effect.piece.text(code)}"]
    whole = code.overwritten([effect for effect in trace.effects if code.overwrites(effect)])
    return [f"    {line}" for line in (*ready, *statements(others, code.name, whole))]


def _written(trace: Trace, code: Code, leaves: Sequence[str], alone: bool) -> list[str]:
    """Write the checks that a call may write as its graph does. The entry point checks memory overlap, unless the
    checks stand `alone`."""
    results = []
    for group in trace.groups:
        results.append(f"len({{{', '.join(f'id({source.text(code.name)})' for source in group)}}}) == {len(group)}")
    if not trace.written or not alone:
        return results
    code.objects["apart"] = apart
    code.used.update(range(len(leaves)))
    arrays = [text for text, kind in zip(leaves, trace.kinds) if kind == "array"]
    targets = [source.text(code.name) for source in trace.written]
    return [
        *results,
        f"apart(({''.join(f'{text}, ' for text in targets)}), ({''.join(f'{text}, ' for text in arrays)}))",
    ]


def _answer(text: str, seen: np.ndarray[Any, Any]) -> str:
    """Write the comparison of a guard value with the value seen in the trace."""
    if seen.ndim or (seen.dtype.kind == "f" and (seen == 0 or not math.isfinite(seen))):
        raise NotSimple
    if seen.dtype.kind == "b":  # faster than a comparison
        return text if seen else f"not {text}"
    return f"{text} == {seen.item()!r}"
