"""Pytrees, against optree on generated trees, and by claim."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracegrad import tree
from tracegrad.errors import ShapeError, TracegradError

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: Any
    name: str = dataclasses.field(default="", metadata={"static": True})
    cache: Any = dataclasses.field(init=False, default=None)


class Custom:
    def __init__(self, children: Any, aux: Any):
        self.children, self.aux = children, aux

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


tree.register_pytree_node(Custom, lambda x: (x.children, x.aux), lambda aux, xs: Custom(list(xs), aux))

KEYS = st.one_of(
    st.lists(st.text(max_size=3), unique=True, max_size=4),
    st.lists(st.integers(-5, 5), unique=True, max_size=4),
)


def dicts(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def filled(keys: list[Any]) -> st.SearchStrategy[dict[Any, Any]]:
        return st.tuples(*[children] * len(keys)).map(lambda values: dict(zip(keys, values, strict=True)))

    return KEYS.flatmap(filled)


def shared_containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What optree knows too."""
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.tuples(children, children).map(lambda xs: Pair(*xs)),
        dicts(children),
        dicts(children).map(OrderedDict),
        dicts(children).map(lambda d: defaultdict(list, d)),
    )


def own_containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        shared_containers(children),
        st.tuples(children, children).map(lambda xs: Layer(*xs)),
        st.tuples(children, st.text(max_size=2)).map(lambda xs: Frozen(*xs)),
        st.tuples(st.lists(children, max_size=3), st.integers()).map(lambda xs: Custom(*xs)),
    )


LEAVES = st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3))
SHARED = st.recursive(LEAVES, shared_containers, max_leaves=12)
OWN = st.recursive(LEAVES, own_containers, max_leaves=12)


@given(SHARED)
def test_leaves_are_those_of_optree_in_the_same_order(x: Any) -> None:
    assert tree.leaves(x) == optree.tree_leaves(x)


@given(SHARED, SHARED)
def test_structures_are_equal_where_those_of_optree_are(x: Any, y: Any) -> None:
    expected = optree.tree_structure(x) == optree.tree_structure(y)
    assert tree.alike(tree.structure(x), tree.structure(y)) == expected
    assert tree.structure(x) != tree.structure(y) or expected


@given(SHARED)
def test_map_is_that_of_optree(x: Any) -> None:
    assert tree.map(repr, x) == optree.tree_map(repr, x)
    assert tree.map(lambda a, b: (a, b), x, x) == optree.tree_map(lambda a, b: (a, b), x, x)


@given(OWN)
def test_unflatten_undoes_flatten(x: Any) -> None:
    leaves, treedef = tree.flatten(x)
    back = tree.unflatten(treedef, leaves)
    assert back == x
    assert type(back) is type(x)
    assert tree.structure(back) == treedef
    assert hash(tree.structure(back)) == hash(treedef)
    assert hash(tree.structure(back)) == hash(treedef)
    assert treedef.num_leaves == len(leaves)
    assert str(treedef).count("*") >= len(leaves)


@given(SHARED)
def test_each_path_leads_to_its_leaf(x: Any) -> None:
    for path, leaf in zip(tree.paths(x, "x"), tree.leaves(x), strict=True):
        assert eval(path, {"x": x}) is leaf


@given(OWN)
def test_too_few_or_too_many_leaves_are_an_error(x: Any) -> None:
    leaves, treedef = tree.flatten(x)
    with pytest.raises(ShapeError, match=f"has {len(leaves)} leaves, got {len(leaves) + 1}"):
        tree.unflatten(treedef, [*leaves, 0])
    if leaves:
        with pytest.raises(ShapeError, match=f"has {len(leaves)} leaves, got {len(leaves) - 1}"):
            tree.unflatten(treedef, leaves[:-1])


def test_paths_are_python_expressions() -> None:
    x = {"w": [1.0, 2.0], "layers": (Layer(3.0, Pair(4.0, None)),), 0.5: Custom([5.0], "aux")}
    assert tree.paths(x["w"], "params['w']") == ["params['w'][0]", "params['w'][1]"]
    assert tree.paths(x, "params") == [
        "params['w'][0]",
        "params['w'][1]",
        "params['layers'][0].w",
        "params['layers'][0].b.first",
        "params[0.5]<child 0>",
    ]
    assert tree.paths(tree.structure(x), "params") == tree.paths(x, "params")
    assert tree.paths(1.0) == [""]


def test_structures_print_as_the_tree_with_stars() -> None:
    x = (
        [0, None],
        (0,),
        {"b": 0, "a": ()},
        OrderedDict(z=0, a=0),
        defaultdict(int, k=0),
        Pair(0, 0),
        Layer(0, [0]),
        Frozen(0, "n"),
        Custom([0, 0], 3),
    )
    expected = (
        "([*, None], (*,), {'b': *, 'a': ()}, OrderedDict({'z': *, 'a': *}), defaultdict(int, {'k': *}), "
        "Pair(first=*, second=*), Layer(w=*, b=[*]), Frozen(value=*, name='n', cache=None), Custom[3](*, *))"
    )
    assert str(tree.structure(x)) == expected
    assert repr(tree.structure(x)) == f"TreeDef({expected})"
    assert str(tree.structure(0)) == "*"


def test_the_order_of_insertion_is_part_of_the_structure() -> None:
    assert tree.structure({"a": 1, "b": 2}) != tree.structure({"b": 1, "a": 2})
    assert tree.alike(tree.structure({"a": 1, "b": 2}), tree.structure({"b": 1, "a": 2}))
    assert not tree.alike(tree.structure(OrderedDict(a=1, b=2)), tree.structure(OrderedDict(b=1, a=2)))
    assert tree.structure(OrderedDict(a=1, b=2)) != tree.structure(OrderedDict(b=1, a=2))
    assert tree.leaves({"b": 1, "a": 2}) == [2, 1]
    assert tree.leaves(OrderedDict(b=1, a=2)) == [1, 2]


