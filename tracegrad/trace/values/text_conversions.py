"""Track text and bytes made from differentiated values, to detect derivatives lost by reading them back.

Printing a value loses nothing. A number that is parsed from text is a constant, so `float(str(x))` would have the
derivative 0. A trace records which numbers its texts contain. If one of them is parsed while a derivative is
computed, the trace raises `LostDerivativeError`. Text with rounded numbers is exempt, because rounding has the
derivative 0.

Known parsing functions are intercepted by name. A number from another parser, such as one in C, is recognized when it
joins the graph, if it has enough digits to be unique. A number assembled from several texts is recognized by its
digits alone.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.cpython.frames import frame_at, local_variables
from tracegrad.errors import lost, user_frame
from tracegrad.ir import GraphNode
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.sources.state_sources import FunctionResult
from tracegrad.trace.values.traced_value import TracedValue

if TYPE_CHECKING:
    from types import FrameType

    from tracegrad.ops.core.dispatch import Operand


_NUMBER = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(?:\.(\d+))?([a-zA-Z%]?)", re.DOTALL)
_PERCENT = re.compile(r"%(?:\(\w*\))?[-+ #0]*(?:\d+|\*)?(?:\.(\d+|\*))?[a-zA-Z]")
# Number of digits that distinguish a float from its neighbours, or nearly so.
_EXACT = 15
_MAX_ELEMENTS = 1000  # number of elements of an array that are recorded
_UNLIKE = 9  # number of digits in a row that identify a number


# -- writing texts -------------------------------------------------------------------------------------------------
class Spelling(TracedValue):
    """Mixin of traced values that can be formatted as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _text_of(self, "repr()", repr)

    def __str__(self) -> str:
        return _text_of(self, "str()", str)

    def __format__(self, spec: str) -> str:
        return _text_of(self, "format()", format, spec)

    def _formatted(self, frame: FrameType) -> None:
        if not self.builder.open or not self.builder.innermost().knows(self):
            return
        value = self.builder.compute(self.node)
        if _formats_exactly(frame.f_code):
            record_text(self, value)
        elif self._depends_on_differentiated():
            texts = [x for x in frame.f_code.co_consts if isinstance(x, str)]
            self.builder.text_numbers.rounded.update(_formatted(texts, value.item()) if value.size == 1 else ())

    def _depends_on_differentiated(self) -> bool:
        builder: TraceBuilder | None = self.builder.innermost()
        while builder is not None:
            if _reaches(self.node, set(builder.differentiated)):
                return True
            builder = builder.outer
        return False


def _reaches(wanted: GraphNode, sources: set[GraphNode]) -> bool:
    """Whether a value depends on one of these nodes, other than as a constant."""
    visited, stack = set[GraphNode](), [wanted]
    while sources and stack:
        node = stack.pop()
        if node in sources:
            return True
        if node not in visited and node.op is not stop_gradient:
            visited.add(node)
            stack.extend(node.operands)
    return False


def _text_of(x: Any, query: str, make: Callable[..., str], *spec: str) -> str:
    value = x._plain(query)
    if isinstance(value, np.ndarray | np.generic):
        _as_printed(x.builder)
    text = make(value, *spec)
    if not spec or _is_exact(*spec):
        record_text(x, value, text)
    elif x._depends_on_differentiated():
        x.builder.text_numbers.rounded.add(text)
    return text


def _formatted(texts: Sequence[str], value: object) -> Iterator[str]:
    """The results of applying the format specs in some texts to a value."""
    for result in _PERCENT.finditer("\n".join(texts)):
        with contextlib.suppress(TypeError, ValueError):  # a format of another type
            yield result.group() % value


def _as_printed(builder: TraceBuilder) -> None:
    """Guard the print options, on which the texts of arrays and NumPy numbers depend."""
    world: Any = builder.world
    if builder.open and world.open and not world.once:
        world.assume(FunctionResult(_print_options, ()), "items", [list, *_print_options()])


