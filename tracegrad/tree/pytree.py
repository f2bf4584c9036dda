"""Flatten and unflatten pytrees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from tracegrad.errors import ShapeError
from tracegrad.tree.registry import KINDS, LEAF_KIND, Children, NodeKind, fixed, kind_of, unordered

_map: Any = map

# Kind, static data and the specs of the children; a plain tuple, so that hashing and comparing run in C.
_Spec = tuple[NodeKind, Any, tuple[Any, ...]]
_LEAF: _Spec = (LEAF_KIND, None, ())
_kind_if_known = KINDS.get


class TreeDef(tuple[Any, ...]):
    """Structure of a pytree: everything but its leaves.

    It is hashable, and equal for equal structures. `structure` and `flatten` make it.

    Examples
    --------
    >>> structure({"w": [1.0, 2.0], "b": None})
    TreeDef({'w': [*, *], 'b': None})
    >>> structure((1, 2)) == structure((3.0, "x"))
    True
    """

    __slots__ = ()

    @property
    def num_leaves(self) -> int:
        """Return the number of leaves.

        >>> structure({"w": [1.0, 2.0], "b": None}).num_leaves
        2
        """
        return _count(self)

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return f"TreeDef({_text(self)})"


def flatten(tree: object) -> tuple[list[Any], TreeDef]:
    """Flatten a pytree into its leaves and its structure.

    Parameters
    ----------
    tree : pytree
        Nested containers.

    Returns
    -------
    leaves : list
        Leaves in order.
    treedef : TreeDef
        Structure.

    Raises
    ------
    RecursionError
        If a container holds itself.
    TypeError
        If static data of a node is not hashable.

    Examples
    --------
    >>> flatten({"w": [1.0, 2.0], "b": None})
    ([1.0, 2.0], TreeDef({'w': [*, *], 'b': None}))
    """
    results: list[Any] = []
    return results, TreeDef(_walk(tree, results.append))


def fix(treedef: TreeDef, places: Mapping[int, object]) -> TreeDef:
    """Replace leaves of a structure by values that belong to the structure.

    Parameters
    ----------
    treedef : TreeDef
        Structure.
    places : mapping of int to object
        Values by the number of the leaf.

    Returns
    -------
    TreeDef
        Structure with fewer leaves.

    Examples
    --------
    >>> fix(structure([1, 2, 3]), {1: "mean"})
    TreeDef([*, 'mean', *])
    """
    numbers = iter(range(num_leaves := treedef.num_leaves))
    assert all(k < num_leaves for k in places)

    def changed(spec: _Spec) -> _Spec:
        if spec[0] is LEAF_KIND:
            number = next(numbers)
            return fixed(places[number]) if number in places else spec
        return spec[0], spec[1], tuple([changed(x) for x in spec[2]])

    return TreeDef(changed(treedef))


def unflatten(treedef: TreeDef, leaves: Iterable[object]) -> Any:
    """Make a pytree of a structure and leaves.

    Parameters
    ----------
    treedef : TreeDef
        Structure.
    leaves : iterable
        Leaves in order.

    Returns
    -------
    pytree
        Nested containers.

    Raises
    ------
    ShapeError
        If there are too few or too many leaves.

    Notes
    -----
    Dicts have the order in which their keys were inserted. Dataclasses have all their fields, without a call of
    `__init__` or `__post_init__`. Attributes that are not fields are lost.

    Examples
    --------
    >>> unflatten(structure((0, {"a": 0})), [1, 2])
    (1, {'a': 2})
    """
    args = list(leaves)
    supply = iter(args)
    try:
        tree = _build(treedef, supply.__next__)
    except StopIteration:
        tree = _LEAF
    if tree is _LEAF or next(supply, _LEAF) is not _LEAF:
        raise ShapeError(f"the structure {treedef} has {_count(treedef)} leaves, got {len(args)}")
    return tree


def leaves(tree: object) -> list[Any]:
    """Return the leaves of a pytree in order.

    Parameters
    ----------
    tree : pytree
        Nested containers.

    Returns
    -------
    list
        Leaves.

    Examples
    --------
    >>> leaves((1, [2, None], {"b": 4, "a": 3}))
    [1, 2, 3, 4]
    """
    return flatten(tree)[0]


def structure(tree: object) -> TreeDef:
    """Return the structure of a pytree.

    Parameters
    ----------
    tree : pytree
        Nested containers.

    Returns
    -------
    TreeDef
        Structure.

    Examples
    --------
    >>> print(structure((1, [2, None])))
    (*, [*, None])
    """
    return flatten(tree)[1]


def alike(a: TreeDef, b: TreeDef) -> bool:
    """Return whether two structures are equal up to the order of dict keys, so that the leaves of one fit the other.

    Parameters
    ----------
    a, b : TreeDef
        Structures.

    Returns
    -------
    bool
        True for structures that are alike.

    Examples
    --------
    >>> alike(structure({"w": 1, "b": 2}), structure({"b": 3, "w": 4}))
    True
    """
    return a == b or _unordered(a) == _unordered(b)


def _unordered(spec: _Spec) -> _Spec:
    kind, aux, specs = spec
    return kind, unordered(kind, aux), tuple([_unordered(x) for x in specs])


def map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply a function to each leaf of a pytree, and return the pytree of the results.

    Parameters
    ----------
    f : callable
        Function `f(leaf, *others)`.
    tree : pytree
        Nested containers.
    *rest : pytree
        Further pytrees, which have at least the structure of `tree`. At a leaf of `tree`, `f` receives the subtree or
        leaf that is there.

    Returns
    -------
    pytree
        Results, with the structure of `tree`.

    Raises
    ------
    ShapeError
        If a structure differs. The text names the path.

    Examples
    --------
    >>> map(lambda x, y: x + y, {"a": 1, "b": (2,)}, {"b": (20,), "a": 10})
    {'a': 11, 'b': (22,)}
    """
    result, treedef = flatten(tree)
    others = [flatten_up_to(treedef, other) for other in rest]
    return unflatten(treedef, [f(*row) for row in zip(result, *others, strict=True)])


