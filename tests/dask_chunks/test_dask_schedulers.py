"""`tg.dask` by Dask: the bits of one process, whoever computes; workers that die, and what cannot be sent to them."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.dask.map_reduce import chunk_of
from tracegrad.errors import ShapeError
from tracegrad.settings import settings

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

X = np.sin(np.arange(900.0)).reshape(300, 3)
Y = np.cos(np.arange(300.0))
PARAMS = {"w": np.array([0.3, -0.2, 0.5]), "b": np.float64(0.1)}
SIZES = (20, 80, 1, 29, *[17] * 10)  # two groups of the tree
SCALE = np.array(2.0)


def cut(x: Any) -> list[Any]:
    return np.split(x, np.cumsum(SIZES)[:-1])


def loss(p: Any, x: Any, y: Any) -> Any:
    return np.sum(np.tanh(x @ p["w"] + p["b"] - y) ** 2)


def both(fun: Any = loss, **options: Any) -> Any:
    return tg.dask.value_and_grad(fun, batched_argnums=(1, 2), **options)


def arrays() -> tuple[Any, Any]:
    return da.from_array(X, chunks=(SIZES, 3)), da.from_array(Y, chunks=(SIZES,))


def bits(found: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in tg.tree.leaves(found)]


def in_this_process(**options: Any) -> list[bytes]:
    return bits(both(**options)(PARAMS, cut(X), cut(Y)))


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", None])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_dask_arrays_have_the_bits_of_one_process_that_walks_their_chunks(scheduler: Any, reduction: str) -> None:
    result = both(scheduler=scheduler, reduction=reduction)(PARAMS, *arrays())
    assert bits(result) == in_this_process(reduction=reduction)


def test_delayed_partitions_and_arrays_go_together() -> None:
    delayed = [dask.delayed(np.asarray)(x) for x in cut(X)]
    assert bits(both()(PARAMS, delayed, arrays()[1])) == in_this_process()
    pairs = [dask.delayed(lambda x, y: {"x": x, "y": y})(x, y) for x, y in zip(delayed, cut(Y), strict=True)]
    result = tg.dask.value_and_grad(lambda p, d: loss(p, d["x"], d["y"]), batched_argnums=1)(PARAMS, pairs)
    assert bits(result) == in_this_process()


def test_what_dask_computes_from_arrays_can_be_chunks_of_unknown_length() -> None:
    x, y = arrays()
    chosen = y > 0.2
    mean = lambda p, x, y: loss(p, x, y) / y.size  # noqa: E731
    value, _ = both(mean, reduction="mean", scheduler="synchronous")(PARAMS, x[chosen], y[chosen])
    assert value == pytest.approx(mean(PARAMS, X[Y > 0.2], Y[Y > 0.2]))


def test_without_compute_the_result_is_delayed() -> None:
    value, derivatives = both(compute=False)(PARAMS, *arrays())
    assert bits(dask.compute(value, derivatives, scheduler="synchronous")) == in_this_process()
    derivatives = tg.dask.grad(loss, batched_argnums=(1, 2), compute=False)(PARAMS, *arrays())
    assert bits(derivatives.compute(scheduler="threads")) == in_this_process()[1:]


def test_kernels_run_on_one_thread_beside_other_chunks_and_only_then() -> None:
    seen: list[Any] = []

    def watched(x: Any) -> Any:
        return x

    before = settings.num_threads
    probe = tg.dask.grad(lambda w, x: np.sum(w * x), batched_argnums=1, scheduler="threads")
    changed = lambda: seen.append(settings.num_threads)  # noqa: E731
    settings.watch("num_threads", changed)
    try:
        with settings.override(num_threads=None):
            seen.clear()
            probe(1.0, [dask.delayed(watched)(x) for x in cut(X)])
            assert 1 in seen
            assert seen[-1] is None
            seen.clear()
            probe = tg.dask.grad(lambda w, x: np.sum(w * x), batched_argnums=1, scheduler="synchronous")
            probe(1.0, cut(X))
            assert seen == []
        with settings.override(num_threads=2):
            seen.clear()
            both(scheduler="threads")(PARAMS, *arrays())
            assert seen == []
    finally:
        type(settings).num_threads.watchers.remove(changed)
    assert settings.num_threads == before


def test_chunks_along_other_axes_and_other_lengths_are_refused() -> None:
    x, y = arrays()
    with pytest.raises(ShapeError, match=r"x has \(14, 3\) chunks .* axis 0 only; rechunk\(\{1: -1\}\)"):
        both()(PARAMS, x.rechunk({1: 1}), y)
    with pytest.raises(ShapeError, match="chunk 1 of x has 80 rows, and that of y has 81"):
        both()(PARAMS, x, y.rechunk({0: (20, 81, 1, 28, *SIZES[4:])}))
    with pytest.raises(ShapeError, match="x has 14 chunks, and y has 1"):
        both()(PARAMS, x, y.rechunk(-1))
    with pytest.raises(ShapeError, match="x has no axis"):
        both()(PARAMS, x.sum(), y)
    with pytest.raises(TypeError, match="p is Dask's; name it in batched_argnums"):
        both()({"w": x[0], "b": 0.0}, x, y)


def test_a_function_that_cannot_be_pickled_says_what_of_it_before_anything_is_sent() -> None:
    lock, asked = threading.Lock(), []

    def locked(p: Any, x: Any, y: Any) -> Any:
        return loss(p, x, y) if lock else None

    def outer(p: Any, x: Any, y: Any) -> Any:
        return locked(p, x, y)

    data = [dask.delayed(asked.append)(x) for x in cut(X)]
    with pytest.raises(
        TypeError, match=r"locked \(.*test_dask_schedulers.py:\d+\) cannot be sent .* lock, a lock, can"
    ):
        both(locked, scheduler="processes")(PARAMS, data, cut(Y))
    with pytest.raises(TypeError, match=r"lock, a lock, in locked cannot be pickled"):
        both(outer, scheduler="processes")(PARAMS, data, cut(Y))
    assert asked == []
    with pytest.warns(tg.PerformanceWarning, match="lock is a _thread.lock"):  # threads need no pickle
        result = both(locked, scheduler="threads")(PARAMS, *arrays())
    np.testing.assert_allclose(result[0], loss(PARAMS, X, Y))


# -- a cluster of two processes --------------------------------------------------------------------------------------
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:distributed")


@pytest.fixture(autouse=True, scope="module")
def _threads_end() -> Iterator[None]:
    yield
    pool = importlib.import_module("dask.threaded").default_pool
    if pool is not None:
        pool.shutdown()
        importlib.import_module("dask.threaded").default_pool = None


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    folder = str(tmp_path_factory.mktemp("cluster"))
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    options = {"env": {"PYTHONPATH": path}, "dashboard_address": ":0", "local_directory": folder}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=50, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_has_the_same_bits_again_and_again(client: Any) -> None:
    scaled = tg.trace(lambda p, x, y: SCALE * loss(p, x, y))  # cannot be imported, and captures an array
    for scale in (2.0, 3.0):
        SCALE[()] = scale
        wanted = bits(both(scaled)(PARAMS, cut(X), cut(Y)))
        assert bits(both(scaled)(PARAMS, *arrays())) == wanted
    futures = client.scatter(cut(X))
    assert bits(both()(PARAMS, futures, cut(Y))) == in_this_process()
    assert bits(both(scheduler=client)(PARAMS, cut(X), cut(Y))) == in_this_process()


def dies_once(x: Any, flag: str) -> Any:
    if flag and not os.path.exists(flag):
        Path(flag).touch()
        os._exit(1)
    return x


def test_a_worker_that_is_killed_costs_its_chunks_and_not_the_result(client: Any, tmp_path: Path) -> None:
    flag = str(tmp_path / "died")
    chunks = [dask.delayed(dies_once)(x, flag if i == 5 else "") for i, x in enumerate(cut(X))]
    assert bits(both()(PARAMS, chunks, cut(Y))) == in_this_process()
    assert os.path.exists(flag)


def always_dies(p: Any, x: Any, y: Any) -> Any:
    os._exit(1)


def test_a_chunk_at_which_workers_die_for_good_is_named(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    died = r"value_and_grad of always_dies: the workers that computed chunk 0 \(of 1, from 0\) died"
    with pytest.raises(RuntimeError, match=died):
        both(always_dies, scheduler=client)(PARAMS, [X], [Y])


def test_a_task_is_told_by_the_chunk_that_it_is_for() -> None:
    data = dask.delayed(len)("")
    rows = [(X, Y), (X, data)]
    assert chunk_of("chunk-1-abc", rows, "chunk-{}-abc") == "chunk 1 (of 2, from 0)"
    assert chunk_of(data.key, rows, "chunk-{}-abc") == f"the data of chunk 1 (of 2, from 0) ({data.key})"
    assert chunk_of("read", rows, "chunk-{}-abc") == "what the 2 chunks are made of (read)"


def test_an_error_in_a_worker_says_at_which_chunk(client: Any) -> None:
    chunks = [x[:, :2] if i == 2 else x for i, x in enumerate(cut(X))]
    with pytest.raises(ShapeError, match="matmul") as caught:
        both(scheduler=client)(PARAMS, chunks, cut(Y))
    assert any("in chunk 2 (of 14, from 0)" in note for note in caught.value.__notes__)
