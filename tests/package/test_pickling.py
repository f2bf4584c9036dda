"""Traced functions and derivatives in other processes: by reference, and by cloudpickle with what they captured."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import tracegrad as tg
from tracegrad.traced_function import Traced

X = np.array([1.0, 2.0, 3.0])


@tg.trace
def loss(x: Any) -> Any:
    return np.sum(x**3)


def plain(x: Any) -> Any:
    return np.sum(np.sin(x))


class Model:
    def __init__(self, k: float):
        self.k = k

    @tg.trace
    def scaled(self, x: Any) -> Any:
        return x * self.k


@tg.custom_vjp
def rounded(x: Any) -> Any:
    return np.round(x)


rounded.defvjp(lambda x: (np.round(x), None), lambda _, ct: (2.0 * ct,))

MADE: dict[str, tuple[Any, Any]] = {
    "trace": (tg.trace(plain), np.sum(np.sin(X))),
    "grad": (tg.grad(loss), 3.0 * X**2),
    "grad of grad": (tg.jacrev(tg.grad(loss)), np.diag(6.0 * X)),
    "value_and_grad": (tg.value_and_grad(plain), (np.sum(np.sin(X)), np.cos(X))),
    "jacfwd": (tg.jacfwd(plain, chunk_size=2), np.cos(X)),
    "hessian": (tg.hessian(plain), np.diag(-np.sin(X))),
    "vmap": (tg.vmap(plain), np.sin(X)),
}


def same(found: Any, wanted: Any) -> None:
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b)


@pytest.mark.parametrize("name", MADE)
def test_what_transforms_make_comes_back(name: str) -> None:
    f, wanted = MADE[name]
    for result in (pickle.loads(pickle.dumps(f)), cloudpickle.loads(cloudpickle.dumps(f))):
        assert isinstance(result, Traced)
        same(result(X), wanted)
        same(pickle.loads(pickle.dumps(result))(X), wanted)


def test_what_can_be_imported_is_pickled_by_reference() -> None:
    for f in (loss, rounded, tg.grad(loss), tg.hessian(plain), tg.vmap(plain), Model.scaled):
        assert pickle.loads(pickle.dumps(f)) is f


def test_a_method_that_comes_back_keeps_its_instance() -> None:
    model = Model(2.0)
    again = pickle.loads(pickle.dumps(model.scaled))
    model.k = 3.0
    for _ in range(2):
        same(again(X), 2.0 * X)
    same(copy.deepcopy(model.scaled)(X), 3.0 * X)


def test_options_come_along() -> None:
    result = tg.trace(plain, tiered=False, optimize=1, static_argnames="x")
    again = pickle.loads(pickle.dumps(result))
    assert again is not result
    assert again.options == {"tiered": False, "optimize": 1}
    assert again(2.0) == np.sin(2.0)
    assert tg.grad(plain, tiered=True) is pickle.loads(pickle.dumps(tg.grad(plain, tiered=True)))


def test_functions_that_cannot_be_imported_need_cloudpickle_which_takes_along_what_they_captured() -> None:
    weights, scale = np.arange(3.0), tg.trace(lambda x: 2.0 * x)
    total = tg.trace(lambda x: np.sum(weights * scale(x)))
    derivative = tg.grad(total)
    for f, wanted in ((total, 16.0), (derivative, 2.0 * weights)):
        with pytest.raises((pickle.PicklingError, AttributeError), match="<lambda>"):
            pickle.dumps(f)
        same(f(X), wanted)  # by now the functions have attributes of ours
        sent = cloudpickle.dumps(f)
        assert len(sent) < 10_000
        same(cloudpickle.loads(sent)(X), wanted)


def test_rules_of_the_users_come_along() -> None:
    local = tg.custom_jvp(lambda x: x**2)
    local.defjvp(lambda primals, tangents: (primals[0] ** 2, 5.0 * tangents[0]))
    again = cloudpickle.loads(cloudpickle.dumps(local))
    assert tg.grad(again)(3.0) == 5.0
    assert tg.grad(pickle.loads(pickle.dumps(rounded)))(3.2) == 2.0


def test_what_is_not_known_to_be_made_by_a_transform_says_so() -> None:
    with pytest.raises(pickle.PicklingError, match="pickle the function that it was made of"):
        pickle.dumps(tg.trace(plain)._plain(plain, body=lambda x: x))


def test_copies_are_the_function_and_of_methods_that_of_the_copied_instance() -> None:
    for f in (loss, tg.grad(loss), rounded):
        assert copy.deepcopy(f) is f
        assert copy.copy(f) is f
    model = Model(2.0)
    part = {"step": model.scaled, "of": model, "slope": tg.grad(loss)}
    copied = copy.deepcopy(part)
    copied["of"].k = 7.0
    same(copied["step"](X), 7.0 * X)
    same(model.scaled(X), 2.0 * X)
    assert copied["slope"] is part["slope"]


WAYS = [x for x in ("spawn", "forkserver", "fork") if x in multiprocessing.get_all_start_methods()]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
def test_other_processes_compute_what_this_one_does(way: str) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context(way)) as pool:
        for f in (loss, tg.grad(loss), tg.hessian(plain)):
            same(pool.submit(f, X).result(), f(X))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("way", WAYS)
def test_a_pool_maps_a_derivative(way: str) -> None:
    with multiprocessing.get_context(way).Pool(1) as pool:
        same(tuple(pool.map(tg.grad(loss), [X, 2.0 * X])), (3.0 * X**2, 12.0 * X**2))


def test_joblib_carries_functions_that_cannot_be_imported() -> None:
    joblib = pytest.importorskip("joblib")
    weights = np.arange(3.0)
    derivative = tg.grad(lambda x: np.sum(weights * x**2))
    try:
        result = joblib.Parallel(n_jobs=2)(joblib.delayed(derivative)(k * X) for k in (1.0, 2.0))
    finally:
        joblib.externals.loky.get_reusable_executor().shutdown(wait=True)
    same(tuple(result), (2.0 * weights * X, 4.0 * weights * X))


PROGRAM = """
import sys, cloudpickle, numpy as np, tracegrad as tg

