"""Dtypes of functions on Tensors, as PyTorch has them: where it promotes nothing, and what is no float64 there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.nn import functional as F

_SPACE = {
    "F": F,
    "L": tg.linalg,
    "tg": tg,
    "x": tg.full((2, 2), 0.25, dtype=tg.float32),
    "y": tg.full((2, 2), 0.5, dtype=tg.float64),
    "v": tg.ones(2, dtype=tg.float64),
    "i": tg.tensor([0, 1]),
    "ij": tg.tensor([[0, 1], [1, 0]]),
    "b": tg.ones(1, 2, 2, dtype=tg.float32),
    "d": tg.ones(1, 2, 2, dtype=tg.float64),
    "c": tg.ones(3, dtype=tg.float32),
    "e": tg.ones(3, dtype=tg.float64),
    "image": tg.ones(1, 1, 2, 2, dtype=tg.float32),
    "n": tg.tensor([-1, 3, 9]),
    "small": tg.tensor([200, 100], dtype=tg.uint8),
    "short": tg.tensor([3, 4], dtype=tg.int32),
}


def _value(call: str) -> Any:
    return eval(call, dict(_SPACE))


# What PyTorch says, but for the names of dtypes in it.
_REFUSED = {
    "tg.lerp(x, y, 0.5)": "expected dtype float for `end` but got dtype double",
    "tg.lerp(x, x, y)": "expected dtype float for `weight` but got dtype double",
    "tg.isclose(x, y)": "Float did not match Double",
    "tg.allclose(x, y)": "Float did not match Double",
    "F.prelu(x, v)": "prelu: Type promoting not supported. Got Float and Double",
    "F.nll_loss(x, i, v)": "expected scalar type Float but found Double",
    "F.cross_entropy(x, i, v)": "expected scalar type Float but found Double",
    "F.binary_cross_entropy(x, y)": "Found dtype Double but expected Float",
    "F.linear(x, x, v)": "self and mat2 must have the same dtype, but got Double and Float",
    "tg.addmm(y, x, x)": "self and mat2 must have the same dtype, but got Double and Float",
    "tg.addmv(v, x, x[0])": "addmv input tensors must have the same dtype, but got Double, Float, and Float",
    "tg.baddbmm(d, b, b)": "Input dtypes must be the same, got: input double, batch1: float, batch2: float",
    "F.layer_norm(x, (2,), v)": "mixed dtype",
    "F.batch_norm(x, None, None, v, v, True)": "mixed dtype",
    "F.conv2d(image, image, v[:1])": "Input type .float. and bias type .double. should be the same",
    "F.scaled_dot_product_attention(x, y, y)": "Expected query, key, and value to have the same dtype",
    "tg.scatter(x, 0, ij, y)": "Expected self.dtype to be equal to src.dtype",
    "tg.scatter_add(x, 0, ij, y)": "Expected self.dtype to be equal to src.dtype",
    "tg.scatter_reduce(x, 0, ij, y, 'amax')": "Expected self.dtype to be equal to src.dtype",
    "tg.index_add(x, 0, i, y)": "self .Float. and source .Double. must have the same scalar type",
    "tg.index_reduce(x, 0, i, y, 'prod')": "self .Float. and source .Double. must have the same scalar type",
    "tg.index_copy(x, 0, i, y)": "self and source expected to have the same dtype",
    "tg.index_put(x, (i,), y)": "Index put requires the source and destination dtypes match",
    "tg.masked_scatter(x, x > 0, y)": "expected self and source to have same dtypes",
    "tg.quantile(x, v)": "q tensor must be same dtype as the input tensor",
    "tg.cdist(x, y)": "expected scalar type Float but found Double",
    "tg.meshgrid(x[0], v)": "meshgrid expects all tensors to have the same dtype",
    "L.solve(x, y)": "found A of type Float and B of type Double instead",
    "L.lstsq(x, y)": "Expected input and other to have the same dtype",
    "L.vecdot(x, y)": "found x of type Float and y of type Double instead",
    "L.multi_dot([x, x, y])": "tensor 0 is float and tensor 2 double",
    "L.cross(c, e)": "expected scalar type Float but found Double",
    "tg.cross(c, e)": "expected scalar type Float but found Double",
    "tg.cholesky_solve(x, y)": "found b of type Float and A of type Double instead",
}


@pytest.mark.parametrize("call", _REFUSED)
def test_tensors_of_two_dtypes_are_an_error_where_pytorch_promotes_none(call: str) -> None:
    with pytest.raises(RuntimeError, match=_REFUSED[call]):
        _value(call)


_TAKEN = {
    "tg.lerp(x, x, v[0])": "float32",
    "tg.index_put(x, (x > 0,), v[0])": "float32",
    "F.binary_cross_entropy(x, x, y)": "float32",
    "F.huber_loss(x, y)": "float32",
    "F.huber_loss(y, x)": "float64",
    "F.binary_cross_entropy_with_logits(y, x)": "float32",
    "F.rms_norm(x, (2,), v)": "float32",
    "tg.quantile(x, 0.3)": "float32",
    "tg.nanquantile(x[0, 0], 0.3, 0)": "float32",
    "tg.cov(x)": "float32",
    "tg.corrcoef(x)": "float32",
    "tg.xlogy(x, 2.0)": "float32",
    "tg.xlogy(2.0, x)": "float32",
    "tg.special.xlog1py(x, 2.0)": "float32",
    "tg.ldexp(x, ij)": "float32",
    "F.conv2d(image.long(), image.long(), padding=1)": "int64",
    "F.relu6(n)": "int64",
    "F.hardtanh(n)": "int64",
    "F.threshold(n, 1, 7)": "int64",
    "small.sum()": "int64",
    "small.cumsum(0)": "int64",
    "short.prod()": "int64",
    "tg.scatter_reduce(short, 0, i, short, 'mean')": "int32",
}


@pytest.mark.parametrize("call", _TAKEN)
def test_a_result_has_the_dtype_that_pytorch_gives_it(call: str) -> None:
    found = _value(call)
    assert found.dtype == _TAKEN[call]
    traced = tg.trace(lambda: _value(call))()
    assert traced.dtype == found.dtype
    np.testing.assert_allclose(traced.numpy(), found.numpy(), rtol=1e-6)


def test_integers_stay_integers_in_value() -> None:
    assert _value("F.relu6(n)").tolist() == [0, 3, 6]
    assert _value("F.hardtanh(n, -0.5, 4.5)").tolist() == [0, 3, 4]
    assert _value("F.threshold(n, 1, 7)").tolist() == [7, 3, 9]
    assert _value("small.sum()").item() == 300
    assert _value("F.conv2d(image.long(), image.long(), padding=1)").tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]


def test_derivatives_go_through_what_is_not_promoted() -> None:
    x = tg.tensor([0.5, 2.0], dtype=tg.float32, requires_grad=True)
    (tg.xlogy(x, 2.0).sum() + tg.xlogy(2.0, x).sum() + tg.quantile(x, 0.25)).backward()
    assert x.grad.dtype == tg.float32
    want = [0.6931472 + 4.0 + 0.75, 0.6931472 + 1.0 + 0.25]
    assert x.grad.tolist() == pytest.approx(want, rel=1e-6)
