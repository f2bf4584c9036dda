"""Functions of `torch.masked` against NumPy's masked arrays, eager and traced, and their derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import masked

RNG = np.random.default_rng(8)
X = RNG.standard_normal((2, 3, 4))
MASKS = {"elements": RNG.random((2, 3, 4)) < 0.6, "columns": np.array([True, False, True, True]), "none": None}
MASKS["elements"][0, 0] = False  # type: ignore[index]
MODES: dict[str, Any] = {"eager": lambda f: f, "traced": tg.trace}

# Name -> the function of a masked array and of an axis.
REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, k: a.sum(k).filled(0),
    "prod": lambda a, k: a.prod(k).filled(1),
    "amax": lambda a, k: a.max(k).filled(-np.inf),
    "amin": lambda a, k: a.min(k).filled(np.inf),
    "mean": lambda a, k: a.mean(k).filled(np.nan),
    "norm": lambda a, k: np.sqrt((a * a).sum(k).filled(0)),
    "logsumexp": lambda a, k: np.log(np.exp(a).sum(k).filled(0)),
    "var": lambda a, k: np.where(a.count(k) > 1, np.ma.filled(a.var(k, ddof=1), np.nan), np.nan),
    "std": lambda a, k: np.where(a.count(k) > 1, np.ma.filled(a.std(k, ddof=1), np.nan), np.nan),
    "argmax": lambda a, k: a.filled(-np.inf).argmax(k),
    "argmin": lambda a, k: a.filled(np.inf).argmin(k),
}
ALONG: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda a, k: np.cumsum(a.filled(0), k),
    "cumprod": lambda a, k: np.cumprod(a.filled(1), k),
    "softmax": lambda a, k: (np.exp(a) / np.exp(a).sum(k, keepdims=True)).filled(0),
    "softmin": lambda a, k: (np.exp(-a) / np.exp(-a).sum(k, keepdims=True)).filled(0),
    "log_softmax": lambda a, k: (a - np.log(np.exp(a).sum(k, keepdims=True))).filled(-np.inf),
}


def masked_array(mask: Any) -> Any:
    return np.ma.masked_array(X, np.zeros(X.shape, bool) if mask is None else ~np.broadcast_to(mask, X.shape))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_those_of_masked_arrays(name: str, mask: str, mode: str) -> None:
    chosen = MASKS[mask] if MASKS[mask] is None else tg.tensor(MASKS[mask])
    call = getattr(masked, name)
    for dim in (1, -1):
        options = {"dim": dim, "mask": chosen}
        result = MODES[mode](lambda x, options=options: call(x, **options))(tg.tensor(X))
        np.testing.assert_allclose(result, REDUCTIONS[name](masked_array(MASKS[mask]), dim), 1e-12, 1e-12)
    kept = call(tg.tensor(X), dim=1, keepdim=True, mask=chosen)
    np.testing.assert_array_equal(kept[:, 0], call(tg.tensor(X), dim=1, mask=chosen))
    whole = np.ma.masked_array(masked_array(MASKS[mask])).reshape(1, -1)
    np.testing.assert_allclose(call(tg.tensor(X), mask=chosen), REDUCTIONS[name](whole, 1)[0], 1e-12)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ALONG)
def test_functions_along_a_dimension_are_those_of_masked_arrays(name: str, mask: str, mode: str) -> None:
    chosen = MASKS[mask] if MASKS[mask] is None else tg.tensor(MASKS[mask])
    dim = 1 if mask == "elements" else 2
    result = MODES[mode](lambda x: getattr(masked, name)(x, dim, mask=chosen))(tg.tensor(X))
    expected = ALONG[name](masked_array(MASKS[mask]), dim)
    if "soft" in name and chosen is not None:
        empty = np.broadcast_to(~np.broadcast_to(MASKS[mask], X.shape).any(dim, keepdims=True), X.shape)  # type: ignore[arg-type]
        assert result.isnan().numpy()[empty].all()
        expected = np.where(empty, np.nan, expected)
    np.testing.assert_allclose(result, expected, 1e-12, 1e-12)


def test_elements_that_do_not_count_have_no_gradient() -> None:
    chosen = tg.tensor([True, False, True, True])
    x = tg.tensor(X, requires_grad=True)
    for name in ("sum", "prod", "mean", "norm", "var", "std", "logsumexp", "amax"):
        assert tg.autograd.gradcheck(lambda x, name=name: getattr(masked, name)(x, dim=-1, mask=chosen), (x,))
    for name in ALONG:
        keep = masked.normalize if name == "log_softmax" else getattr(masked, name)
        options = (2.0, 2) if name == "log_softmax" else (2,)
        assert tg.autograd.gradcheck(lambda x, f=keep, args=options: f(x, *args, mask=chosen), (x,))
    masked.sum(x, mask=chosen).backward()
    assert x.grad is not None
    assert x.grad[..., 1].abs().sum() == 0


def test_other_functions_and_dtypes() -> None:
    x, one = tg.tensor([3.0, 2.0, 4.0]), tg.tensor([True, False, True])
    assert masked.normalize(x, 2.0, 0, mask=one).tolist() == [0.6, 0.0, 0.8]
    assert masked.median(x, 0, mask=one) == 3
    assert masked.median(x, 0, mask=~one & False).isnan()
    assert masked.logaddexp(x, x, input_mask=one, other_mask=~one).tolist() == [3.0, 2.0, 4.0]
    assert masked.logaddexp(x, x, input_mask=one, other_mask=one)[1] == -np.inf
    n = x.int()
    assert (masked.sum(n, mask=one).dtype, masked.amax(n, mask=one).dtype) == (tg.int64, tg.int32)
    assert masked.amin(n, mask=one & False) == np.iinfo(np.int32).max
    assert masked.sum(n, dtype=tg.float32).dtype == tg.float32
    assert masked.var(x, 0, False, mask=one) == 0.25
    assert masked.var(x, 0, correction=2, mask=one) == np.inf
    assert masked.sum(tg.tensor([])) == 0
    with pytest.raises(RuntimeError, match="mean"):
        masked.mean(n)
