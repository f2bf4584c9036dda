"""Dicts keep their order: of arguments inside of traced functions, of results, and of gradients."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])
LAYERS = {"w": np.arange(3.0), "a": np.ones(3), "m": np.full(3, 2.0)}


def rotated(d: dict[Any, Any], n: int) -> dict[Any, Any]:
    """The same items, the first n at the end."""
    items = list(d.items())
    return dict(items[n:] + items[:n])


@program(modes=("traced", "disabled", "tensors"))
def test_layers_run_in_the_order_of_insertion(trace: Any) -> Any:
    @trace
    def network(layers: Any, x: Any) -> Any:
        for k, w in layers.items():
            x = x * w if k != "m" else np.maximum(x, 0.5) + w
        return x

    for n in (0, 1, 2, 0, 1, 2):
        yield network(rotated(LAYERS, n), X)


@program
def test_every_view_of_a_dict_has_its_order(trace: Any) -> Any:
    seen = []

    @trace
    def f(d: Any) -> Any:
        seen.append(
            (list(d), list(d.keys()), [k for k, _ in d.items()], list(reversed(d)), next(iter(d)), str(d.keys()))
        )
        return sum((i + 1) * v for i, v in enumerate(d.values()))

    for n in (0, 1, 2):
        yield f(rotated(LAYERS, n)), seen[n]


@program
def test_results_keep_the_order_in_which_they_were_made(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        out = {"z": x, "b": {"y": x + 1, "a": x + 2}}
        out["c"] = x * 2
        out["a"] = [x, {2: x, 1: x + 3, 0: -x}]
        return out

    for _ in range(3):
        yield f(X)


@program
def test_arguments_come_back_in_their_order(trace: Any) -> Any:
    @trace
    def f(d: Any) -> Any:
        return d, {k: v * 2 for k, v in d.items()}, dict(reversed(d.items()))

    for n in (0, 1, 2, 1):
        yield f(rotated(LAYERS, n))


@program
def test_nested_dicts_keep_their_order(trace: Any) -> Any:
    @trace
    def f(p: Any) -> Any:
        total = 0.0
        for block in p["net"]:
            for i, (k, v) in enumerate(block.items()):
                total = total * 0.5 + (i + len(k)) * v
        return {"total": total, "keys": p}

    for n in (0, 2, 0, 1):
        yield f({"net": [rotated(LAYERS, n), rotated(LAYERS, 1)], "aux": 1.0})
        yield f({"aux": 1.0, "net": (LAYERS, rotated(LAYERS, n))})


@program
def test_keywords_keep_their_order(trace: Any) -> Any:
    @trace
    def f(x: Any, *, b: Any = 1.0, a: Any = 2.0, **more: Any) -> Any:
        for i, (_, v) in enumerate(more.items()):
            x = x * (i + 1) + v
        return x + a - b, more

    yield f(X, u=1.0, t=2.0)
    yield f(X, t=2.0, u=1.0)
    yield f(X, t=2.0, b=3.0, u=1.0, a=5.0)
    yield f(X, a=5.0, u=1.0, b=3.0, t=2.0)
    yield f(X, b=5.0, a=3.0)
    yield f(X, a=3.0, b=5.0)


@program
def test_keys_of_several_kinds_keep_their_order(trace: Any) -> Any:
    @trace
    def f(d: Any) -> Any:
        total = 0.0
        for i, (k, v) in enumerate(d.items()):
            total = total * 0.5 + (i + len(repr(k))) * v
        return total, d

    yield f({2: X, 10: X + 1, 1: X * 2})
    yield f({10: X + 1, 1: X * 2, 2: X})
    yield f({(1, "a"): X, "a": X + 1, 1.5: X * 2, None: X})
    yield f({None: X, "a": X + 1, 1.5: X * 2, (1, "a"): X})
    yield f({1: X, 0: X + 1})
    yield f({True: X, False: X + 1})
    yield f({1: X, 0: X + 1})
    yield f({"1": X, "0": X + 1})


@program
def test_other_dicts_keep_their_order(trace: Any) -> Any:
    @trace
    def f(d: Any) -> Any:
        return [(i + 1) * v for i, v in enumerate(d.values())], d

    for cls in (OrderedDict, lambda d: defaultdict(list, d)):
        for n in (0, 1, 2):
            yield f(cls(rotated(LAYERS, n)))


@program
def test_a_captured_dict_that_changes_its_order(trace: Any) -> Any:
    layers = dict(LAYERS)

    @trace
    def f(x: Any) -> Any:
        for k, w in layers.items():
            x = x * w + len(k)
        return x

    yield f(X)
    layers["w"] = layers.pop("w")
    yield f(X)
    layers["a"] = layers.pop("a")
    yield f(X)
    layers = rotated(layers, 1)
    yield f(X)


@program
def test_gradients_have_the_order_of_the_argument(trace: Any) -> Any:
    gradient = tg.grad(lambda d, x: sum(np.sum(w * x) * (i + 1) for i, w in enumerate(d.values())))
    step = trace(lambda d, x: {k: d[k] - 0.1 * g for k, g in gradient(d, x).items()})
    for n in (0, 1, 2, 0):
        d = rotated(LAYERS, n)
        yield list(gradient(d, X)), list(tg.value_and_grad(lambda d: np.sum(d["w"]))(d)[1])
        yield step(d, X)
        yield list(tg.vjp(lambda d: {k: v * 2 for k, v in d.items()}, d)[1](rotated(d, 2))[0])


@program
def test_an_update_adds_and_moves_keys(trace: Any) -> Any:
    @trace
    def f(d: Any, x: Any) -> Any:
        table = {**d, "x": x}
        table["w"] = table.pop("w") + 1.0
        table |= {"a": x, "y": x}
        return table, table.popitem()[0]

    yield f(LAYERS, X)
    yield f(rotated(LAYERS, 1), X)


@program
def test_empty_dicts_and_dicts_of_one_key(trace: Any) -> Any:
    @trace
    def f(d: Any, e: Any) -> Any:
        return len(d), [v * 2 for v in (*d.values(), *e.values())], {}, {"z": {}}

    yield f({}, {"a": X})
    yield f({"a": X}, {})
    yield f({"b": X}, {})
    yield f({}, {})


@program
def test_a_sort_sorts_as_it_is_written(trace: Any) -> Any:
    @trace
    def f(d: Any) -> Any:
        return {k: d[k] for k in sorted(d, reverse=True)}, dict(sorted(d.items(), key=lambda kv: kv[0][::-1]))

    yield f({"ab": X, "ba": X + 1, "aa": X + 2})
    yield f({"ba": X, "aa": X + 1, "ab": X + 2})


@pytest.mark.parametrize("transform", ["scan", "cond", "while_loop", "jvp", "vmap"])
def test_transforms_pair_dicts_by_their_keys(transform: str) -> None:
    a, b = {"w": X, "a": X + 1}, {"a": X * 2, "w": X * 3}
    if transform == "scan":
        result = tg.trace(lambda d: tg.scan(lambda c, _: ({"a": c["w"], "w": c["a"]}, None), d, X)[0])(a)
        expected = {"w": X + 1, "a": X}
    elif transform == "cond":
        result = tg.trace(lambda p, a, b: tg.cond(p, lambda: a, lambda: b))(False, a, b)
        expected = {"w": X * 3, "a": X * 2}
    elif transform == "while_loop":
        result = tg.trace(
            lambda d: tg.while_loop(lambda d: d["w"][0] < 3, lambda d: {"a": d["w"], "w": d["w"] + d["a"]}, d)
        )(a)
        expected = {"w": X + X + 1, "a": X}
    elif transform == "jvp":
        result = tg.jvp(lambda d: {k: d[k] * 2 for k in d}, (a,), (b,))[1]
        expected = {"w": X * 6, "a": X * 4}
    else:
        result = tg.vmap(lambda d: {"w": d["w"] * 2, "a": d["a"]})(a)
        expected = {"w": X * 2, "a": X + 1}
    # A loop returns what its body returned, a choice what its branch 0, the one for False, does.
    assert list(result) == (["a", "w"] if transform in ("scan", "while_loop", "cond") else ["w", "a"])
    for k, x in expected.items():
        np.testing.assert_allclose(result[k], x)


def test_another_order_is_another_trace_and_each_is_found_again() -> None:
    f = tg.trace(lambda d: d["a"] - d["b"])
    for _ in range(3):
        f({"a": X, "b": X})
        f({"b": X, "a": X})
    assert f.cache_info().traces == 2


def test_structures_tell_orders_apart_and_leaves_do_not() -> None:
    a, b = {"w": 1, "b": {"z": 2, "y": 3}}, {"b": {"y": 3, "z": 2}, "w": 1}
    assert tg.tree.leaves(a) == tg.tree.leaves(b) == [3, 2, 1]
    assert tg.tree.structure(a) != tg.tree.structure(b)
    assert tg.tree.alike(tg.tree.structure(a), tg.tree.structure(b))
    assert not tg.tree.alike(tg.tree.structure(a), tg.tree.structure({"w": 1, "b": {"z": 2}}))
    assert str(tg.tree.map(lambda x: x, a)) == str(a)
    assert str(tg.tree.map(lambda x, y: x + y, a, b)) == "{'w': 2, 'b': {'z': 4, 'y': 6}}"
    assert str(tg.tree.structure(b)) == "{'b': {'y': *, 'z': *}, 'w': *}"


def test_keys_that_are_equal_and_no_others_are_found_on_the_fast_path() -> None:
    f = tg.trace(lambda d: d["one"] - d["two"])
    f({"one": X, "two": X + 1})
    before = f.cache_info()
    for _ in range(3):
        np.testing.assert_array_equal(f({"".join(["o", "ne"]): X + 2, "".join(["t", "wo"]): X}), 2.0 * np.ones(3))
    assert f.cache_info() == before
    for wrong in ({"one": X}, {"one": X, "three": X}, {}):
        with pytest.raises(KeyError):
            f(wrong)
    np.testing.assert_array_equal(f({"one": X + 2, "two": X, "three": X}), 2.0 * np.ones(3))
