"""Store traces on disk: a function whose code and captured state are unchanged is not traced again.

The key of a record in the disk cache is known before tracing: the code of the function and of its transforms, the key
of the call, this package, and the versions of everything that traces take for granted. A record is a trace with its
program: the root objects of its guards (`object_refs`), its assumptions (`serializer`), the graph as text and, once
there is machine code, the program as data (`image`). It is used if all its assumptions hold, including each captured
value and each called function, just as a trace in memory is.

A trace is not stored if some part has no certain fingerprint: updates of Tensors in place, containers whose functions
read lists or arrays, functions of packages other than Python's own, NumPy and SciPy, objects of classes in C, and code
that prints or depends on the order of sets.
"""

from __future__ import annotations

import functools
import json
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import TracegradError
from tracegrad.ir import Graph, parse, to_text
from tracegrad.ir.printer import names_of
from tracegrad.runtime.compile.code_store import missing
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.runtime.compile.fingerprint import (
    Roots,
    Unkept,
    class_key,
    described,
    digest,
    functions_of,
    is_extended,
    library,
    meaning,
    names_in,
    process_key,
    resolve_name,
    untouched,
)
from tracegrad.runtime.dispatch.specializations import Specialization, TracePath, tape_of
from tracegrad.runtime.execution.image import require_plain, restore_image, written
from tracegrad.runtime.execution.program import Program, RestoredProgram, Unplanned
from tracegrad.runtime.execution.tiers import missing_of
from tracegrad.runtime.persistence.loop_hints import restore_fact, serialize_facts
from tracegrad.runtime.persistence.object_refs import Changed, ObjectReader, ObjectWriter
from tracegrad.runtime.persistence.pytree_fingerprint import registration
from tracegrad.runtime.persistence.serializer import (
    Templates,
    restore_capture,
    restore_effect,
    restore_guard,
    serialize_capture,
    serialize_effect,
    serialize_guard,
)
from tracegrad.settings import settings
from tracegrad.target.tuning import TUNING
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder.layout import LayoutGuard
from tracegrad.trace.builder.value_guards import ValueGuard
from tracegrad.trace.driver.tensor_effects import TapeTrace
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.proxies.function_proxies import is_user_object
from tracegrad.trace.sources.code_origin import is_user_function
from tracegrad.trace.sources.signature import BoundCall
from tracegrad.trace.sources.sources import Attribute, Fixed
from tracegrad.trace.world.guards import Assumptions
from tracegrad.transforms.split_program import DerivativeProgram
from tracegrad.utils.lazy_dataclass import record
from tracegrad.utils.log import log

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.compiled_backward import OnTape
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher

_ProgramAndTape = tuple["Program | None", "OnTape | None"]

MAX_RECORDS = TUNING.caches.stored_paths
_THEN = b"\t"  # separates a record from its image; JSON text does not contain it
# Errors after which a call is traced as usual: its trace cannot be shared between processes, or a user's object cannot
# be inspected.
_TROUBLE = (
    Unkept,
    Changed,
    TracegradError,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
    ReferenceError,
    RecursionError,
)


# -- keys --------------------------------------------------------------------------------------------------------------
def _identity(fun: Dispatcher, call: BoundCall, room: int) -> tuple[str, list[Any]]:
    """The key of a call, and the traced objects."""
    if not (settings.cache and settings.cache_traces) or _is_unusual() or is_extended() or _is_watched():
        return "", []
    assert settings.loop_memory != 0  # guards record its use
    roots = Roots()
    structure, kinds, statics = call.key
    signature = fun.binder.signature
    parameters = [(k, str(p.kind)) for k, p in signature.parameters.items()] if signature else []
    parts = [
        process_key(),
        fun._plain.__qualname__,
        str((fun.effects, fun._shared, room, fun.how()[1])),
        str(parameters),
        *_functions_of(roots, fun),
        roots.structure(structure),
        roots.static(statics),
        str([_kind(kind) for kind in kinds]),
        str(np.get_printoptions()),
        *_settings_of_tensors(),
        str(sorted(settings.opaque_packages)),
        str(sorted(settings.disable)),
    ]
    parts += [registration(x) for x in roots.objects if isinstance(x, type)]
    return "trace " + digest("\n".join(parts)), roots.objects


