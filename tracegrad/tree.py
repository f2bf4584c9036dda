"""Pytrees: nested containers of leaves, taken apart into a list and a structure, and put together again.

`None` is a node without children. A tuple, list or namedtuple has its items as children, a dict its values, a
dataclass its fields (except those with `metadata={"static": True}`, which belong to the structure);
`register_pytree_node` adds other classes. Everything else is a leaf, instances of unregistered subclasses of
the built-in containers included. As in JAX, the children of a dict (and of a defaultdict) come in the order
of its sorted keys, whatever the order of insertion; keys that cannot be compared keep the order of insertion,
and so does an OrderedDict, for which the order is part of the structure.

A structure (`TreeDef`) is hashable and compares exactly: what is static in it (dict keys, static fields, the
auxiliary data of registered classes) tells 1 from 1.0 and True, and 0.0 from -0.0.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import Any

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError

__all__ = [
    "TreeDef",
    "children",
    "flatten",
    "flatten_up_to",
    "is_node",
    "leaves",
    "map",
    "paths",
    "register_leaf",
    "register_pytree_node",
    "skeleton",
    "structure",
    "unflatten",
    "with_children",
]

_map: Any = map

Children = Sequence[Any]
# Kind, static data and the specs of the children; a plain tuple, so that hashing and comparing run in C.
_Spec = tuple["_Kind", Any, tuple[Any, ...]]


class _Kind:
    """How one class of containers is taken apart, put together and printed; compares by identity."""

    __slots__ = ("cls", "flatten", "names", "text", "unflatten")

    def __init__(
        self,
        cls: type,
        flatten: Callable[[Any], tuple[Children, Any]],
        unflatten: Callable[[Any, Children], Any],
        names: Callable[[Any, int], Sequence[str]],
        text: Callable[[Any, Sequence[str]], str],
    ):
        self.cls, self.flatten, self.unflatten = cls, flatten, unflatten
        self.names, self.text = names, text

    def __repr__(self) -> str:
        return self.cls.__name__


class TreeDef(tuple[Any, ...]):
    """The structure of a pytree, everything but the leaves: hashable, equal for equal structures.

    >>> structure({"w": [1.0, 2.0], "b": None})
    TreeDef({'b': None, 'w': [*, *]})
    >>> structure((1, 2)) == structure((3.0, "x"))
    True
    """

    __slots__ = ()

    @property
    def num_leaves(self) -> int:
        """The number of leaves.

        >>> structure({"w": [1.0, 2.0], "b": None}).num_leaves
        2
        """
        return _count(self)

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return f"TreeDef({_text(self)})"


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """The leaves of `tree` in order, and its structure.

    A container that holds itself is a RecursionError; static data that is not hashable is a TypeError.

    >>> flatten({"w": [1.0, 2.0], "b": None})
    ([1.0, 2.0], TreeDef({'b': None, 'w': [*, *]}))
    """
    found: list[Any] = []
    return found, TreeDef(_walk(tree, found.append))


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves; ShapeError when there are too few or too many.

    Dicts come back in the order of their leaves. Dataclasses come back with all their fields, without a call
    of `__init__` or `__post_init__`; attributes that are not fields are not carried over.

    >>> unflatten(structure((0, {"a": 0})), [1, 2])
    (1, {'a': 2})
    """
    given = list(leaves)
    supply = iter(given)
    try:
        tree = _build(treedef, supply.__next__)
    except StopIteration:
        tree = _LEAF
    if tree is _LEAF or next(supply, _LEAF) is not _LEAF:
        raise ShapeError(f"the structure {treedef} has {_count(treedef)} leaves, got {len(given)}")
    return tree


def leaves(tree: Any) -> list[Any]:
    """The leaves of `tree` in order.

    >>> leaves((1, [2, None], {"b": 4, "a": 3}))
    [1, 2, 3, 4]
    """
    return flatten(tree)[0]


def structure(tree: Any) -> TreeDef:
    """The structure of `tree`.

    >>> print(structure((1, [2, None])))
    (*, [*, None])
    """
    return flatten(tree)[1]


