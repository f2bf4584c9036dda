"""Bind the arguments of a call to leaves and a key; calls with equal keys can share a trace.

The function's signature brings the arguments into canonical positional form. The arguments named by `static_argnums`
and `static_argnames` are part of the key by value. All others are flattened as pytrees. The key holds the
structure, the dtype and shape of each array, and the type of each Python number.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import SUPPORTED, is_huge, is_plain_array, supported
from tracegrad.errors import TraceError, located
from tracegrad.numpy_api.protocols import not_plain
from tracegrad.ops import Carrier, TensorCarrier
from tracegrad.trace.sources.describe import describe, signature_of
from tracegrad.utils.lazy_dataclass import record

# Types whose values are always static.
_FIXED = (
    str,
    bytes,
    enum.Enum,
    type,
    slice,
    type(...),
    range,
    frozenset,
    np.dtype,
    np.random.Generator,
    np.random.RandomState,
)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = inspect.Parameter.VAR_POSITIONAL


@record(frozen=True, slots=True)
class AnyGenerator:
    """Placeholder of a random generator argument in the structure of a call: its class, and its number. Another
    generator in its place is the same kind of call."""

    cls: type
    number: int

    def __repr__(self) -> str:
        return f"a {self.cls.__name__}"


@record(frozen=True, slots=True)
class Field:
    """Attribute of a dataclass, as a step of a path."""

    name: str


_GENERATORS = (np.random.Generator, np.random.RandomState)


@record(slots=True, eq=False)
class BoundCall:
    """A bound call: `leaves` are ndarrays and Python numbers, `key` identifies the calls that can share its trace."""

    leaves: list[Any]
    structure: tree.TreeDef
    statics: tuple[tuple[Any, Any], ...]
    key: Any
    carriers: list[Any]
    tensors: dict[int, Any]  # the Tensors among the leaves, by number; the leaves are their arrays
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    function: Any = None  # the called function
    plainly: str = ""  # why the call cannot be traced; empty if it can
    generators: Any = ()  # paths of the random generators that may be any of their class
    drawn: Any = None  # its draws of random numbers: see `tracegrad.trace.random.draws`
    again: bool = False  # whether the call has run, and is recorded again
    writes: Any = ()  # effects, without values, of an unfinished trace of this call

    def rebuild(self, leaves: Iterable[Any]) -> tuple[list[object], dict[str, object]]:
        """The positional and keyword arguments with other leaves."""
        args, kwargs = tree.unflatten(self.structure, leaves)
        kwargs = dict(kwargs)
        args = list(args)
        for argument, value in self.statics:
            if isinstance(argument, int):
                args.insert(argument, value)
            else:
                kwargs[argument] = value
        for path, x in zip(self.generators, self.passed_generators()):
            _replaced_at(args if isinstance(path[0], int) else kwargs, path, x)
        return args, kwargs

    def passed_generators(self) -> list[object]:
        """The generators of `generators` in this call."""
        return [functools.reduce(_at, path, self._holder(path[0])) for path in self.generators]

    def _holder(self, argument: int | str) -> object:
        return self.args if isinstance(argument, int) else self.kwargs


def _replaced_at(holder: Any, path: tuple[Any, ...], value: object) -> object:
    """`holder` with a value at the end of a path; a new object only if it is a tuple."""
    if not path:
        return value
    key, new = path[0], _replaced_at(_at(holder, path[0]), path[1:], value)
    if isinstance(holder, tuple):
        return tuple.__new__(type(holder), (*holder[:key], new, *holder[key + 1 :]))
    if type(key) is Field:
        object.__setattr__(holder, key.name, new)
    else:
        holder[key] = new
    return holder


def _at(holder: Any, key: Any) -> Any:
    return getattr(holder, key.name) if type(key) is Field else holder[key]


def child_items(x: Any) -> Iterable[tuple[Any, Any]]:
    """The children of lists, tuples, namedtuples, dicts and dataclasses with their paths; empty for other objects."""
    cls = type(x)
    if cls is dict:
        return x.items()  # type: ignore[no-any-return]
    if cls is list or cls is tuple or (isinstance(x, tuple) and hasattr(cls, "_fields")):
        return enumerate(x)
    if dataclasses.is_dataclass(cls) and tree.is_node(x):
        return [(Field(each.name), getattr(x, each.name)) for each in dataclasses.fields(cls) if hasattr(x, each.name)]
    return ()


def _generators_in(x: object, path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], object]]:
    """The random generators in containers, each with its path."""
    if isinstance(x, _GENERATORS):
        yield path, x
        return
    for key, each in child_items(x):
        yield from _generators_in(each, (*path, key))


class Binder:
    """Argument binder of one function. `statics` name the parameters that are part of the key by value."""

    def __init__(self, fun: Callable[..., Any], static_argnums: object = (), static_argnames: object = ()):
        self.fun = fun
        self.signature = signature_of(fun)
        names = list(self.signature.parameters) if self.signature else []
        self.static_nums = {
            _position(n, self.signature, fun, "static_argnums")
            for n in _as_tuple(static_argnums, int, "static_argnums")
        }
        self.static_names = set(_as_tuple(static_argnames, str, "static_argnames"))
        self._surplus: set[str] = set()
        if self.signature:
            self._join(names, fun)

    def _join(self, names: list[str], fun: Any) -> None:
        assert self.signature is not None
        kinds = [p.kind for p in self.signature.parameters.values()]
        open_ended = inspect.Parameter.VAR_KEYWORD in kinds
        if open_ended:
            self._surplus = {n for n, kind in zip(names, kinds) if kind is inspect.Parameter.POSITIONAL_ONLY}
        for name in self.static_names:
            if name not in names and not open_ended:
                raise ValueError(located(f"static_argnames: {describe(fun)} has no parameter {name!r}"))
        for i, (name, kind) in enumerate(zip(names, kinds)):
            if kind in _POSITIONAL and (i in self.static_nums or name in self.static_names):
                self.static_nums.add(i)
                self.static_names.add(name)

    def donated(self, argnums: object, argnames: object) -> frozenset[int | str]:
        """The positions and keyword names of donated arguments; ValueError for unknown or static ones."""
        option, names = "donate_argnums", list(self.signature.parameters) if self.signature else []
        results: set[int | str] = {
            _position(n, self.signature, self.fun, option) for n in _as_tuple(argnums, int, option)
        }
        kinds = [p.kind for p in self.signature.parameters.values()] if self.signature else []
        for name in _as_tuple(argnames, str, "donate_argnames"):
            if name not in names and inspect.Parameter.VAR_KEYWORD not in kinds:
                raise ValueError(located(f"donate_argnames: {describe(self.fun)} has no parameter {name!r}"))
            i = names.index(name) if name in names else -1
            results.add(i if i >= 0 and kinds[i] in _POSITIONAL else name)
        both = sorted(map(str, results & {*self.static_nums, *self.static_names}))
        if both:
            raise ValueError(located(f"{option}: {describe(self.fun)}: argument {both[0]} is static"))
        return frozenset(results)

    def leaf_numbers(self, call: BoundCall, arguments: Collection[int | str]) -> tuple[int, ...]:
        """The leaf numbers of the arguments at these positions, and with these names."""
        args, kwargs = tree.unflatten(call.structure, range(call.structure.num_leaves))
        static = {argument for argument, _ in call.statics}
        positions = [i for i in range(len(args) + len(static)) if i not in static]
        table: dict[int | str, Any] = {**dict(zip(positions, args)), **kwargs}
        return tuple([leaf for argument, x in table.items() if argument in arguments for leaf in tree.leaves(x)])

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall:
        """The call in canonical form; raises Python's TypeError if the arguments do not fit the signature."""
        if kwargs and self.signature:
            args, kwargs = self._bound(args, kwargs)
        statics: tuple[tuple[Any, Any], ...] = ()
        dynamic: Any = (args, kwargs)
        if self.static_nums or self.static_names:
            statics, dynamic = self._split(args, kwargs)
        leaves, structure = tree.flatten(dynamic)
        fixed = {i: x for i, x in enumerate(leaves) if isinstance(x, _FIXED)}
        generators: Any = ()
        if fixed:
            generators, fixed = self._any_of_their_class(args, kwargs, fixed)
            leaves = [x for i, x in enumerate(leaves) if i not in fixed]
            structure = tree.fix(structure, fixed)
        call = BoundCall(leaves, structure, statics, None, [], {}, args, kwargs, generators=generators)
        kinds = tuple([self._kind(call, i, x) for i, x in enumerate(leaves)])
        call.key = (structure, kinds, tuple([(argument, exact(value)) for argument, value in statics]))
        return call

    def _any_of_their_class(self, args: Any, kwargs: Any, fixed: dict[int, Any]) -> tuple[Any, dict[int, Any]]:
        """The paths of the generators among the arguments and in their containers, and the fixed arguments with
        `AnyGenerator` for them. If a generator is in another place, all are fixed by identity."""
        inside = [x for x in fixed.values() if isinstance(x, _GENERATORS)]
        if not inside:
            return (), fixed
        options = {i: x for i, x in enumerate(args) if i not in self.static_nums}
        options |= {k: x for k, x in kwargs.items() if k not in self.static_names}
        table = {path: g for argument, x in options.items() for path, g in _generators_in(x, (argument,))}
        if len(inside) != len(table):
            return (), fixed
        numbers: dict[int, int] = {}
        for x in table.values():
            numbers.setdefault(id(x), len(numbers))
        shown = {i: AnyGenerator(type(x), numbers[id(x)]) if id(x) in numbers else x for i, x in fixed.items()}
        return tuple(table), shown

    def bind_checked(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> BoundCall:
        """As `bind`, for arguments that no Python call has checked."""
        call = self.bind(*self._bound(args, kwargs))
        if call.plainly:
            raise TraceError(located(f"{describe(self.fun)}: {call.plainly}"))
        return call

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in canonical form; TypeError if they do not fit the signature."""
        if self.signature is None:
            return args, kwargs
        # `bind` rejects a keyword that is also the name of a positional-only parameter.
        named = {k: x for k, x in kwargs.items() if k not in self._surplus}
        try:
            bound = self.signature.bind(*args, **named)
        except TypeError as error:
            raise TypeError(located(f"{describe(self.fun)}: {error}")) from None
        return bound.args, {**bound.kwargs, **{k: x for k, x in kwargs.items() if k in self._surplus}}

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[tuple[object, object], ...], object]:
        statics: list[tuple[Any, Any]] = [(i, x) for i, x in enumerate(args) if i in self.static_nums]
        statics += [(k, x) for k, x in sorted(kwargs.items()) if k in self.static_names]
        for argument, value in statics:
            try:
                hash(value)
            except TypeError:
                name = argument if isinstance(argument, str) else self.parameter(argument)
                raise TypeError(
                    located(
                        f"{describe(self.fun)}: the static argument {name} must be hashable, "
                        f"got a {type(value).__name__}"
                    )
                ) from None
        rest = tuple([x for i, x in enumerate(args) if i not in self.static_nums])
        return tuple(statics), (rest, {k: x for k, x in kwargs.items() if k not in self.static_names})

    def parameter(self, i: int) -> str:
        """The name of the positional parameter `i`."""
        names = list(self.signature.parameters) if self.signature else []
        return names[i] if i < len(names) else f"argument {i}"

    def _kind(self, call: BoundCall, i: int, x: Any) -> Any:
        cls = type(x)
        if cls is np.ndarray:
            if x.dtype in SUPPORTED and x.dtype.isnative:
                return x.dtype, x.shape
        elif cls is float or cls is int or cls is bool:
            return (int, x) if is_huge(x) else cls
        elif cls is complex:
            return cls, repr(x)
        elif isinstance(x, TensorCarrier) and cls is x._public_class:
            if x.array.dtype not in SUPPORTED:
                supported(x.array.dtype, f"{describe(self.fun)}: the argument {self._name(call, i)}")
            call.tensors[i] = x
            call.leaves[i] = x.array
            tensor: Any = x
            return cls, x.dtype, x.shape, tensor.requires_grad, tensor.is_leaf
        elif isinstance(x, Carrier):
            call.carriers.append(x)
            return cls
        return self._unusual_kind(call, i, x)

    def _unusual_kind(self, call: BoundCall, i: int, x: object) -> object:
        if not isinstance(x, np.ndarray | np.generic) or not is_plain_array(x):
            call.plainly = f"the argument {self._name(call, i)} is {self._strange(call, i, x)}"
            return type(x)
        dtype = supported(x.dtype, f"{describe(self.fun)}: the argument {self._name(call, i)}")
        # A scalar is no array without axes, and traced code may depend on the class of a memory map.
        kind = (np.generic,) if isinstance(x, np.generic) else (type(x),) if type(x) is not np.ndarray else ()
        call.leaves[i] = x = np.asarray(x, dtype=dtype)
        return dtype, x.shape, *kind

    def _strange(self, call: BoundCall, i: int, x: object) -> str:
        """A description of an argument that cannot be traced."""
        if isinstance(x, np.ndarray | np.generic):
            return not_plain(x)
        root = self._name(call, i).split("[")[0].split(".")[0]
        return (
            f"of type {type(x).__name__}, which is neither an array, a number nor a container of them; pass it as "
            f"static (static_argnames={root!r}) if it is a constant, or register its class as a pytree"
        )

    def _name(self, call: BoundCall, i: int) -> str:
        return self.leaf_names(call)[i]

    def leaf_names(self, call: BoundCall) -> list[str]:
        """For each leaf, the expression that leads to it from the function's parameters."""
        arguments = self.arguments(call.structure, call.statics)
        return [path for name, structure in arguments for path in tree.paths(structure, name)]

    def arguments(self, structure: tree.TreeDef, statics: Sequence[tuple[Any, Any]]) -> list[tuple[str, tree.TreeDef]]:
        """The name and the structure of each argument that is not static, in the order of their leaves."""
        parameters = self.signature.parameters if self.signature else {}
        names = list(parameters)
        kinds = [p.kind for p in parameters.values()]
        star = kinds.index(_VARIADIC) if _VARIADIC in kinds else len(kinds)
        static = {argument for argument, _ in statics}
        args, kwargs = tree.unflatten(structure, range(structure.num_leaves))
        positions = [i for i in range(len(args) + len(static)) if i not in static]
        roots = [
            names[i] if i < star else f"{names[star]}[{i - star}]" if star < len(names) else f"argument {i}"
            for i in positions
        ]
        results = [(root, tree.structure(x)) for root, x in zip(roots, args)]
        return results + [(name, tree.structure(kwargs[name])) for name in sorted(kwargs)]


def exact(value: object) -> Any:
    """A hashable key that distinguishes values that only compare equal: 1, 1.0 and True; 0.0 and -0.0."""
    if type(value) is tuple:
        return tuple(map(exact, value))
    return (type(value), repr(value)) if isinstance(value, float | complex | np.inexact) else (type(value), value)


def _as_tuple(option_value: Any, single: type, option: str) -> tuple[Any, ...]:
    values = (option_value,) if isinstance(option_value, single) else tuple(option_value)
    for x in values:
        if not isinstance(x, single):
            raise TypeError(located(f"{option}: expected {single.__name__}, got {x!r}"))
    return values


def _position(n: int, signature: inspect.Signature | None, fun: Any, option: str) -> int:
    if signature is None and n >= 0:
        return n
    kinds = [p.kind for p in signature.parameters.values()] if signature else []
    count = sum(kind in _POSITIONAL for kind in kinds)
    if n >= 0 and _VARIADIC in kinds:
        return n
    if not -count <= n < count:
        raise ValueError(located(f"{option}: {describe(fun)} has no positional parameter {n}"))
    return n % count