def _is_unusual() -> bool:
    """Whether a mode of Tensors is active."""
    return STATE.unusual or STATE.depth > 0


def _functions_of(roots: Roots, fun: Dispatcher) -> list[str]:
    """The fingerprints of the traced functions."""
    program = fun.fun
    if not isinstance(program, DerivativeProgram):
        return [roots.text(program), roots.text(fun.body)]
    shape, avals = program.outputs or (None, ())
    structures = [roots.structure(x) for x in (program.structure, shape) if x is not None]
    if "text" not in vars(program):
        require_plain(program.graph)
    return [f"derivative {program.text}", *structures, str(avals), program.label]


def _is_watched() -> bool:
    """Whether a debugger or a coverage tool observes the executed lines."""
    monitoring = getattr(sys, "monitoring", None)
    return sys.gettrace() is not None or any(monitoring.get_tool(i) for i in range(6) if monitoring)


def _kind(kind: Any) -> str:
    """The text of a leaf's kind."""
    if isinstance(kind, type):
        return kind.__name__
    if kind[0] is int:
        return f"huge {kind[1]}"
    return f"{class_key(kind[0]) if isinstance(kind[0], type) else kind[0].str} {kind[1:]}"


def _settings_of_tensors() -> tuple[str, str]:
    """The default dtype of Tensors, and their print options; the initial ones if no Tensors are in use."""
    dtypes, printing = (sys.modules.get(f"tracegrad.torch.tape.tensors.{name}") for name in ("dtypes", "printing"))
    return str(dtypes.get_default_dtype() if dtypes else np.dtype(float)), printing.options_set() if printing else ""


# -- records -----------------------------------------------------------------------------------------------------------
@record(eq=False)
class TraceRecords:
    """The records of one specialization as texts, the most recent first, and the records from which no path was made
    yet."""

    key: str
    records: list[bytes]
    waiting: list[bytes]


def store_path(fun: Dispatcher, call: BoundCall, spec: Specialization, path: TracePath) -> None:
    """Store a path in the disk cache, replacing its earlier record, if other processes can use it. Used within
    `on_call`."""
    result, trace, program = spec.records, path.trace, path.program
    if result is None or not result.key or type(program) not in (Program, Unplanned) or trace.world.has_output:
        return
    try:
        key, roots = _identity(fun, call, spec.room)
        known = json.loads(path.record.partition(_THEN)[0]) if path.record else _serialize_trace(roots, trace, program)
        text = _with_program(known, program).encode()
    except _TROUBLE as reason:
        log("cache", "%s: this trace is not kept: %s", fun.name, reason)
        return
    if key == result.key and text not in result.records:
        result.records = [text, *(x for x in result.records if x != path.record)][:MAX_RECORDS]
        path.record = text
        default_cache().put(key, {"kind": "trace", "name": fun.name}, b"\n".join(result.records))


def restore_traces(
    fun: Dispatcher, call: BoundCall, spec: Specialization
) -> Iterator[tuple[Trace, bytes, Callable[[], _ProgramAndTape]]]:
    """The stored traces that may hold for a call, each with its record and a function that makes its program and its
    tape data. Used within `on_call`."""
    if spec.records is not None and not spec.records.waiting:
        return
    try:
        key, roots = _identity(fun, call, spec.room)
    except _TROUBLE as reason:
        log("cache", "%s: its traces are not kept: %s", fun.name, reason)
        key, roots = "", []
    result = spec.records = spec.records or _read_records(key)
    for text in [*result.waiting] if key == result.key else ():
        try:
            first, _, image = text.partition(_THEN)
            held = {**json.loads(first), "image": image}
            trace = _restore_trace(roots, held, getattr(fun.fun, "reference", None))
        except _TROUBLE as error:
            log("cache", "%s: a trace that was kept does not hold here: %s", fun.name, error)
            continue
        yield trace, text, functools.partial(_program, result, text, trace, held, fun)


def _read_records(key: str) -> TraceRecords:
    result = default_cache().get(key) if key else None
    records = result[1].split(b"\n") if result else []
    return TraceRecords(key, records, [*records])