def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """The tree with `f(leaf, *others)` for each leaf of `tree`.

    Each of `rest` has at least the structure of `tree`; where `tree` has a leaf, `f` gets what stands there,
    be it a leaf or a subtree. Another structure is a ShapeError that names the path.

    >>> map(lambda x, y: x + y, {"a": 1, "b": (2,)}, {"b": (20,), "a": 10})
    {'a': 11, 'b': (22,)}
    """
    found, treedef = flatten(tree)
    others = [flatten_up_to(treedef, other) for other in rest]
    return unflatten(treedef, [f(*row) for row in zip(found, *others, strict=True)])


def flatten_up_to(treedef: TreeDef, tree: Any, root: str = "") -> list[Any]:
    """The subtrees of `tree` that stand where the structure `treedef` has its leaves.

    A structure that differs above the leaves is a ShapeError that names the path, starting with `root`.

    >>> flatten_up_to(structure((0, [0])), ("a", [("b", "c")]))
    ['a', ('b', 'c')]
    """
    found: list[Any] = []
    _walk_up_to(treedef, tree, root, found.append)
    return found


def paths(tree: Any, root: str = "") -> list[str]:
    """For each leaf of `tree`, or of a TreeDef, the expression that leads to it from `root`.

    >>> paths({"w": [1.0, 2.0], "b": None}, "params")
    ["params['w'][0]", "params['w'][1]"]
    """
    found: list[str] = []
    _collect_paths(tree if isinstance(tree, TreeDef) else structure(tree), root, found.append)
    return found


def is_node(x: Any) -> bool:
    """Whether `x` is a container, and not a leaf.

    >>> is_node([1]), is_node(None), is_node(1)
    (True, True, False)
    """
    return _node(x)[0] is not _LEAF_KIND


def children(x: Any) -> list[Any]:
    """The children of the container `x`, in order; a leaf has none.

    >>> children({"w": [1, 2], "b": None})
    [None, [1, 2]]
    """
    return list(_node(x)[2])


def skeleton(x: Any) -> Hashable:
    """What is static in `x` itself, its children apart: equal for containers that differ in their children only.

    >>> skeleton({"a": 1, "b": 2}) == skeleton({"b": [3], "a": 4})
    True
    """
    kind, aux, children = _node(x)
    return kind, aux, len(children)


def with_children(x: Any, children: Sequence[Any]) -> Any:
    """The container `x` with other children, as many as it has.

    >>> with_children({"w": [1, 2], "b": None}, [3, 4])
    {'b': 3, 'w': 4}
    """
    kind, aux, _ = _node(x)
    return kind.unflatten(aux, children)


def register_pytree_node(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable[Any], Hashable]],
    unflatten: Callable[[Any, Children], Any],
) -> None:
    """Make the instances of exactly `cls` nodes.

    `flatten(x) -> (children, aux)` takes one apart, `unflatten(aux, children) -> x` puts one together. `aux`
    is static: it is hashable and part of the structure. A class that is registered already is a ValueError,
    and so are the built-in containers; namedtuples and dataclasses can be given a flattening of their own.

    >>> class Scaled:
    ...     def __init__(self, value, unit):
    ...         self.value, self.unit = value, unit
    >>> register_pytree_node(Scaled, lambda x: ((x.value,), x.unit), lambda unit, xs: Scaled(xs[0], unit))
    >>> leaves([Scaled(2.0, "mm")]), str(structure(Scaled(2.0, "mm")))
    ([2.0], "Scaled['mm'](*)")
    """
    _register(cls, _custom_kind(cls, flatten, unflatten))


def register_leaf(cls: type) -> None:
    """Make the instances of exactly `cls` leaves, though the class be a dataclass or a namedtuple.

    >>> import numpy as np
    >>> leaves(Aval((2, 3), np.dtype("float64")))
    [Aval(shape=(2, 3), dtype=dtype('float64'))]
    """
    _register(cls, None)


# -- walking ---------------------------------------------------------------------------------------


def _walk(tree: Any, append: Callable[[Any], None]) -> _Spec:
    cls = type(tree)
    try:
        kind = _KINDS[cls]
    except KeyError:
        kind = _classify(cls)
    if kind is None:
        append(tree)
        return _LEAF
    children, aux = kind.flatten(tree)
    specs = []
    for child in children:
        # A call for each leaf would be half of the cost of flattening.
        if _KINDS.get(type(child), kind) is None:
            append(child)
            specs.append(_LEAF)
        else:
            specs.append(_walk(child, append))
    return (kind, aux, tuple(specs))