def _print_options() -> list[object]:
    return [*np.get_printoptions().values()]


def method_of(x: Any, value: object, name: str) -> Any:
    """A method of a tracer's value that is a number."""
    if name == "hex":
        record_text(x, value)
        frame = user_frame()
        if frame is not None and "fromhex" in frame.f_code.co_names and x._is_differentiated():
            raise lost("hex()")
    return getattr(value, name)


def record_text(x: Any, value: Any, text: str = "") -> None:
    """Record text or bytes from which code could read this tracer's value again."""
    builder = x.builder
    if builder.open and builder.innermost().knows(x) and builder.innermost().has_derivative(x.node):
        builder.text_numbers.update(numbers_in(value))
        builder.text_numbers.update(_mentioned(text))


def _is_exact(spec: str) -> bool:
    result = _SPEC.fullmatch(spec)
    if result is None:
        return True
    digits, kind = result.groups()
    return not kind if digits is None else int(digits) >= _EXACT


@functools.lru_cache(maxsize=1024)
def _formats_exactly(code: CodeType) -> bool:
    """Whether a format spec in the code has enough digits, or no format spec is known."""
    results = [digits for x in code.co_consts if isinstance(x, str) for digits in _PERCENT.findall(x)]
    return not results or any(digits == "*" or (digits != "" and int(digits) >= _EXACT) for digits in results)


# -- reading numbers -------------------------------------------------------------------------------------------------
def _mentioned(text: str) -> set[float]:
    """The magnitudes of the floats in a text."""
    return {float(x) for x in _NUMBER.findall(text)}


def numbers_in(x: object) -> Iterator[float]:
    """The magnitudes of the floats in a parsed object; a complex number has two."""
    if isinstance(x, float | np.floating):
        if math.isfinite(x):
            yield abs(float(x))
    elif isinstance(x, complex | np.complexfloating):
        yield from numbers_in([x.real, x.imag])
    elif isinstance(x, list | tuple):
        for each in x:
            yield from numbers_in(each)
    else:
        yield from numbers_in(_numbers_inside(x))


def _numbers_inside(x: Any) -> tuple[float, ...]:
    if isinstance(x, np.ndarray):
        return tuple(x.ravel()[:_MAX_ELEMENTS].tolist()) if x.dtype.kind in "fcO" else ()
    if isinstance(x, Mapping):
        return tuple(x.values())
    # Decimals and fractions.
    return (float(x),) if hasattr(type(x), "as_integer_ratio") and not isinstance(x, int | np.integer) else ()


def _recorded_numbers() -> set[float]:
    """The recorded numbers in texts, if a derivative is being computed."""
    trace = current_trace()
    return trace.text_numbers if trace is not None and trace.text_numbers and trace.derives() else set()


def reads(real: Callable[..., Any], name: str = "", of: str = "a text") -> Callable[..., Any]:
    """Wrap a function that parses text or bytes as numbers."""

    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        result = real(*args, **kwargs)
        recorded = _recorded_numbers()
        if recorded and not recorded.isdisjoint(numbers_in(result)):
            raise lost(f"{name or real.__name__} of {of}")
        return result

    return call


# Classes, with their modules, which are not imported here.
PARSERS = {"Decimal": "decimal", "Fraction": "fractions"}


def parser_of(x: Any) -> object:
    """The replacement of one of these classes in traced code; other objects unchanged."""
    if type(x) in (type, ABCMeta) and PARSERS.get(x.__name__) == x.__module__:
        return reads(x)
    return x


def spells(text: str) -> bool:
    """Whether a text contains a recorded number while a derivative is being computed."""
    recorded = _recorded_numbers()
    return bool(recorded) and not recorded.isdisjoint(_mentioned(text))


def is_rounded(text: str) -> bool:
    """Whether a text contains the rounding of a value that depends on a differentiated one."""
    trace = current_trace()
    rounded = () if trace is None or not trace.derives() else trace.text_numbers.rounded
    return any(text == each or ("." in each and each in text) for each in rounded)