def _program(stored: TraceRecords, text: bytes, trace: Trace, held: dict[str, Any], fun: Dispatcher) -> _ProgramAndTape:
    """The program of a record; None if it cannot be made."""
    stored.waiting.remove(text)
    on_tape = tape_of(trace, fun, fun.how())
    checked = trace.implicit and on_tape is None
    how, optimize = fun.how()

    def graph() -> Graph:
        return on_tape.graph if on_tape is not None else trace.checked() if checked else trace.graph

    try:
        serialized = json.loads(held["image"])
        image = serialized and restore_image(serialized)
        if image and not missing(image.uses):
            return RestoredProgram(image, graph, checked, fun.name, optimize), on_tape
        missing_units = missing_of(image).unit_costs if image else held["missing"]
        single, spent = held["single"], held["spent"]
        return Unplanned(graph(), trace.kinds, single, fun.name, checked, how, optimize, missing_units, spent), on_tape
    except _TROUBLE as error:
        log("cache", "%s: a program that was kept does not run here: %s", fun.name, error)
        return None, on_tape


def _with_program(known: dict[str, object], program: Program) -> str:
    """A record with its program: the image, or the state of a program that waits for one. The image is the larger part,
    and is read only if all assumptions hold."""
    tier = program.tier
    missing, spent = ({}, 0.0) if tier is None else ({**tier.missing}, tier.spent)
    rest = known | {"missing": missing, "spent": spent, "single": program.single}
    image = program.image.serialized if tier is None else "null"
    return f"{json.dumps(rest, separators=(',', ':'))}{_THEN.decode()}{image}"


# -- writing a trace ---------------------------------------------------------------------------------------------------
def _serialize_trace(roots: Sequence[object], trace: Trace, program: Program) -> dict[str, Any]:
    shares = type(program) is Program and program.graph is trace.graph
    graph = written(trace.graph, program.image if shares else None)
    guards = trace.world.guards
    to = ObjectWriter(roots, [(guard.expected, guard.source) for guard in guards if guard.kind == "is"])
    for root in roots:
        to.number(root)
    templates, names = Templates(to), names_of(trace.graph)
    table = {
        "source guards": [serialize_guard(to, guard) for guard in guards],
        "captures": [serialize_capture(to, x) for x in trace.captures],
        "result": templates.serialize(trace.result),
        "effects": [serialize_effect(to, templates, x) for x in trace.effects],
        "value guards": [_serialize_value_guard(to, names, x) for x in trace.guards],
        "script": [to.value(np.asarray(x)) for x in trace.script],
        "layouts": [list(x) for x in trace.layouts],
        "groups": [[to.source(x) for x in group] for group in trace.groups],
        "facts": serialize_facts(to, trace),
        "graph": graph,
        "kinds": trace.kinds,
        "arrays": trace.arrays,
        "unrolled": trace.unrolled,
        "divided": trace.divided,
        "tape": None if trace.tape is None else _serialize_tape(to, trace.tape),
    }
    codes, modules = _codes_and_modules(to.held, guards)
    return {"objects": to.objects, "untouched": untouched(modules, names_in(codes)), **table}


def _serialize_tape(to: ObjectWriter, x: TapeTrace) -> list[object]:
    """The data for calls on Tensors besides the graph."""
    if x.joint is not None:
        require_plain(x.joint, rules=True)
    joint = None if x.joint is None else to_text(x.joint, locations=True)
    outside_tensors = [[to.source(source), k] for source, k in x.outside_tensors]
    return [
        outside_tensors,
        [*map(to.source, x.wanted)],
        [[a.dtype.str, list(a.shape)] for a in x.roots],
        joint,
        x.spent,
    ]


def _restore_tape(of: ObjectReader, x: Sequence[Any]) -> TapeTrace:
    outside_tensors, wanted, roots, joint, spent = x
    return TapeTrace(
        tuple([(of.source(source), k) for source, k in outside_tensors]),
        tuple(map(of.source, wanted)),
        tuple([Aval(tuple(shape), np.dtype(dtype)) for dtype, shape in roots]),
        joint and parse(joint),
        spent,
    )


def _serialize_value_guard(to: ObjectWriter, names: dict[Any, str], x: ValueGuard) -> list[object]:
    if x.node not in names or x.unless_raises not in (None, *names):
        raise Unkept(f"{x.query}, which no program answers")
    raised = None if x.unless_raises is None else names[x.unless_raises]
    key = to.value(x.key)
    return [names[x.node], to.value(np.asarray(x.value)), key, x.query, x.location, x.implicit, raised, x.number]


