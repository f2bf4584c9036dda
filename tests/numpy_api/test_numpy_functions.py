"""Every implemented NumPy function gives on Tensors what NumPy gives on ndarrays: value, shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from numpy_calls import IN_PLACE, ROUGH, SMOOTH
from numpy_expressions import ARRAYS, CREATION, EXPRESSIONS, SCOPE

import tracegrad as tg
import tracegrad.numpy_api as numpy_api
from tracegrad.numpy_api import creation
from tracegrad.scipy_api import special
from tracegrad.torch.tape import TapeArray


def _same(ours: object, theirs: object, where: str) -> None:
    if isinstance(theirs, tuple | list):
        assert type(ours) is type(theirs), where
        assert len(ours) == len(theirs), where
        for i, (x, y) in enumerate(zip(ours, theirs)):
            _same(x, y, f"{where}[{i}]")
    elif isinstance(theirs, np.ndarray | np.generic):
        assert isinstance(ours, TapeArray), f"{where} is a {type(ours).__name__}"
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.array, theirs, rtol=2e-6 if theirs.dtype == np.float32 else 4e-15, atol=1e-15)
        zero = theirs == 0
        # Which of equal zeros comes first is up to the instructions that NumPy sorts by.
        if theirs.dtype.kind == "f" and not any(name in where for name in ("prod", "sort", "unique")):
            np.testing.assert_array_equal(np.signbit(ours.array[zero]), np.signbit(np.asarray(theirs)[zero]))
    else:
        if isinstance(ours, TapeArray):
            ours = ours.item()
        assert ours == theirs, where


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # since NumPy 2.5
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_function_of_tensors_is_the_function_of_ndarrays(expression: str) -> None:
    theirs = eval(expression, SCOPE | ARRAYS)
    ours = eval(expression, SCOPE | {name: TapeArray(x) for name, x in ARRAYS.items()})
    _same(ours, theirs, expression)


class _Traced:
    """NumPy as traced code sees it: array creation goes to the replacements."""

    def __getattr__(self, name: str) -> object:
        return creation.REPLACEMENTS.get(name) or getattr(np, name)


@pytest.mark.parametrize("expression", [e.strip() for e in CREATION.replace("\n", " | ").split(" | ") if e.strip()])
def test_array_creation_is_numpys(expression: str) -> None:
    theirs = eval(expression, SCOPE | ARRAYS)
    tensors = {name: TapeArray(x) for name, x in ARRAYS.items()}
    ours = eval(expression, SCOPE | tensors | {"np": _Traced()})
    flat = [(ours, theirs)] if not isinstance(theirs, tuple) else list(zip(ours, theirs))
    for x, y in flat:
        plain = x.array if isinstance(x, TapeArray) else np.asarray(x)
        assert plain.dtype == np.asarray(y).dtype
        np.testing.assert_allclose(plain, y, rtol=1e-15, strict=isinstance(y, np.ndarray))


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_special_functions_that_scipy_computes_in_python(name: str, axis: object) -> None:
    x = ARRAYS["a"]
    ours, theirs = getattr(special, name)(TapeArray(x), axis=axis), getattr(sp, name)(x, axis=axis)
    np.testing.assert_allclose(ours.array, theirs, rtol=1e-14)


def test_weighted_logsumexp() -> None:
    x, w = ARRAYS["a"], ARRAYS["b"]
    ours = special.logsumexp(TapeArray(x), axis=1, b=w, keepdims=True)
    np.testing.assert_allclose(ours.array, sp.logsumexp(x, axis=1, b=w, keepdims=True), rtol=1e-14)


def test_every_supported_name_exists_where_it_says() -> None:
    names = numpy_api.supported()
    assert len(names) == len(set(names))
    for name in names:
        scope = {"np": np, "scipy": __import__("scipy")}
        assert callable(eval(name, scope)), name


def test_every_supported_function_is_exercised_by_the_table() -> None:
    text = f"{' '.join(EXPRESSIONS)} {CREATION} {SMOOTH} {ROUGH} {IN_PLACE}".replace("sp.", "scipy.special.")
    known = {"np.can_cast", "np.isscalar", "np.lib.stride_tricks.as_strided"}
    twins = {"np.conj", "np.acos", "np.subtract.at", "np.add.at", "np.empty_like", "np.empty"}
    twins |= {"np.asfortranarray", "np.isfortran", "np.may_share_memory", "np.require", "np.shares_memory"}  # layouts
    missing = []
    for name in numpy_api.supported():
        function = eval(name, {"np": np, "scipy": __import__("scipy")})
        aliases = [n for n in dir(np) if getattr(np, n) is function] or [name.rpartition(".")[2]]
        used = name + "(" in text or any(f"np.{n}(" in text for n in aliases)
        elsewhere = name in known | twins or ".outer" in name or name.startswith("np.fft.")  # see test_fourier.py
        if not used and not elsewhere:
            missing.append(name)
    assert missing == []


def test_quotient_and_remainder_are_results_of_one_op() -> None:
    x, y = np.array([7.0, -7.0, 5.5]), np.array([2.0, 2.0, -1.5])
    t, u = tg.tensor(x, requires_grad=True), tg.tensor(y, requires_grad=True)
    for quotient, rest in (divmod(t, u), np.divmod(t, y), divmod(x, u), divmod(7.0, u), divmod(t, 2)):
        assert quotient.grad_fn is rest.grad_fn
        assert type(rest.grad_fn).__name__ == "DivmodBackward0"
    quotient, rest = divmod(t, u)
    (rest * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    np.testing.assert_array_equal(t.grad.numpy(), [1.0, 10.0, 100.0])
    np.testing.assert_array_equal(u.grad.numpy(), -np.floor(x / y) * [1.0, 10.0, 100.0])
    graph = tg.trace(divmod).graph(x, y)
    assert [node.name for node in graph.nodes if node.result_index is None] == ["divmod"]


@pytest.mark.parametrize(
    "output",
    [
        lambda s: np.pad(s, 1),
        lambda s: np.pad(s, 1, mode="reflect"),
        lambda s: np.block(s),
        lambda s: np.piecewise(s, [s > 0], [np.sin, np.cos]),
    ],
)
def test_what_numpy_gives_as_an_array_without_axes_can_be_written_to_through_a_view(output: Any) -> None:
    def f(x: Any) -> Any:
        y = output(np.sum(x) * 0.5)
        z = np.ravel(y)
        z *= 3.0
        return y, z

    x = np.arange(3.0)
    with tg.settings.override(first_call="replay"):
        for result, wanted in zip(tg.trace(f)(x), f(x), strict=True):
            np.testing.assert_array_equal(result, wanted)
            assert type(result) is type(wanted)