def _build(spec: _Spec, take: Callable[[], Any]) -> Any:
    kind, aux, specs = spec
    if kind is _LEAF_KIND:
        return take()
    children = [take() if child is _LEAF else _build(child, take) for child in specs]
    return kind.unflatten(aux, children)


def _count(spec: _Spec) -> int:
    return 1 if spec[0] is _LEAF_KIND else sum(_map(_count, spec[2]))


def _walk_up_to(spec: _Spec, tree: Any, path: str, append: Callable[[Any], None]) -> None:
    kind, aux, specs = spec
    if kind is _LEAF_KIND:
        append(tree)
        return
    given, given_aux, children = _node(tree)
    if given is not kind or given_aux != aux or len(children) != len(specs):
        raise ShapeError(_mismatch(spec, tree, path))
    for name, child, child_spec in zip(kind.names(aux, len(specs)), children, specs, strict=True):
        _walk_up_to(child_spec, child, path + name, append)


def _node(tree: Any) -> tuple[_Kind, Any, Children]:
    cls = type(tree)
    kind = _KINDS[cls] if cls in _KINDS else _classify(cls)
    if kind is None:
        return _LEAF_KIND, None, ()
    children, aux = kind.flatten(tree)
    return kind, aux, children


def _mismatch(spec: _Spec, tree: Any, path: str) -> str:
    kind, aux, children = _node(tree)
    given = f"a leaf of type {type(tree).__name__}"
    if kind is not _LEAF_KIND:
        given = _text((kind, aux, (_LEAF,) * len(children)))
    expected = _text((spec[0], spec[1], (_LEAF,) * len(spec[2])))
    return f"the structures differ at {path or 'the root'}: expected {expected}, got {given}"


def _collect_paths(spec: _Spec, path: str, append: Callable[[str], None]) -> None:
    kind, aux, specs = spec
    if kind is _LEAF_KIND:
        append(path)
        return
    for name, child in zip(kind.names(aux, len(specs)), specs, strict=True):
        _collect_paths(child, path + name, append)


def _text(spec: _Spec) -> str:
    kind, aux, specs = spec
    return kind.text(aux, [_text(child) for child in specs])


# -- static data -----------------------------------------------------------------------------------


def _exact(value: Any) -> Any:
    """What tells `value` from others that compare equal to it: 1, 1.0 and True; 0.0 and -0.0."""
    if type(value) is tuple:
        return tuple(_map(_exact, value))
    return (type(value), repr(value)) if isinstance(value, float | complex) else type(value)


def _static(cls: type, data: Any) -> tuple[Any, Any]:
    try:
        hash(data)
    except TypeError as error:
        raise TypeError(f"the static data of a {cls.__name__} must be hashable, got {data!r}: {error}") from None
    return data, _exact(data)


# -- the classes -------------------------------------------------------------------------------


def _flatten_sequence(x: Any) -> tuple[Children, Any]:
    return x, None


def _flatten_dict(x: Any) -> tuple[Children, Any]:
    try:
        keys = tuple(sorted(x))
    except TypeError:
        keys = tuple(x)
        return [x[key] for key in keys], (keys, _exact(keys))
    # Strings compare only with strings: all keys are strings if the first one is.
    exact = () if keys and type(keys[0]) is str else _exact(keys)
    return [x[key] for key in keys], (keys, exact)


def _flatten_defaultdict(x: Any) -> tuple[Children, Any]:
    children, (keys, exact) = _flatten_dict(x)
    return children, (keys, exact, x.default_factory)


def _flatten_ordered(x: Any) -> tuple[Children, Any]:
    keys = tuple(x)
    return list(x.values()), (keys, _exact(keys))


def _to_dict(aux: Any, children: Children) -> dict[Any, Any]:
    return dict(zip(aux[0], children, strict=True))


def _to_ordered(aux: Any, children: Children) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(aux[0], children, strict=True))


def _to_defaultdict(aux: Any, children: Children) -> defaultdict[Any, Any]:
    return defaultdict(aux[2], zip(aux[0], children, strict=True))


def _item_names(aux: Any, n: int) -> Sequence[str]:
    return [f"[{i}]" for i in range(n)]


def _key_names(aux: Any, n: int) -> Sequence[str]:
    return [f"[{key!r}]" for key in aux[0]]


def _child_names(aux: Any, n: int) -> Sequence[str]:
    return [f"<child {i}>" for i in range(n)]


