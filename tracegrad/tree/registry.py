"""Registry of node types: how each container class is flattened, unflattened, named and printed."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from typing import Any

from tracegrad.avals import Aval, Size

Children = Sequence[Any]


class NodeKind:
    """Node type: how one class of containers is flattened, unflattened and printed; compares by identity."""

    __slots__ = ("cls", "flatten", "names", "registered", "text", "unflatten")

    def __init__(
        self,
        cls: type,
        flatten: Callable[[Any], tuple[Children, Any]],
        unflatten: Callable[[Any, Children], Any],
        names: Callable[[Any, int], Sequence[str]],
        text: Callable[[Any, Sequence[str]], str],
        registered: tuple[Callable[..., object], ...] = (),
    ):
        self.cls, self.flatten, self.unflatten = cls, flatten, unflatten
        self.names, self.text = names, text
        self.registered = registered  # the user's functions, if it was registered

    def __repr__(self) -> str:
        return self.cls.__name__


def _exact(value: object) -> Any:
    """Return a key that distinguishes `value` from values that compare equal: 1, 1.0 and True; 0.0 and -0.0."""
    if type(value) is tuple:
        return tuple(map(_exact, value))
    return (type(value), repr(value)) if isinstance(value, float | complex) else type(value)


def _static(cls: type, data: tuple[tuple[str, ...] | str, ...] | str) -> tuple[Any, Any]:
    try:
        hash(data)
    except TypeError as error:
        raise TypeError(f"the static data of a {cls.__name__} must be hashable, got {data!r}: {error}") from None
    return data, _exact(data)


def _flatten_sequence(x: Any) -> tuple[Children, Any]:
    return x, None


def _flatten_dict(x: Any) -> tuple[Children, Any]:
    order = tuple(x)
    try:
        keys = tuple(sorted(order))
    except (TypeError, RuntimeError):  # Tensors are compared element by element
        return [x[key] for key in order], (order, _exact(order), None)
    # Strings compare only with strings: all keys are strings if the first one is.
    exact = () if keys and type(keys[0]) is str else _exact(keys)
    return [x[key] for key in keys], (keys, exact, None if keys == order else order)


def _flatten_defaultdict(x: Any) -> tuple[Children, object]:
    children, aux = _flatten_dict(x)
    return children, (*aux, x.default_factory)


def _flatten_ordered(x: Any) -> tuple[Children, object]:
    keys = tuple(x)
    return list(x.values()), (keys, _exact(keys))


def _to_dict(aux: Any, children: Children) -> dict[Any, Any]:
    table = dict(zip(aux[0], children, strict=True))
    return table if aux[2] is None else {key: table[key] for key in aux[2]}


def _to_ordered(aux: tuple[tuple[str, ...], tuple[type, ...]], children: Children) -> OrderedDict[object, object]:
    return OrderedDict(zip(aux[0], children, strict=True))


def _to_defaultdict(
    aux: tuple[tuple[int, ...], tuple[type, ...], tuple[int, ...] | None, type], children: Children
) -> defaultdict[object, object]:
    return defaultdict(aux[3], _to_dict(aux, children))


def _item_names(aux: object, n: int) -> Sequence[str]:
    return [f"[{i}]" for i in range(n)]


def _key_names(aux: tuple[tuple[str, ...], tuple[object, ...], tuple[str, ...] | None], n: int) -> Sequence[str]:
    return [f"[{key!r}]" for key in aux[0]]


def _child_names(aux: object, n: int) -> Sequence[str]:
    return [f"<child {i}>" for i in range(n)]


def _tuple_text(aux: object, texts: Sequence[str]) -> str:
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _size_text(aux: object, texts: Sequence[str]) -> str:
    return f"torch.Size([{', '.join(texts)}])"


def _list_text(aux: object, texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _dict_text(aux: object, texts: Sequence[str]) -> str:
    return "{" + ", ".join(f"{key!r}: {text}" for key, text in _to_dict(aux, texts).items()) + "}"


def _ordered_text(aux: Any, texts: Sequence[str]) -> str:
    return f"OrderedDict({_dict_text((*aux, None), texts)})"


def _defaultdict_text(aux: Any, texts: Sequence[str]) -> str:
    return f"defaultdict({getattr(aux[3], '__name__', aux[3])}, {_dict_text(aux, texts)})"


def _none_text(aux: object, texts: Sequence[str]) -> str:
    return "None"


def _named_tuple_kind(cls: Any) -> NodeKind:
    def text(aux: object, texts: Sequence[str]) -> str:
        return f"{cls.__name__}({', '.join(map('='.join, zip(cls._fields, texts, strict=True)))})"

    names = [f".{name}" for name in cls._fields]
    return NodeKind(cls, _flatten_sequence, lambda aux, xs: tuple.__new__(cls, xs), lambda aux, n: names, text)


def _dataclass_kind(cls: Any) -> NodeKind:
    fields = dataclasses.fields(cls)
    dynamic = [f.name for f in fields if not f.metadata.get("static", False)]
    static = [f.name for f in fields if f.metadata.get("static", False)]
    names = [f".{name}" for name in dynamic]

    def flatten_node(x: Any) -> tuple[Children, Any]:
        aux = _static(cls, tuple([getattr(x, name) for name in static])) if static else ((), ())
        return [getattr(x, name) for name in dynamic], aux

    def unflatten_node(aux: Any, children: Children) -> Any:
        x = object.__new__(cls)
        for name, value in zip((*dynamic, *static), (*children, *aux[0]), strict=True):
            object.__setattr__(x, name, value)  # the class may be frozen
        return x

    def text(aux: Any, texts: Sequence[str]) -> str:
        values = dict(zip(dynamic, texts, strict=True)) | dict(zip(static, map(repr, aux[0]), strict=True))
        return f"{cls.__name__}({', '.join(f'{f.name}={values[f.name]}' for f in fields)})"

    return NodeKind(cls, flatten_node, unflatten_node, lambda aux, n: names, text)


def _custom_kind(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Children], Any]) -> NodeKind:
    def flatten_node(x: Any) -> tuple[Children, Any]:
        children, aux = flatten(x)
        return tuple(children), _static(cls, aux)

    def text(aux: Any, texts: Sequence[str]) -> str:
        return f"{cls.__name__}[{aux[0]!r}]({', '.join(texts)})"

    return NodeKind(cls, flatten_node, lambda aux, xs: unflatten(aux[0], xs), _child_names, text, (flatten, unflatten))


def fixed(value: object) -> tuple[NodeKind, Any, tuple[Any, ...]]:
    """Return a structure that contains the value itself, as static data, and has no leaf."""
    # Slices are not hashable in all versions of Python; their parts mostly are.
    data = (slice, value.start, value.stop, value.step) if type(value) is slice else value
    return FIXED_KIND, (data, _exact(data)), ()


def fixed_value(aux: Any) -> Any:
    """Return the value that `fix` has put into a structure.

    Parameters
    ----------
    aux : object
        Static data of the node.

    Returns
    -------
    object
        Value.

    Examples
    --------
    >>> fixed_value(fixed("mean")[1])
    'mean'
    """
    data = aux[0]
    return slice(*data[1:]) if type(data) is tuple else data


FIXED_KIND = NodeKind(
    Hashable,
    lambda x: ((), None),
    lambda aux, xs: fixed_value(aux),
    _item_names,
    lambda aux, texts: repr(fixed_value(aux)),
)


def unordered(kind: NodeKind, aux: Any) -> Any:
    """Return the static data of a node without the order of the keys of a dict."""
    return (*aux[:2], None, *aux[3:]) if kind.unflatten in (_to_dict, _to_defaultdict) else aux


LEAF_KIND = NodeKind(object, lambda x: ((), None), lambda aux, xs: None, _item_names, lambda aux, texts: "*")

# The kind of each class seen so far; None for leaves.
KINDS: dict[type, NodeKind | None] = {
    kind.cls: kind
    for kind in (
        NodeKind(tuple, _flatten_sequence, lambda aux, xs: tuple(xs), _item_names, _tuple_text),
        NodeKind(Size, _flatten_sequence, lambda aux, xs: tuple.__new__(Size, xs), _item_names, _size_text),
        NodeKind(list, _flatten_sequence, lambda aux, xs: list(xs), _item_names, _list_text),
        NodeKind(dict, _flatten_dict, _to_dict, _key_names, _dict_text),
        NodeKind(OrderedDict, _flatten_ordered, _to_ordered, _key_names, _ordered_text),
        NodeKind(defaultdict, _flatten_defaultdict, _to_defaultdict, _key_names, _defaultdict_text),
        NodeKind(type(None), lambda x: ((), None), lambda aux, xs: None, _item_names, _none_text),
    )
}
_REGISTERED: set[type] = set(KINDS)


def kind_of(cls: type) -> NodeKind | None:
    """Return the node type of a class, None for a leaf; `KINDS` caches one object for all threads."""
    kind = None
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        kind = _named_tuple_kind(cls)
    elif dataclasses.is_dataclass(cls) and not issubclass(cls, Enum):
        kind = _dataclass_kind(cls)
    return KINDS.setdefault(cls, kind)


def register_pytree_node(
    cls: type,
    flatten: Callable[..., object],
    unflatten: Callable[..., object],
) -> None:
    """Register a class as a pytree node; instances of exactly `cls` are then nodes.

    Parameters
    ----------
    cls : type
        Class to register.
    flatten : callable
        Function `flatten(x) -> (children, aux)`; `aux` is static: hashable, and part of the structure.
    unflatten : callable
        Function `unflatten(aux, children) -> x`.

    Raises
    ------
    ValueError
        If `cls` is registered already, or is a built-in container.

    Notes
    -----
    Namedtuples and dataclasses can be registered; the functions then replace their default flattening.

    Examples
    --------
    >>> from tracegrad.tree import leaves, structure
    >>> class Scaled:
    ...     def __init__(self, value, unit):
    ...         self.value, self.unit = value, unit
    >>> register_pytree_node(Scaled, lambda x: ((x.value,), x.unit), lambda unit, xs: Scaled(xs[0], unit))
    >>> leaves([Scaled(2.0, "mm")]), str(structure(Scaled(2.0, "mm")))
    ([2.0], "Scaled['mm'](*)")
    """
    _register(cls, _custom_kind(cls, flatten, unflatten))


def registered(cls: type) -> tuple[Any, ...] | None:
    """Return the functions that a class was registered with: () for a leaf, None for an unregistered class.

    >>> registered(Aval), registered(object)
    ((), None)
    """
    kind = KINDS.get(cls)
    return None if cls not in _REGISTERED else () if kind is None else kind.registered


def register_leaf(cls: type) -> None:
    """Make the instances of a class leaves, even if it is a dataclass or a namedtuple.

    Parameters
    ----------
    cls : type
        Class. Its subclasses are not affected.

    Raises
    ------
    ValueError
        If the class is registered already.

    Examples
    --------
    >>> import numpy as np
    >>> from tracegrad.tree import leaves
    >>> leaves(Aval((2, 3), np.dtype("float64")))
    [Aval(shape=(2, 3), dtype=dtype('float64'))]
    """
    _register(cls, None)


def treat_as(cls: type, like: type) -> None:
    """Flatten the instances of a class as the instances of another class.

    Parameters
    ----------
    cls : type
        Class.
    like : type
        Class whose attributes the instances of `cls` have.

    Examples
    --------
    >>> from tracegrad.tree import leaves
    >>> class Pair(tuple):
    ...     pass
    >>> treat_as(Pair, tuple)
    >>> leaves(Pair([1, 2]))
    [1, 2]
    """
    KINDS[cls] = KINDS[like] if like in KINDS else kind_of(like)


def _register(cls: type, kind: NodeKind | None) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"a class is needed, got {cls!r}")
    if cls in _REGISTERED:
        raise ValueError(f"{cls.__name__} is registered already")
    _REGISTERED.add(cls)
    KINDS[cls] = kind


register_leaf(Aval)
