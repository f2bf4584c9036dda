"""Store programs as relocatable images that another process can link and run.

An `ProgramImage` has the instructions of a program (`tracegrad.codegen.program.encode`), whose words are numbers, names
of functions and compilation units; the data of its entry point; and the calls of NumPy. It contains no addresses.
`linked` makes a callable of it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.codegen.entry.signature import RUN, EntrySpec, InputSpec, OutputSpec
from tracegrad.codegen.instr.support import THREADS
from tracegrad.codegen.libs.sorting import SORTS
from tracegrad.codegen.loopir.steps import Matmul
from tracegrad.codegen.plan.planner import RELEASE_GIL_COST
from tracegrad.codegen.plan.program_plan import Plan, calls_of, plans_of, rare_functions
from tracegrad.codegen.program.compilation_units import CompilationUnit
from tracegrad.codegen.program.encode import C_LIBRARY, CALLBACK, ProgramInstruction, encode_program
from tracegrad.codegen.program.interpreter import WALK, interpreter_operands
from tracegrad.codegen.program.regions import CAPACITY
from tracegrad.cpython.raw_memory import buffer_at
from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, GraphNode, parse, to_text
from tracegrad.ir.printer import with_locations
from tracegrad.locks import cached_property
from tracegrad.ops import TABLE
from tracegrad.ops.calls.custom_call import custom_call, opaque
from tracegrad.ops.core.op import Op
from tracegrad.ops.core.result import result
from tracegrad.runtime.blas import library
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.code_store import Loaded, shared_function
from tracegrad.runtime.compile.fingerprint import Unkept
from tracegrad.runtime.execution.entry_callable import make_callable
from tracegrad.runtime.execution.numpy_sort_addresses import sort_address
from tracegrad.runtime.execution.safepoints import safepoint_address
from tracegrad.runtime.threads import pool
from tracegrad.utils.errstate import QUIET, restore_traps, set_traps, traps
from tracegrad.utils.lazy_dataclass import record

# Called functions that need no compilation.
_PREDEFINED = {CALLBACK, *C_LIBRARY, "tg_poll", "tg_parallel_for", THREADS}


@record(frozen=True, eq=False)
class NumPyCall:
    """A call of NumPy: the node, and a flag for each result that is used."""

    node: GraphNode
    wanted: tuple[bool, ...]


@record(frozen=True, eq=False)
class ProgramImage:
    """A program as relocatable data."""

    orders: Sequence[ProgramInstruction]
    inputs: tuple[tuple[Aval, str], ...]  # with their kinds: "array", or "float"
    outputs: tuple[Aval, ...]
    single: bool
    symbols: tuple[str, ...]  # that its units call, besides each other
    calls: Callable[[], Sequence[NumPyCall]]
    arena_bytes: int
    released: bool  # whether it runs without the GIL
    donors: tuple[tuple[int, int], ...] = ()  # pairs of an output and the donated input that it overwrites
    strides: Sequence[tuple[int, ...] | None] = ()  # layouts of the inputs, if not all are in row-major order
    # The texts of graphs of this image, by names, without source lines: see `written`.
    texts: dict[Any, str] = field(default_factory=dict, init=False)

    @cached_property
    def uses(self) -> dict[CompilationUnit, list[int]]:
        """The compilation units, callees first, with the numbers of the steps that they run."""
        table: dict[CompilationUnit, list[int]] = {}
        for order in self.orders:
            for unit, steps in order.uses():
                for each in (*unit.needs, unit):
                    table.setdefault(each, []).extend(steps)
        return table

    @property
    def functions(self) -> set[str]:
        """The shared functions that must be compiled."""
        results = {x for order in self.orders for x in (order.function, *order.operands) if isinstance(x, str)}
        results |= {*self.symbols, WALK} if len(self.orders) > 1 else {*self.symbols}
        return {
            x for x in results if not (x in _PREDEFINED or library.has(x.removeprefix("tg_")) or x.startswith(SORTS))
        }

    @cached_property
    def serialized(self) -> str:
        """The image as JSON (`serialize_image`), computed once for programs with equal graphs."""
        return json.dumps(serialize_image(self), separators=(",", ":"))

    def define_symbols(self) -> None:
        """Define the symbols of the functions that the code calls, before it is loaded."""
        for symbol in self.symbols:
            jit.define_symbol(symbol, _address(symbol, self.released))


def build_image(
    plan: Plan,
    graph: Graph,
    kinds: Sequence[str],
    single: bool,
    checked: bool,
    optimize: int = 2,
    strides: Sequence[tuple[int, ...] | None] = (),
) -> ProgramImage:
    """Make the image of a plan of `graph`, in which complex numbers are pairs. With `checked` the last output is a
    check; `optimize` says how its units are compiled, and `strides` are the layouts of the inputs."""
    steps = [s for each in plans_of(plan) for s in each.steps]
    products = [step.routine for step in steps if isinstance(step, Matmul)]
    symbols = dict.fromkeys([*sorted(rare_functions(plan)), *products])
    results = graph.results[:-1] if checked else graph.results

    calls = [NumPyCall(_detached(step.node), tuple(map(bool, step.outs))) for step in calls_of(plan)]
    return ProgramImage(
        encode_program(plan, optimize),
        tuple(zip(graph.avals, kinds, strict=True)),
        results,
        single,
        tuple(symbols),
        lambda: calls,
        plan.arena_bytes,
        plan.cost >= RELEASE_GIL_COST,
        tuple(plan.donors.items()),
        strides,
    )


def addressed(
    image: ProgramImage, units: dict[CompilationUnit, Loaded], callback: Callable[[], int]
) -> Iterator[tuple[int, list[int]]]:
    """For each instruction the address of its function, and its operands; `callback` is the address of the callback for
    calls of NumPy."""

    @functools.cache
    def address(of: str | CompilationUnit) -> int:
        if not isinstance(of, str):
            return units[of].address
        return callback() if of == CALLBACK else _address(of, image.released)

    for order in image.orders:
        operands = [word if type(word) is int else address(word) for word in order.operands]
        yield address(order.function), operands


def linked(image: ProgramImage, units: dict[CompilationUnit, Loaded], callback: Callable[[], int], name: str) -> object:
    """Link an image whose units are in memory, and return its callable."""
    strides = image.strides or (None,) * len(image.inputs)
    inputs = tuple([InputSpec(x.dtype, x.ndim, kind, s) for (x, kind), s in zip(image.inputs, strides)])  # type: ignore[arg-type]
    donors = dict(image.donors)
    outputs = tuple([OutputSpec(x.dtype, x.ndim, donors.get(k, -1)) for k, x in enumerate(image.outputs)])
    instructions = list(addressed(image, units, callback))
    run, values = (
        instructions[0] if len(instructions) == 1 else (shared_function(WALK), interpreter_operands(instructions))
    )
    return make_callable(
        _LinkedCode(run, tuple(units.values())),
        EntrySpec(inputs, outputs, returns_tuple=not image.single),
        input_shapes=[aval.shape for aval, _ in image.inputs],
        output_shapes=[aval.shape for aval in image.outputs],
        arena_bytes=image.arena_bytes,
        values=values,
        release_gil=image.released,
        name=name,
    )


def _address(name: str, released: bool) -> int:
    """The address of a function that is no unit of the program."""
    if name == "tg_poll":
        return safepoint_address(released)
    if name == "tg_parallel_for":
        return pool.parallel_for_address()
    if name == THREADS:
        return pool.limit_address()
    if name.startswith(SORTS):
        return sort_address(name)
    routine = name.removeprefix("tg_")
    return library.address(routine) if library.has(routine) else shared_function(name)


class _LinkedCode:
    """Linked code: the address of a function of words, and the units that it calls."""

    def __init__(self, address: int, keepalive: tuple[Loaded, ...]):
        self._addresses, self._keepalive = {RUN: address}, keepalive

    def address(self, symbol: str) -> int:
        return self._addresses[symbol]


# -- calls of NumPy ----------------------------------------------------------------------------------------------------
class NumPyCallback:
    """The callback through which compiled code calls ops without lowering rules."""

    def __init__(self, calls: Callable[[], Sequence[NumPyCall]]):
        self._runs = functools.cache(lambda: [_run_of(call) for call in calls()])
        self.failed = _CallFailure()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))
        self._function = prototype(self._call)
        self.address: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _call(self, number: int, pointers: object) -> int:
        try:
            if number == CAPACITY:
                raise CapacityError("while_loop: more iterations than there is room for their results")
            self._runs()[number](pointers)
        except BaseException as error:  # `Program.run` raises it again
            self.failed.error = error.with_traceback(None)  # its frames hold views of freed memory
            return 2
        return 0


class _CallFailure(threading.local):
    """The exception of a called op, per thread."""

    error: BaseException | None = None


def _run_of(call: NumPyCall) -> Callable[..., object]:
    """A function that calls NumPy on operands at pointers, and stores its results at pointers."""
    node, op, params = call.node, call.node.op, dict(call.node.params)
    assert op is not None
    is_multi, inputs, args, result_avals = node.is_multi_result, node.inputs, [x.aval for x in node.operands], node.aval
    if op.native_equivalent is not None:
        op, params, operands, result_avals = op.native_equivalent(*[getattr(x, "aval", x) for x in inputs], **params)
        args = [x for x in operands if isinstance(x, Aval)]
    results: Any = result_avals if is_multi else (result_avals,)
    used = [i for i, wanted in enumerate(call.wanted) if wanted]
    avals = [*args, *(results[i] for i in used)]
    views: list[tuple[Any, Any, Any]] = [(buffer_at(a.nbytes), a.shape, a.dtype) for a in avals]
    count = len(args)
    impl_out = None if is_multi else _written_by(op, avals, len(inputs))
    # Reuse the arrays of the last call, because they are slow to create, except for a user's function, which might keep
    # or change them.
    last: list[tuple[Any, Any]] = [(0, None)] * len(views)

    def run(pointers: Any) -> None:
        arrays: list[Any] = []
        for k, (at, shape, dtype) in enumerate(views):
            pointer, (known, array) = pointers[k], last[k]
            if pointer != known or op is opaque:
                array = np.ndarray(shape, dtype, at(pointer))
                last[k] = pointer, array
            arrays.append(array)
        operands, outs = arrays[:count], arrays[count:]
        if len(inputs) != count:
            following = iter(operands)
            operands = [next(following) if hasattr(x, "aval") else x for x in inputs]
        before = traps()
        try:
            set_traps(QUIET)
            if impl_out is not None:
                impl_out(*outs, *operands, **params)
                return
            value = op.impl(*operands, **params)
        finally:
            restore_traps(before)
        for i, out in zip(used, outs):
            out[...] = value[i] if is_multi else value

    return run


def _written_by(op: Op, avals: Sequence[Aval], inputs: int) -> Callable[..., object] | None:
    """A function that stores the result of an op, the last of these avals, into an array passed before the operands;
    None if there is none."""
    function: Any = op.impl
    if type(function) is np.ufunc and _fits(function, [x.dtype for x in avals]) and len(avals) == inputs + 1:
        return lambda out, *operands: op.impl(*operands, out)
    return op.impl_out


def _fits(function: np.ufunc, dtypes: list[np.dtype[Any]]) -> bool:
    """Whether a ufunc returns the last of these dtypes for operands of the others."""
    wanted = (*dtypes[:-1], None)
    return (function.nin, function.nout) == (len(dtypes) - 1, 1) and function.resolve_dtypes(wanted) == tuple(dtypes)


# -- serialization -----------------------------------------------------------------------------------------------------
def require_plain(graph: Graph, rules: bool = False) -> None:
    """Raise `Unkept` if the text of a graph is not complete; `rules` allows the user's rules if no more derivatives are
    taken."""
    known = {*TABLE.values(), result}
    for node in graph.everywhere():
        if node.op not in known:
            raise Unkept(f"the op {node.name}, which is not in the table")
        if not all(is_plain(value) for _, value in node.params if not (rules and node.op is custom_call)):
            raise Unkept(f"the parameters of {node.name}")


def written(graph: Graph, image: ProgramImage | None) -> str:
    """The text of a graph with source lines; `Unkept` if the text is not complete. The graphs of one image differ only
    in lines and names, so a text is cached by names, and the lines are inserted."""
    if image is None:
        require_plain(graph, rules=True)
        return to_text(graph, locations=True)
    graph_names = (graph.names, *[y.names for x in graph.everywhere() for y in x.regions])
    text = image.texts.get(graph_names)
    if text is None:
        require_plain(graph, rules=True)
        text = to_text(graph)
        image.texts.clear()
        image.texts[graph_names] = text
    return with_locations(text, graph)


def is_plain(x: object) -> bool:
    """Whether the text of a parameter is complete."""
    if type(x) is tuple:
        return _PLAIN.issuperset(map(type, x)) or all(map(is_plain, x))
    return type(x) in _PLAIN


_PLAIN = frozenset([bool, int, float, str, type(None), Graph])


def serialize_image(image: ProgramImage) -> dict[str, object]:
    """The image as JSON data; `Unkept` if it calls an op without a text."""
    units = {unit: i for i, unit in enumerate(image.uses)}

    def word(x: int | str | CompilationUnit) -> Any:
        return [units[x]] if isinstance(x, CompilationUnit) else x

    return {
        "orders": [[word(order.function), *map(word, order.operands)] for order in image.orders],
        "steps": [[order.steps.start, order.steps.stop] for order in image.orders],
        "pieces": [[x.text, x.kernel, [units[need] for need in x.needs], x.optimize] for x in units],
        "inputs": [[aval.dtype.str, list(aval.shape), kind] for aval, kind in image.inputs],
        "outputs": [[aval.dtype.str, list(aval.shape)] for aval in image.outputs],
        "single": image.single,
        "symbols": list(image.symbols),
        "calls": [_serialize_call(call) for call in image.calls()],
        "arena": image.arena_bytes,
        "released": image.released,
    }


def _detached(node: GraphNode) -> GraphNode:
    """A copy of a node whose operands are inputs."""
    options = {x: GraphNode(None, (), (), x.aval) for x in node.operands}
    return GraphNode(
        node.op, tuple([options[x] if isinstance(x, GraphNode) else x for x in node.inputs]), node.params, node.aval
    )


def _serialize_call(call: NumPyCall) -> list[object]:
    """A call as JSON data: the graph of its node, and the used results."""
    node = call.node
    nodes = [node]
    if node.is_multi_result:
        results: Any = node.aval
        nodes += [GraphNode(result, (node,), (("index", i),), aval) for i, aval in enumerate(results)]
    graph = Graph(tuple(dict.fromkeys(node.operands)), tuple(nodes), tuple(nodes[-1:]))
    require_plain(graph)
    return [str(graph), list(call.wanted)]


def _undefined(module: object, name: str) -> None:
    raise AssertionError("the machine code of an image that was kept has to be known")


def restore_image(x: dict[str, Any]) -> ProgramImage:
    """Restore an image, whose machine code must be in memory or on disk."""
    units: list[CompilationUnit] = []
    for text, kernel, needs, optimize in x["pieces"]:
        known = tuple([units[i] for i in needs])
        units.append(CompilationUnit(text, _undefined, kernel, known, optimize=optimize))

    def word(encoded: Any) -> int | str | CompilationUnit:
        value: int | str | CompilationUnit = units[encoded[0]] if type(encoded) is list else encoded
        return value

    orders = [
        ProgramInstruction(word(function), list(map(word, operands)), range(*steps))  # type: ignore[arg-type]
        for (function, *operands), steps in zip(x["orders"], x["steps"])
    ]
    return ProgramImage(
        orders,
        tuple([(_aval(*aval), kind) for *aval, kind in x["inputs"]]),
        tuple([_aval(*aval) for aval in x["outputs"]]),
        x["single"],
        tuple(x["symbols"]),
        lambda: [NumPyCall(parse(text).nodes[0], tuple(wanted)) for text, wanted in x["calls"]],
        x["arena"],
        x["released"],
    )


def _aval(dtype: str, shape: Sequence[int]) -> Aval:
    return Aval(tuple(shape), np.dtype(dtype))