def _codes_and_modules(
    held: Sequence[Any], guards: Sequence[Any]
) -> tuple[list[types.CodeType], list[types.ModuleType]]:
    """The code objects that were traced or run unchanged, and the library modules that they name. `Unkept` for a
    function with unguarded defaults."""
    shadows = {
        guard.source.parent.parent
        for guard in guards
        if type(guard.source) is Attribute and type(guard.source.parent) is Fixed and guard.source.name == "__code__"
    }
    codes = [x for x in held if isinstance(x, types.CodeType)]
    functions = [x for x in held if isinstance(x, types.FunctionType) and is_user_function(x)]
    for x in functions:
        _, _, _, defaults, keywords, attributes = described(x)
        if x not in shadows and (attributes or "*" in defaults or "*" in [value for _, value in keywords]):
            raise Unkept(f"the function {x.__qualname__}, whose defaults a trace does not see")
    classes = [x for x in held if isinstance(x, type)] + [type(x) for x in held if is_user_object(x)]
    functions += [x for cls in classes for x in functions_of(cls)]
    modules = [x for x in held if isinstance(x, types.ModuleType) and library(x.__name__)]
    library_codes = {x.__code__ for x in functions if library(str(x.__globals__.get("__name__")))}
    return [code for code in (*codes, *(x.__code__ for x in functions)) if code not in library_codes], [np, *modules]


# -- reading a trace ---------------------------------------------------------------------------------------------------
class _OfText(Trace):
    """A trace whose graph is parsed from text on demand."""

    _parsed: Graph | None = None
    _text = ""

    @property
    def graph(self) -> Graph:
        """The parsed graph; its nodes are then assigned to guards and captures."""
        if self._parsed is None:
            self._parsed = parse(self._text)
            nodes = {name: node for node, name in names_of(self._parsed).items()}
            for guard in self.guards:
                for field in ("node", "unless_raises"):
                    object.__setattr__(guard, field, nodes.get(getattr(guard, field)))
            inputs = self._parsed.inputs[len(self._parsed.inputs) - len(self.captures) :]
            for capture, node in zip(self.captures, inputs):
                object.__setattr__(capture, "node", node)
        return self._parsed

    @graph.setter
    def graph(self, text: Any) -> None:
        self._text = text


def _restore_trace(roots: Sequence[Any], held: dict[str, Any], weak: object) -> Trace:
    for module, name, before in held["untouched"]:
        if module == "tracegrad":
            getattr(sys.modules[module], name, None)  # lazily loaded
        try:
            same = meaning(resolve_name((module, name))) == before
        except Unkept:
            same = False
        if not same:
            raise Changed(f"{module}.{name}")
    of = ObjectReader(roots, held["objects"], weak)
    templates, world = Templates(of), Assumptions()
    world.guards = [restore_guard(of, x) for x in held["source guards"]]
    template = templates.read(held["result"])
    effects = tuple([restore_effect(of, templates, x) for x in held["effects"]])
    world.rewritten = frozenset([x.location for x in effects])
    return _OfText(
        held["graph"],
        tuple(held["kinds"]),
        template,
        effects,
        tuple([_restore_value_guard(of, x) for x in held["value guards"]]),
        tuple([restore_capture(of, x) for x in held["captures"]]),
        world,
        held["arrays"],
        held["tape"] and _restore_tape(of, held["tape"]),
        layouts=tuple([_layout(*x) for x in held["layouts"]]),
        groups=tuple([tuple([of.source(x) for x in group]) for group in held["groups"]]),
        unrolled=tuple([(location, why) for location, why in held["unrolled"]]),
        divided=tuple([(location, why) for location, why in held["divided"]]),
        script=tuple([of.value(x) for x in held["script"]]),
        facts=frozenset([restore_fact(of, x) for x in held["facts"]]),
    )


def _restore_value_guard(of: ObjectReader, x: Sequence[Any]) -> ValueGuard:
    name, value, key, operation, location, implicit, raised, number = x
    return ValueGuard(name, of.value(value), of.value(key), operation, location, implicit, raised, number)


def _layout(number: int, strides: Any, order: Any, exact: bool) -> LayoutGuard:
    return LayoutGuard(number, strides and tuple(strides), order and tuple(order), exact)