def flatten_up_to(treedef: TreeDef, tree: object, root: str = "") -> list[Any]:
    """Return the subtrees of a pytree that are at the leaves of a structure.

    Parameters
    ----------
    treedef : TreeDef
        Structure.
    tree : pytree
        Nested containers, which have at least this structure.
    root : str
        Name of the pytree in messages.

    Returns
    -------
    list
        Subtrees, in the order of the leaves.

    Raises
    ------
    ShapeError
        If the structure differs above the leaves. The text names the path.

    Examples
    --------
    >>> flatten_up_to(structure((0, [0])), ("a", [("b", "c")]))
    ['a', ('b', 'c')]
    """
    results: list[Any] = []
    _walk_up_to(treedef, tree, root, results.append)
    return results


def paths(tree: object, root: str = "") -> list[str]:
    """Return the expressions that lead to the leaves of a pytree.

    Parameters
    ----------
    tree : pytree or TreeDef
        Nested containers, or a structure.
    root : str
        Expression of the pytree itself.

    Returns
    -------
    list of str
        Expressions, in the order of the leaves.

    Examples
    --------
    >>> paths({"w": [1.0, 2.0], "b": None}, "params")
    ["params['w'][0]", "params['w'][1]"]
    """
    results: list[str] = []
    _collect_paths(tree if isinstance(tree, TreeDef) else structure(tree), root, results.append)
    return results


def is_node(x: object) -> bool:
    """Return whether an object is a container, and not a leaf.

    Parameters
    ----------
    x : object
        Object.

    Returns
    -------
    bool
        True for a container.

    Examples
    --------
    >>> is_node([1]), is_node(None), is_node(1)
    (True, True, False)
    """
    return _node(x)[0] is not LEAF_KIND


