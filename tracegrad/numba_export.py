"""Export to Numba: `f.as_numba(*args)` and `f.as_cfunc(signature)`.

A program is a function of integers and pointers (`tracegrad.codegen.program.interpreter`), so code that Numba compiles
can call it by its address. `as_numba` writes a Numba function around it, which checks shapes, allocates the results,
and needs neither Python nor the GIL. The guards that Python checks before each call are not checked here. Functions
that depend on more than the types and shapes of their arguments are therefore refused, and captured variables keep the
values of the export.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.codegen.program.interpreter import WALK, interpreter_operands
from tracegrad.errors import UnsupportedError, located
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.runtime.compile.code_store import shared_function
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.runtime.dispatch.specializations import TracePath
from tracegrad.runtime.execution.program import Program, conformed
from tracegrad.trace.effects.result_template import ContainerTemplate, Output, ResultTemplate, SharedTemplate
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.describe import describe
from tracegrad.utils.source import define

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


__all__ = ["as_cfunc", "as_numba"]

_NUMBERS = (bool, int, float, np.generic)
_LINE = 64  # bytes to which a program's own memory is aligned
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)

# Objects at addresses that Numba's code contains. They live forever, because that code is never freed.
_keepalive: list[object] = []


def as_numba(fun: Dispatcher, args: tuple[Any, ...]) -> Any:
    """Make a function for Numba; see `Traced.as_numba`."""
    from numba import from_dtype, njit, types

    description = str(describe(fun, "as_numba of "))
    for i, x in enumerate(args):
        if not (isinstance(x, _NUMBERS) or type(x) is np.ndarray):
            kind, name = type(x).__name__, fun.binder.parameter(i)
            raise UnsupportedError(located(f"{description}: arguments are arrays and numbers, but {name} is a {kind}"))
    path, captured = _path(fun, args, description)
    result_source = _text(path.trace.result, [aval.ndim for aval in path.program.image.outputs], description)
    space = _space(path.program, args, captured, description)
    function = define("function", _source(path.program, args, result_source, space["fixed"]), space, description)
    # `call` is a separate function, so that its caller keeps the arrays alive until it returns.
    space["call"] = njit(space["call"], nogil=True)

    def numbas(x: object) -> object:
        array = np.asarray(x)
        kind = from_dtype(array.dtype)
        return types.Array(kind, array.ndim, "C", readonly=True) if isinstance(x, np.ndarray) else kind

    function.__name__ = function.__qualname__ = fun.name
    return njit(tuple(map(numbas, args)), nogil=True)(function)


def as_cfunc(fun: Dispatcher, signature: object) -> object:
    """Make a C function; see `Traced.as_cfunc`."""
    from numba import cfunc, types
    from numba.core.sigutils import normalize_signature
    from numba.np.numpy_support import as_dtype

    description = str(describe(fun, "as_cfunc of "))
    args, _ = normalize_signature(signature)
    for each in args:
        if not isinstance(each, types.Number | types.Boolean):
            raise UnsupportedError(located(f"{description}: arguments are numbers, but the signature has {each}"))
    inner = as_numba(fun, tuple([as_dtype(each).type(1) for each in args]))
    names = ", ".join([f"a{i}" for i in range(len(args))])
    text = f"def function({names}):\n    return inner({names})"
    return cfunc(signature)(define("function", text, {"inner": inner}, description))


def _path(fun: Dispatcher, args: tuple[object, ...], description: str) -> tuple[TracePath, Sequence[object]]:
    """Return the path of a call with these arguments, valid for all like them, and the captured arrays."""
    call = fun.binder.bind_checked(args, {})
    path, outputs, captured = fun.find(call)
    rewind(call)
    trace, why = path.trace, ""
    if outputs is None or not hasattr(path.program, "image") or trace.tape is not None:
        why = "no program computes this call, which runs as plain Python"
    elif trace.world.draws is not None:
        why = "it draws random numbers"
    elif any(aval.dtype == HALF for aval in (*[x for x, _ in path.program.image.inputs], *path.program.image.outputs)):
        why = "Numba knows no float16"
    elif trace.effects:
        why = "it changes something outside"
    elif queries := trace.explicit_guards(path.program.checked):
        why = f"what it does depends on values: {queries[0]}"
    if why:
        raise UnsupportedError(located(f"{description}: {why}"))
    return path, captured


def _space(program: Program, args: tuple[Operand, ...], captured: Sequence[Any], description: str) -> dict[str, Any]:
    """Return the namespace of the generated source: called functions, integers, dtypes, errors."""
    orders, program_objects = program.linked(released=True)
    block = np.array(interpreter_operands([step for _, step in orders]), np.int64)
    fixed = [np.array(conformed(x)) for x in captured]
    _keepalive.append((program_objects, block, fixed))
    space: dict[str, Any] = {
        "run": _RUN(shared_function(WALK)),
        "block": block.ctypes.data,
        "empty": np.empty,
        "uint8": np.uint8,
        "int64": np.int64,
        "fixed": [x.ctypes.data for x in fixed],
        "failed": f"{description}: the program fails for these arguments, for which the function raises",
    }
    for i, (x, (aval, _)) in enumerate(zip(args, program.image.inputs)):
        space |= {f"dtype{i}": aval.dtype, f"wrong{i}": f"{description}: argument {i} must be of shape {np.shape(x)}"}
    return space | {f"result{i}": aval.dtype for i, aval in enumerate(program.image.outputs)}


def _source(program: Program, args: tuple[Operand, ...], result_source: str, fixed: Sequence[int]) -> str:
    """Return the source of `call_lines`, which runs the program on arrays, and of `function`, which makes these arrays.

    Numbers are passed as arrays of one element; captures are at `fixed` addresses.
    """
    results = program.image.outputs
    arrays = [f"x{i}" for i in range(len(args))] + [f"y{i}" for i in range(len(results))] + ["arena"]
    addresses = [f"{name}.ctypes.data" for name in arrays]
    addresses[-1] = f"(arena.ctypes.data + {_LINE - 1}) // {_LINE} * {_LINE}"
    addresses[len(args) : len(args)] = map(str, fixed)
    call_lines = [f"places[{i}] = {address}" for i, address in enumerate(addresses)]
    lines = []
    for i, x in enumerate(args):
        if isinstance(x, np.ndarray):
            lines += [f"x{i} = a{i}", f"if a{i}.shape != {x.shape}: raise ValueError(wrong{i})"]
        else:
            lines += [f"x{i} = empty(1, dtype{i})", f"x{i}[0] = a{i}"]
    lines += [f"y{i} = empty({aval.shape or 1}, result{i})" for i, aval in enumerate(results)]
    lines += [
        f"arena = empty({program.image.arena_bytes + _LINE}, uint8)",
        f"if call(empty({len(addresses)}, int64), {', '.join(arrays)}) != 0: raise ArithmeticError(failed)",
    ]
    lines.append(f"return {result_source}")
    head, inputs = f"def call(places, {', '.join(arrays)}):", ", ".join([f"a{i}" for i in range(len(args))])
    call_lines.append("return run(block, places.ctypes.data)")
    return "\n    ".join([head, *call_lines]) + "\n\n" + "\n    ".join([f"def function({inputs}):", *lines]) + "\n"


def _text(template: ResultTemplate, ndims: Sequence[int], description: str) -> str:
    """Return the source of the result, from outputs with these numbers of axes."""
    match template:
        case SharedTemplate():
            return _text(template.template, ndims, description)
        case ContainerTemplate() if template.kind.cls is tuple:
            return f"({''.join([_text(part, ndims, description) + ', ' for part in template.children])})"
        case Output():
            name = f"y{template.position}"
            if ndims[template.position] == 0:
                return f"{name}[0]" if template.kind is None else f"{template.kind.__name__}({name}[0])"
            return name if template.axes is None else f"{name}.transpose({template.axes})"
    wanted = "results are arrays and numbers that the function computes, and tuples of them"
    raise UnsupportedError(located(f"{description}: {wanted}"))