@tg.trace
def loss(x):
    return np.sum(x**2) * scale

@tg.custom_vjp
def doubled(x):
    return 2.0 * x

doubled.defvjp(lambda x: (2.0 * x, None), lambda _, ct: (10.0 * ct,))
scale = 3.0
sent = {"loss": loss, "slope": tg.grad(loss), "rule": tg.grad(lambda x: np.sum(doubled(x)))}
print(*(float(np.sum(f(np.ones(3)))) for f in sent.values()))
sys.stdout.flush()
open(sys.argv[1], "wb").write(cloudpickle.dumps(sent))
"""


def test_cloudpickle_takes_along_functions_of_main_which_no_other_process_has(tmp_path: Path) -> None:
    program, sent = tmp_path / "program.py", tmp_path / "sent.pickle"
    program.write_text(PROGRAM)
    told = subprocess.run([sys.executable, program, sent], capture_output=True, text=True, check=True).stdout
    result = pickle.loads(sent.read_bytes())
    assert " ".join(str(float(np.sum(f(np.ones(3))))) for f in result.values()) == told.strip() == "9.0 18.0 30.0"


@pytest.mark.parametrize("view", ["x[1:]", "x[::2]", "x.reshape(2, 2).T", "x.flip(0)", "x[2]", "x[1:][1:]", "x"])
def test_deep_copies_share_the_memory_that_the_originals_share(view: str) -> None:
    x = tg.arange(4.0)
    y = eval(view)
    shared = np.may_share_memory(x.numpy(), y.numpy())
    for pair in ([x, y], [y, x][::-1], {"a": x, "b": y}.values()):
        a, b = copy.deepcopy(list(pair))
        np.testing.assert_array_equal(a, x)
        np.testing.assert_array_equal(b, y)
        assert b.stride() == y.stride()
        a.mul_(2.0)
        np.testing.assert_array_equal(b, y * (2.0 if shared else 1.0))
    np.testing.assert_array_equal(x, [0.0, 1.0, 2.0, 3.0])


def test_a_deep_copy_shares_memory_with_the_copy_of_the_ndarray() -> None:
    array = np.arange(3.0)
    x, other = copy.deepcopy((tg.from_numpy(array), array))
    other[0] = 5.0
    assert x.tolist() == [5.0, 1.0, 2.0]