def children(x: object) -> list[Any]:
    """Return the children of a container, in order.

    Parameters
    ----------
    x : object
        Container, or a leaf, which has no children.

    Returns
    -------
    list
        Children.

    Examples
    --------
    >>> children({"w": [1, 2], "b": None})
    [None, [1, 2]]
    """
    return list(_node(x)[2])


def skeleton(x: object) -> Hashable:
    """Return the static part of a container: equal for containers that differ in their children only.

    Parameters
    ----------
    x : object
        Container.

    Returns
    -------
    hashable
        Static part.

    Examples
    --------
    >>> skeleton({"a": 1, "b": 2}) == skeleton({"a": [3], "b": 4})
    True
    """
    kind, aux, children = _node(x)
    return kind, aux, len(children)


def with_children(x: object, children: Sequence[object]) -> Any:
    """Copy a container with other children.

    Parameters
    ----------
    x : object
        Container.
    children : sequence
        As many children as `x` has.

    Returns
    -------
    object
        New container.

    Examples
    --------
    >>> with_children({"w": [1, 2], "b": None}, [3, 4])
    {'w': 4, 'b': 3}
    """
    kind, aux, _ = _node(x)
    return kind.unflatten(aux, children)


def _walk(tree: Any, append: Callable[..., object]) -> _Spec:
    cls = type(tree)
    try:
        kind = KINDS[cls]
    except KeyError:
        kind = kind_of(cls)
    if kind is None:
        append(tree)
        return _LEAF
    children, aux = kind.flatten(tree)
    specs = []
    for child in children:
        # A call for each leaf would be half of the cost of flattening.
        if _kind_if_known(type(child), kind) is None:
            append(child)
            specs.append(_LEAF)
        else:
            specs.append(_walk(child, append))
    return (kind, aux, tuple(specs))


def _build(spec: _Spec, next_leaf: Callable[[], object]) -> object:
    kind, aux, specs = spec
    if kind is LEAF_KIND:
        return next_leaf()
    children = [next_leaf() if child is _LEAF else _build(child, next_leaf) for child in specs]
    return kind.unflatten(aux, children)


def _count(spec: _Spec) -> int:
    return 1 if spec[0] is LEAF_KIND else sum(_map(_count, spec[2]))


def _walk_up_to(spec: _Spec, tree: Any, path: str, append: Callable[..., object]) -> None:
    kind, aux, specs = spec
    if kind is LEAF_KIND:
        append(tree)
        return
    args, actual_aux, children = _node(tree)
    same = args is kind and (actual_aux == aux or unordered(kind, actual_aux) == unordered(kind, aux))
    if not same or len(children) != len(specs):
        raise ShapeError(_mismatch(spec, tree, path))
    for name, child, child_spec in zip(kind.names(aux, len(specs)), children, specs, strict=True):
        _walk_up_to(child_spec, child, path + name, append)


def _node(tree: Any) -> tuple[NodeKind, Any, Children]:
    cls = type(tree)
    kind = KINDS[cls] if cls in KINDS else kind_of(cls)
    if kind is None:
        return LEAF_KIND, None, ()
    children, aux = kind.flatten(tree)
    return kind, aux, children


def _mismatch(spec: _Spec, tree: object, path: str) -> str:
    kind, aux, children = _node(tree)
    args = f"a leaf of type {type(tree).__name__}"
    if kind is not LEAF_KIND:
        args = _text((kind, aux, (_LEAF,) * len(children)))
    expected = _text((spec[0], spec[1], (_LEAF,) * len(spec[2])))
    return f"the structures differ at {path or 'the root'}: expected {expected}, got {args}"


def _collect_paths(spec: _Spec, path: str, append: Callable[[str], None]) -> None:
    kind, aux, specs = spec
    if kind is LEAF_KIND:
        append(path)
        return
    for name, child in zip(kind.names(aux, len(specs)), specs, strict=True):
        _collect_paths(child, path + name, append)


def _text(spec: _Spec) -> str:
    kind, aux, specs = spec
    return kind.text(aux, [_text(child) for child in specs])