def _tuple_text(aux: Any, texts: Sequence[str]) -> str:
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _list_text(aux: Any, texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _dict_text(aux: Any, texts: Sequence[str]) -> str:
    return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(aux[0], texts, strict=True)) + "}"


def _ordered_text(aux: Any, texts: Sequence[str]) -> str:
    return f"OrderedDict({_dict_text(aux, texts)})"


def _defaultdict_text(aux: Any, texts: Sequence[str]) -> str:
    return f"defaultdict({getattr(aux[2], '__name__', aux[2])}, {_dict_text(aux, texts)})"


def _none_text(aux: Any, texts: Sequence[str]) -> str:
    return "None"


def _named_tuple_kind(cls: Any) -> _Kind:
    def text(aux: Any, texts: Sequence[str]) -> str:
        return f"{cls.__name__}({', '.join(_map('='.join, zip(cls._fields, texts, strict=True)))})"

    names = [f".{name}" for name in cls._fields]
    return _Kind(cls, _flatten_sequence, lambda aux, xs: tuple.__new__(cls, xs), lambda aux, n: names, text)


def _dataclass_kind(cls: Any) -> _Kind:
    fields = dataclasses.fields(cls)
    dynamic = [f.name for f in fields if not f.metadata.get("static", False)]
    static = [f.name for f in fields if f.metadata.get("static", False)]
    names = [f".{name}" for name in dynamic]

    def take_apart(x: Any) -> tuple[Children, Any]:
        aux = _static(cls, tuple([getattr(x, name) for name in static])) if static else ((), ())
        return [getattr(x, name) for name in dynamic], aux

    def put_together(aux: Any, children: Children) -> Any:
        x = object.__new__(cls)
        for name, value in zip((*dynamic, *static), (*children, *aux[0]), strict=True):
            object.__setattr__(x, name, value)  # the class may be frozen
        return x

    def text(aux: Any, texts: Sequence[str]) -> str:
        values = dict(zip(dynamic, texts, strict=True)) | dict(zip(static, _map(repr, aux[0]), strict=True))
        return f"{cls.__name__}({', '.join(f'{f.name}={values[f.name]}' for f in fields)})"

    return _Kind(cls, take_apart, put_together, lambda aux, n: names, text)


def _custom_kind(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Children], Any]) -> _Kind:
    def take_apart(x: Any) -> tuple[Children, Any]:
        children, aux = flatten(x)
        return tuple(children), _static(cls, aux)

    def text(aux: Any, texts: Sequence[str]) -> str:
        return f"{cls.__name__}[{aux[0]!r}]({', '.join(texts)})"

    return _Kind(cls, take_apart, lambda aux, xs: unflatten(aux[0], xs), _child_names, text)


_LEAF_KIND = _Kind(object, lambda x: ((), None), lambda aux, xs: None, _item_names, lambda aux, texts: "*")
_LEAF: _Spec = (_LEAF_KIND, None, ())

# The kind of each class seen so far; None for leaves.
_KINDS: dict[type, _Kind | None] = {
    kind.cls: kind
    for kind in (
        _Kind(tuple, _flatten_sequence, lambda aux, xs: tuple(xs), _item_names, _tuple_text),
        _Kind(list, _flatten_sequence, lambda aux, xs: list(xs), _item_names, _list_text),
        _Kind(dict, _flatten_dict, _to_dict, _key_names, _dict_text),
        _Kind(OrderedDict, _flatten_ordered, _to_ordered, _key_names, _ordered_text),
        _Kind(defaultdict, _flatten_defaultdict, _to_defaultdict, _key_names, _defaultdict_text),
        _Kind(type(None), lambda x: ((), None), lambda aux, xs: None, _item_names, _none_text),
    )
}
_REGISTERED: set[type] = set(_KINDS)


def _classify(cls: type) -> _Kind | None:
    """The kind of a class met for the first time; the same object for all threads."""
    kind = None
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        kind = _named_tuple_kind(cls)
    elif dataclasses.is_dataclass(cls) and not issubclass(cls, Enum):
        kind = _dataclass_kind(cls)
    return _KINDS.setdefault(cls, kind)


def _register(cls: type, kind: _Kind | None) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"a class is needed, got {cls!r}")
    if cls in _REGISTERED:
        raise ValueError(f"{cls.__name__} is registered already")
    _REGISTERED.add(cls)
    _KINDS[cls] = kind


register_leaf(Aval)
