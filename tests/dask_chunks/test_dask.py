"""`tg.dask` over chunks in this process: what is added, in which order, and what is refused. Needs no Dask."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from paths import ROOT

import tracegrad as tg
from tracegrad.dask.tree_reduction import GROUP, along_tree
from tracegrad.errors import DTypeError, ShapeError, TraceError
from tracegrad.settings import settings

X = np.sin(np.arange(300.0)).reshape(100, 3)
Y = np.cos(np.arange(100.0))
PARAMS = {"w": np.array([0.3, -0.2, 0.5]), "b": np.float64(0.1)}
CUTS = (0, 7, 8, 40, 55, 56, 80, 99, 100)


def cut(x: Any, cuts: Any = CUTS) -> list[Any]:
    return [x[a:b] for a, b in itertools.pairwise(cuts)]


def total(p: Any, x: Any, y: Any) -> Any:
    return np.sum(np.tanh(x @ p["w"] + p["b"] - y) ** 2)


def mean(p: Any, x: Any, y: Any) -> Any:
    return np.mean(np.tanh(x @ p["w"] + p["b"] - y) ** 2) + 0.5 * np.sum(p["w"] ** 2)


def close(found: Any, wanted: Any) -> None:
    for a, b in zip(tg.tree.leaves(found), tg.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def bits(found: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in tg.tree.leaves(found)]


@pytest.mark.parametrize(("loss", "reduction"), [(total, "sum"), (mean, "mean")])
def test_the_chunks_give_what_the_whole_does(loss: Any, reduction: str) -> None:
    whole = tg.value_and_grad(loss)(PARAMS, X, Y)
    result = tg.dask.value_and_grad(loss, batched_argnums=(1, 2), reduction=reduction)(PARAMS, cut(X), cut(Y))
    close(result, whole)
    assert tg.tree.structure(result) == tg.tree.structure(whole)
    derivatives = tg.dask.grad(loss, batched_argnums=(1, 2), reduction=reduction)(PARAMS, cut(X), cut(Y))
    assert bits(derivatives) == bits(result[1])


def test_the_gradient_is_that_of_finite_differences() -> None:
    both = tg.dask.value_and_grad(mean, batched_argnums=(1, 2), reduction="mean")
    _, derivatives = both(PARAMS, cut(X), cut(Y))
    for i in range(3):
        low, high = (both(PARAMS | {"w": PARAMS["w"] + h * np.eye(3)[i]}, cut(X), cut(Y))[0] for h in (-1e-6, 1e-6))
        assert derivatives["w"][i] == pytest.approx((high - low) / 2e-6, rel=1e-7)


def test_neighbours_are_added_in_groups_whatever_their_number() -> None:
    def shape(count: int) -> str:
        return along_tree(count, str, lambda group: f"({' '.join(group)})")

    assert shape(1) == "0"
    assert shape(3) == "(0 1 2)"
    assert shape(GROUP + 1) == "((0 1 2 3 4 5 6 7) 8)"
    # What is added does not depend on how many follow.
    assert shape(64).startswith("((0 1 2 3 4 5 6 7) (8 9 10 11 12 13 14 15) (16")
    assert shape(65) == f"({shape(64)} 64)"


def test_few_partial_sums_are_there_at_a_time() -> None:
    alive = most = 0

    def leaf(i: int) -> int:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        return 1

    def together(group: list[int]) -> int:
        nonlocal alive
        alive -= len(group) - 1
        return sum(group)

    assert along_tree(1000, leaf, together) == 1000
    assert most <= 4 * GROUP


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_dtypes_stay_and_means_of_short_numbers_do_not_overflow(dtype: Any) -> None:
    x = np.full(4000, 100, dtype)
    value, derivative = tg.dask.value_and_grad(lambda w, x: np.mean(w * x), batched_argnums=1, reduction="mean")(
        dtype(2), cut(x, (0, 1000, 2500, 4000))
    )
    assert (value.dtype, derivative.dtype) == (dtype, dtype)
    assert (float(value), float(derivative)) == pytest.approx((200.0, 100.0), rel=4 * float(np.finfo(dtype).eps))


def test_chunks_without_rows_do_not_count_in_a_mean() -> None:
    both = tg.dask.value_and_grad(mean, batched_argnums=(1, 2), reduction="mean")
    cuts = (0, 0, 30, 30, 100, 100)
    assert bits(both(PARAMS, cut(X, cuts), cut(Y, cuts))) == bits(
        both(PARAMS, cut(X, (0, 30, 100)), cut(Y, (0, 30, 100)))
    )
    with pytest.raises(ValueError, match="the chunks have no rows"):
        both(PARAMS, [X[:0]], [Y[:0]])


def test_chunks_may_be_containers_and_containers_of_chunks() -> None:
    whole = tg.value_and_grad(total)(PARAMS, X, Y)

    class Data(NamedTuple):
        x: Any
        y: Any

    together = [Data(x, y) for x, y in zip(cut(X), cut(Y), strict=True)]
    for data in (together, Data(cut(X), cut(Y)), {"x": cut(X), "y": cut(Y)}):

        def loss(p: Any, d: Any) -> Any:
            return total(p, d["x"], d["y"]) if isinstance(d, dict) else total(p, d.x, d.y)

        close(tg.dask.value_and_grad(loss, batched_argnums=1)(PARAMS, data), whole)


def test_arguments_by_keyword_and_argnums_from_behind_are_found() -> None:
    def loss(x: Any, w: Any, *, power: Any) -> Any:
        return np.sum((x @ w) ** power)

    both = tg.dask.value_and_grad(loss, argnums=-1, batched_argnums=-2)
    whole = tg.value_and_grad(loss, argnums=1)(X, PARAMS["w"], power=2)
    close(both(cut(X), PARAMS["w"], power=2), whole)
    close(both(w=PARAMS["w"], x=cut(X), power=2), whole)
    several = tg.dask.value_and_grad(lambda a, x, b: np.sum(a * x * b), argnums=(2, 0), batched_argnums=1)
    assert several(2.0, [np.ones(3), np.ones(2)], 3.0) == (30.0, (10.0, 15.0))


def test_aux_is_a_list_of_what_the_chunks_gave() -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(x @ w), {"rows": x.shape[0], "first": x[0]}

    (value, aux), derivative = tg.dask.value_and_grad(loss, has_aux=True, batched_argnums=1)(PARAMS["w"], cut(X))
    close(value, np.sum(X @ PARAMS["w"]))
    close(derivative, np.sum(X, axis=0))
    assert [a["rows"] for a in aux] == np.diff(CUTS).tolist()
    assert bits([a["first"] for a in aux]) == bits([X[i] for i in CUTS[:-1]])
    assert len(tg.dask.grad(loss, has_aux=True, batched_argnums=1)(PARAMS["w"], cut(X))[1]) == 8


def test_bits_depend_neither_on_how_chunks_lie_nor_on_threads_nor_on_earlier_calls() -> None:
    x = np.sin(np.arange(400_000.0)).reshape(2000, 200)
    y, w = np.cos(np.arange(2000.0)), {"w": np.full(200, 0.01), "b": np.float64(0.0)}
    cuts = (0, 700, 1400, 2000)
    both = tg.dask.value_and_grad(total, batched_argnums=(1, 2))
    wanted = bits(both(w, cut(x, cuts), cut(y, cuts)))
    columns = [np.asfortranarray(c) for c in cut(x, cuts)]
    strided = [np.repeat(c, 2, axis=1)[:, ::2] for c in cut(x, cuts)]
    assert bits(both(w, columns, cut(y, cuts))) == bits(both(w, strided, cut(y, cuts))) == wanted
    with settings.override(num_threads=1):
        assert bits(both(w, cut(x, cuts), cut(y, cuts))) == wanted
    again = tg.dask.value_and_grad(total, batched_argnums=(1, 2))
    with settings.override(first_call="replay"):  # by which NumPy answers first calls, and rounds as it does
        assert bits(again(w, cut(x, cuts), cut(y, cuts))) == wanted


def test_chunks_that_are_read_only_stay_as_they_are() -> None:
    chunks = [x.copy() for x in cut(X)]
    for x in chunks:
        x.flags.writeable = False
    whole = tg.value_and_grad(lambda w, x: np.sum((x @ w) ** 2))(PARAMS["w"], X)
    close(tg.dask.value_and_grad(lambda w, x: np.sum((x @ w) ** 2), batched_argnums=1)(PARAMS["w"], chunks), whole)


def test_a_second_call_compiles_nothing_and_reads_again_what_the_function_captured() -> None:
    scale = np.array(2.0)
    both = tg.dask.value_and_grad(lambda w, x: scale * np.sum(x @ w), batched_argnums=1)
    first = both(PARAMS["w"], cut(X))[0]
    scale[()] = 6.0
    assert both(PARAMS["w"], cut(X))[0] == pytest.approx(3.0 * first)


def test_what_it_gives_has_the_name_and_the_parameters_of_the_function() -> None:
    both = tg.dask.value_and_grad(tg.trace(total), batched_argnums=(1, 2))
    assert both.__name__ == "total"
    close(both(PARAMS, cut(X), cut(Y)), tg.value_and_grad(total)(PARAMS, X, Y))


# -- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batched_argnums": "x"}, TypeError, "batched_argnums must be an int or a tuple of ints, got 'x'"),
        ({"batched_argnums": ()}, TypeError, "batched_argnums must be an int or a tuple of ints"),
        ({"batched_argnums": 1, "argnums": 1.0}, TypeError, "argnums must be an int"),
        ({"batched_argnums": 1, "reduction": "max"}, ValueError, "reduction must be 'sum' or 'mean', got 'max'"),
        ({"batched_argnums": 1, "optimize": 7}, ValueError, "optimize must be 1, 2, 3 or None"),
    ],
)
def test_options_that_there_are_not_are_refused(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        tg.dask.value_and_grad(total, **options)


@pytest.mark.parametrize(
    ("batched", "args", "error", "message"),
    [
        ((1, 2), (PARAMS, cut(X), cut(Y)[:5]), ShapeError, "x has 8 chunks, and y has 5"),
        ((1, 2), (PARAMS, X, cut(Y)), TypeError, r"x must be a Dask array or a list .* got a ndarray; .*from_array"),
        ((1, 2), (PARAMS, {"a": (X,)}, cut(Y)), TypeError, r"x\['a'\]\[0\] must be a Dask array"),
        ((1, 2), (PARAMS, [], []), ValueError, "x has no chunks"),
        ((0, 1), ([PARAMS], cut(X), cut(Y)), ValueError, "argnums names p, which is batched"),
        ((1, 3), (PARAMS, cut(X), cut(Y)), ValueError, "batched_argnums names argument 3, but there are 3"),
    ],
)
def test_arguments_that_do_not_fit_are_named(batched: Any, args: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        tg.dask.value_and_grad(total, batched_argnums=batched)(*args)
    assert "tracegrad.dask.value_and_grad of total" in str(caught.value)
    assert "test_dask.py" in str(caught.value)


def test_an_error_says_at_which_chunk() -> None:
    with pytest.raises(ShapeError, match="matmul") as caught:
        tg.dask.value_and_grad(total, batched_argnums=(1, 2))(PARAMS, [X, X[:, :2]], [Y, Y])
    assert "in chunk 1 (of 2, from 0), tracegrad.dask.value_and_grad of total" in caught.value.__notes__
    with pytest.raises(TypeError, match="the output must be a scalar"):
        tg.dask.grad(lambda w, x: x @ w, batched_argnums=1)(PARAMS["w"], cut(X))
    with pytest.raises(DTypeError, match="real- or complex-valued inputs"):
        tg.dask.grad(lambda w, x: np.sum(w * x), batched_argnums=1)(3, cut(X))


def test_a_mean_needs_rows_to_count() -> None:
    both = tg.dask.value_and_grad(lambda w, x: w * np.mean(x), batched_argnums=1, reduction="mean")
    with pytest.raises(TypeError, match="a mean counts the rows of chunks, and x has none: it is a float"):
        both(1.0, [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"one number of rows, got x\[0\] 2, x\[1\] 3"):
        tg.dask.grad(lambda w, x: w * np.mean(x[0]), batched_argnums=1, reduction="mean")(
            1.0, [(np.ones(2), np.ones(3))]
        )


def test_a_traced_function_cannot_wait_for_a_cluster() -> None:
    both = tg.dask.value_and_grad(lambda w, x: np.sum(x @ w), batched_argnums=1)
    with pytest.raises(TraceError, match="cannot be called in a traced function"):
        tg.trace(lambda w: both(w, cut(X))[0])(PARAMS["w"])


def test_what_needs_dask_says_so_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    for options in ({"scheduler": "threads"}, {"compute": False}):
        both: Any = tg.dask.value_and_grad(total, batched_argnums=(1, 2), **options)  # type: ignore[arg-type]
        with pytest.raises(ImportError, match=r"pip install tracegrad\[dask\]"):
            both(PARAMS, cut(X), cut(Y))


# -- processes that share a disk cache -------------------------------------------------------------------------------
PROGRAM = """
import numpy as np, tracegrad as tg
def loss(p, x):
    return np.sum(np.tanh(x @ p) ** 2)
x = np.sin(np.arange(500.0)).reshape(100, 5)
value, slope = tg.dask.value_and_grad(loss, batched_argnums=1)(np.ones(5), [x[:30], x[30:60], x[60:]])
print(value.hex(), slope.tobytes().hex())
"""


def test_processes_that_start_at_once_on_an_empty_cache_fill_it_and_the_next_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TRACEGRAD_CACHE_DIR": str(tmp_path / "cache"), "TRACEGRAD_LOG": "compile"}
    environment |= {"TRACEGRAD_CACHE_TRACES": "1", "TRACEGRAD_FIRST_CALL": "replay", "TRACEGRAD_VERIFY": "0"}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    root = ROOT

    def start() -> Any:
        return subprocess.Popen(
            command, env=environment, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    at_once = [start() for _ in range(2)]
    told = [each.communicate(timeout=120) for each in at_once]
    last, log = start().communicate(timeout=120)
    assert {result for result, _ in told} == {last}
    assert len(last.split()) == 2
    assert any("compiled in" in said for _, said in told)  # whichever came first
    assert "compiled in" not in log
    assert log.count("from the disk cache") == 2