def handed_over(text: object, to: str) -> None:
    """Check a text that is executed as code or passed to another process, which may read any number from it."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    if isinstance(text, str) and spells(text):
        raise lost(f"{to} of a text")


class _Digest:
    """Proxy of a `hashlib` digest, which may be a key of memoized results."""

    def __init__(self, real: Any):
        self._real = real

    def update(self, data: object, /) -> None:
        handed_over(data, "a digest")
        self._real.update(data)

    def copy(self) -> _Digest:
        return _Digest(self._real.copy())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def digesting(real: Callable[..., object]) -> Callable[..., object]:
    """A `hashlib` function that returns digests."""

    @functools.wraps(real)
    def call(*args: object, **kwargs: object) -> Any:
        for x in (*args, *kwargs.values()):
            handed_over(x, "a digest")
        return _Digest(real(*args, **kwargs))

    return call


def _eval(source: Any, globals: Any = None, locals: Any = None, /) -> Any:
    handed_over(source, "eval")
    return eval(source, *_spaces(globals, locals))


def _exec(source: Any, globals: Any = None, locals: Any = None, /, **closure: Any) -> None:
    handed_over(source, "exec")
    exec(source, *_spaces(globals, locals), **closure)


def _spaces(globals: object, locals: object) -> tuple[Any, Any]:
    """The namespaces in which code is evaluated: the caller's by default."""
    caller = frame_at(2)
    if globals is None:
        return caller.f_globals, local_variables(caller) if locals is None else locals
    return globals, globals if locals is None else locals


def _compile(source: Any, *args: Any, **kwargs: Any) -> object:
    handed_over(source, "compile")
    return compile(source, *args, **kwargs)


# Replacements of built-in functions, by name.
EVALUATED: dict[str, Any] = {
    f.__name__: functools.wraps(f)(ours) for f, ours in ((eval, _eval), (exec, _exec), (compile, _compile))
}


# -- numbers join the graph ------------------------------------------------------------------------------------------
def require_none_read(builder: TraceBuilder, start: int, outputs: list[Operand]) -> None:
    """Raise if constants of the graph, from node number `start` on, can only be numbers parsed from text."""
    rare = set(filter(_is_rare, builder.text_numbers))
    if not rare:
        return
    nodes = builder.nodes[start:]
    constants = [x for node in nodes for x in (*node.inputs, *dict(node.params).values()) if is_literal(x)]
    constants += [x for x in outputs if is_literal(x)]
    arrays = [c.array for c in builder.captures.values() if c.source is None]
    digit_groups = {digits for x in rare for digits in _digit_groups(x)}
    by_digits = digit_groups and any(_digits(x) in digit_groups for x in constants)
    if by_digits or not rare.isdisjoint(numbers_in([*constants, *arrays])):
        raise lost("what reads a text")


def _digit_groups(x: float) -> list[str]:
    """The digits of a float, and its fractional digits, if they are too many to match by accident."""
    whole = _digits(x)
    fraction = _digits(float(f"0.{text.partition('.')[2]}")) if "e" not in (text := repr(x)) else ""
    return [digits for digits in (whole, fraction) if len(digits) >= _UNLIKE]


def _digits(x: Any) -> str:
    """The significant digits of a number without its exponent, except digits that reassembly may round."""
    if isinstance(x, bool | complex) or not abs(x) < 1e300:
        return ""
    return f"{abs(x):.13e}".partition("e")[0].replace(".", "").strip("0")


def _is_rare(x: float) -> bool:
    """Whether a number is unlikely to occur by accident: code contains simple fractions, and fractions of pi, as
    constants."""
    simple = [y * k for y in (x, x * x, x / math.pi, x / math.e) for k in range(1, 61)]
    return not any(abs(y - round(y)) <= 1e-15 * y for y in simple) and 1e-300 < x < 1e300