def test_keys_that_cannot_be_compared_keep_the_order_of_insertion() -> None:
    assert tree.leaves({"b": 1, 0: 2, "a": 3}) == [1, 2, 3]
    assert tree.map(str, {"b": 1, 0: 2}) == {"b": "1", 0: "2"}


@pytest.mark.parametrize("others", [(1, 1.0, True), (0.0, -0.0), ((1, 2), (1.0, 2), (True, 2))])
def test_static_data_that_compares_equal_but_is_not_the_same_makes_another_structure(others: Any) -> None:
    for wrap in (
        lambda v: {v: 0},
        lambda v: OrderedDict({v: 0}),
        lambda v: defaultdict(None, {v: 0}),
        lambda v: {v: 0, "unlike": 0},
        lambda v: Frozen(0, v),
        lambda v: Custom([0], v),
    ):
        assert len({tree.structure(wrap(v)) for v in others}) == len(others)
        assert tree.structure(wrap(others[0])) == tree.structure(wrap(others[0]))


def test_classes_with_equal_children_have_different_structures() -> None:
    trees = (
        (1, 2),
        [1, 2],
        Pair(1, 2),
        Layer(1, 2),
        {"w": 1, "b": 2},
        OrderedDict(w=1, b=2),
        Custom([1, 2], 0),
    )
    assert len({tree.structure(x) for x in trees}) == len(trees)


def test_subclasses_of_containers_enum_members_and_classes_are_leaves() -> None:
    class MyList(list):  # type: ignore[type-arg]
        pass

    @dataclasses.dataclass
    class Body:
        mass: float

    class Planet(Body, enum.Enum):
        EARTH = 5.97

    for leaf in (MyList([1]), Planet.EARTH, Layer, "text", b"bytes", {1}, range(3), tree.structure((1, 2))):
        assert tree.leaves([leaf])[0] is leaf


def test_a_dataclass_is_rebuilt_without_calling_its_initializer() -> None:
    calls = []

    @dataclasses.dataclass
    class Checked:
        x: Any
        scale: dataclasses.InitVar[int] = 1
        derived: Any = dataclasses.field(init=False)

        def __post_init__(self, scale: int) -> None:
            calls.append(scale)
            self.derived = self.x * scale

    back = tree.map(lambda v: -v, Checked(3, scale=2))
    assert (back.x, back.derived, calls) == (-3, -6, [2])


def test_static_data_that_is_not_hashable_is_an_error_that_names_the_class() -> None:
    with pytest.raises(TypeError, match=r"static data of a Frozen must be hashable.*\['a'\]"):
        tree.flatten(Frozen(0, ["a"]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="static data of a Custom must be hashable"):
        tree.flatten([Custom([0], {})])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"a": [1, 2]}, {"a": [1]}, r"differ at \['a'\]: expected \[\*, \*\], got \[\*\]"),
        ({"a": [1]}, {"a": (1,)}, r"differ at \['a'\]: expected \[\*\], got \(\*,\)"),
        ({"a": 1}, {"b": 1}, r"differ at the root: expected {'a': \*}, got {'b': \*}"),
        (Layer(1, (1, None)), Layer(1, (1, 2)), r"differ at \.b\[1\]: expected None, got a leaf of type int"),
        ([Custom([1], 1)], [Custom([1], 2)], r"differ at \[0\]: expected Custom\[1\]\(\*\), got Custom\[2\]"),
    ],
)
def test_map_over_unlike_structures_is_an_error_that_names_the_path(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message) as caught:
        tree.map(lambda *xs: xs, x, y)
    assert isinstance(caught.value, TracegradError)
    assert isinstance(caught.value, ValueError)


def test_where_the_first_tree_has_a_leaf_map_passes_the_subtree() -> None:
    assert tree.map(lambda a, b: (a, b), (1, [2]), ([3], [(4, 5)])) == ((1, [3]), [(2, (4, 5))])
    with pytest.raises(ShapeError, match=r"differ at axes\[1\]"):
        tree.flatten_up_to(tree.structure((0, [0])), (0, 0), "axes")


def test_a_class_is_registered_once_and_built_in_containers_never() -> None:
    for cls in (Custom, tuple, dict, type(None)):
        with pytest.raises(ValueError, match="registered already"):
            tree.register_pytree_node(cls, lambda x: ((), None), lambda aux, xs: None)
    with pytest.raises(TypeError, match="a class is needed"):
        tree.register_leaf(3)  # type: ignore[arg-type]


def test_a_dataclass_seen_before_can_still_be_registered() -> None:
    @dataclasses.dataclass
    class Late:
        x: Any
        y: Any

    leaves, treedef = tree.flatten(Late(1, 2))
    tree.register_pytree_node(Late, lambda v: ((v.y,), v.x), lambda aux, xs: Late(aux, xs[0]))
    assert tree.leaves(Late(1, 2)) == [2]
    assert tree.unflatten(treedef, leaves) == Late(1, 2)


def test_threads_that_meet_a_class_at_once_agree_on_its_structure() -> None:
    for _ in range(50):
        cls = dataclasses.make_dataclass("Fresh", ["x"])
        barrier = threading.Barrier(4)
        found: list[tree.TreeDef] = []

        def meet(cls: Any = cls, barrier: Any = barrier, found: Any = found) -> None:
            barrier.wait()
            found.append(tree.structure(cls(1)))

        threads = [threading.Thread(target=meet) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1
        assert len(found) == 4
