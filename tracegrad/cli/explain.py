"""Commands `explain` and `profile` of a named function: `module:function`, or `file.py:function`.

Arguments are written as in Python, with `f64[100,3]` for a random array of that shape, and `i64[10]` for an array of
zeros: `"f64[100,3]" 0.5 "{'w': f64[3]}" rate=0.1`. Or `--args-from module:name` names the arguments: a tuple, or a
function that returns a tuple.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import os
import sys
from difflib import get_close_matches
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import api
from tracegrad.avals import SUPPORTED, short_name
from tracegrad.cli.errors import Lines, UsageError
from tracegrad.profile import profile
from tracegrad.traced_function import Traced

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = ["add_to", "argument", "resolve_target"]

_TRANSFORMS = ("trace", "grad", "value_and_grad", "jacfwd", "jacrev", "hessian")
_DTYPES = {short_name(dtype): dtype for dtype in SUPPORTED}


def add_to(commands: object) -> None:
    """Add the commands to the parser."""
    explain = _parser(commands, "explain", "what a function is compiled to")
    explain.set_defaults(run=_explain)
    timed = _parser(commands, "profile", "what a function takes its time for")
    timed.add_argument("--seconds", type=float, default=0.5, help="how long to measure (0.5)")
    timed.add_argument("--svg", metavar="FILE", help="write a picture, too")
    timed.set_defaults(run=_profile)


def _parser(commands: Any, name: str, help_text: str) -> argparse.ArgumentParser:
    result: argparse.ArgumentParser = commands.add_parser(name, help=help_text, description=__doc__)
    result.formatter_class = argparse.RawDescriptionHelpFormatter
    result.add_argument("target", help="module:function, or file.py:function")
    result.add_argument("values", nargs="*", metavar="ARG", help="an argument: f64[100,3], 0.5, name=value, ...")
    result.add_argument("--args", nargs="+", default=[], metavar="ARG", help="more arguments")
    result.add_argument("--args-from", metavar="TARGET", help="module:name of a tuple of arguments, or what gives it")
    result.add_argument("--transform", choices=_TRANSFORMS, default="trace", help="of what (the function as it is)")
    return result


def _explain(options: argparse.Namespace) -> Lines:
    function, args, kwargs = _traced_call(options)
    yield from str(function.explain(*args, **kwargs)).splitlines()
    return 0


def _profile(options: argparse.Namespace) -> Lines:
    function, args, kwargs = _traced_call(options)
    result = profile(function, args, kwargs, options.seconds)
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(result._repr_svg_())
    yield from str(result).splitlines()
    return 0


def _traced_call(options: argparse.Namespace) -> tuple[Traced[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the traced function, and its arguments."""
    function = resolve_target(options.target)
    if not callable(function):
        raise UsageError(f"{options.target} is no function, but {type(function).__name__}")
    args, kwargs = _arguments(options.args_from) if options.args_from else ((), {})
    for text in (*options.values, *options.args):
        name, value = argument(text)
        if name:
            kwargs[name] = value
        else:
            args = (*args, value)
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"{options.target}{inspect.signature(function)}: {error}") from None
    if options.transform == "trace" and isinstance(function, Traced):
        return function, args, kwargs
    return getattr(api, options.transform)(function), args, kwargs


def _arguments(target: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = resolve_target(target)
    args = args() if callable(args) else args
    return (args, {}) if isinstance(args, tuple) else ((args,), {})


def resolve_target(target: str) -> object:
    """Return the object that `module:name` or `file.py:name` names; the name may have dots.

    >>> resolve_target("math:pi"), resolve_target("numpy:linalg.norm").__name__
    (3.141592653589793, 'norm')
    """
    module_name, colon, name = target.rpartition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"{target!r} is no target; write module:function, or file.py:function")
    module = _from_file(module_name) if module_name.endswith(".py") else _module(module_name)
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        near = get_close_matches(name, [n for n in vars(module) if not n.startswith("_")])
        hint = f"; there is {', '.join(near)}" if near else ""
        raise UsageError(f"{module_name} has no {name}{hint}") from None


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"there is no module {name}; a file is named as path/to/{name}.py:function") from None
        raise


def _from_file(path: str) -> object:
    if not os.path.isfile(path):
        raise UsageError(f"there is no file {path}")
    folder, name = os.path.split(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Python does for a script
    name = name.removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def argument(text: str) -> tuple[str, Any]:
    """Parse an argument: return its name, "" if it has none, and its value.

    >>> name, value = argument("x=f32[2,3]")
    >>> name, value.shape, value.dtype
    ('x', (2, 3), dtype('float32'))
    >>> argument("{'rate': 0.5, 'shape': (3, -4)}")
    ('', {'rate': 0.5, 'shape': (3, -4)})
    """
    name, equals, rest = text.partition("=")
    named = bool(equals) and name.strip().isidentifier()
    source = rest if named else text
    try:
        return (name.strip() if named else ""), _value(ast.parse(source.strip(), mode="eval").body)
    except (SyntaxError, ValueError) as error:
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise UsageError(
            f"cannot read the argument {text!r}{why}; write f64[100,3] for an array, or a number, a text in quotes, "
            "a tuple, a list, a dict of those"
        ) from None


def _value(tree: ast.expr) -> Any:
    match tree:
        case ast.Subscript(value=ast.Name(id=dtype), slice=sizes):
            return _array(dtype, ast.literal_eval(sizes))
        case ast.Tuple(elts=items):
            return tuple(_value(x) for x in items)
        case ast.List(elts=items):
            return [_value(x) for x in items]
        case ast.Dict(keys=keys, values=values):
            return {ast.literal_eval(k): _value(x) for k, x in zip(keys, values) if k is not None}
        case ast.Name(id=name) if name in _DTYPES:
            raise ValueError(f"{name} alone is no array; {name}[()] is one without axes")
        case _:
            return ast.literal_eval(tree)


def _array(dtype: str, sizes: object) -> Array:
    shape = sizes if isinstance(sizes, tuple) else (sizes,)
    if dtype not in _DTYPES:
        raise ValueError(f"there is no dtype {dtype}; there are {', '.join(sorted(_DTYPES))}")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{shape} is no shape")
    if dtype[0] != "f":
        return np.zeros(shape, _DTYPES[dtype])
    return np.random.default_rng(0).standard_normal(shape).astype(_DTYPES[dtype])
