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
    result = _value(call)
    assert result.dtype == _TAKEN[call]
    traced = tg.trace(lambda: _value(call))()
    assert traced.dtype == result.dtype
    np.testing.assert_allclose(traced.numpy(), result.numpy(), rtol=1e-6)


def test_integers_stay_integers_in_value() -> None:
    assert _value("F.relu6(n)").tolist() == [0, 3, 6]
    assert _value("F.hardtanh(n, -0.5, 4.5)").tolist() == [0, 3, 4]
    assert _value("F.threshold(n, 1, 7)").tolist() == [7, 3, 9]
    assert _value("small.sum()").item() == 300
    assert _value("F.conv2d(image.long(), image.long(), padding=1)").tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]


@pytest.mark.parametrize(
    ("call", "out"),
    [
        ("tg.max(y, 0, out=out)", "(tg.empty(2), tg.empty(2))"),
        ("tg.argmax(y, 0, out=out)", "tg.empty(2)"),
        ("tg.mm(y, y, out=out)", "tg.empty(2, 2, dtype=tg.float32)"),
        ("tg.abs(y, out=out)", "tg.empty(2, 2, dtype=tg.float32)"),
    ],
)
def test_out_has_to_have_the_dtype_of_the_result_where_pytorch_converts_nothing(call: str, out: str) -> None:
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        eval(call, {**_SPACE, "out": eval(out, dict(_SPACE))})


def test_out_of_another_dtype_is_converted_to_elsewhere() -> None:
    out = tg.empty(2, 2, dtype=tg.float32)
    assert _value("tg.sin(y)").dtype == tg.float64
    assert tg.sin(_SPACE["y"], out=out) is out
    assert tg.max(_SPACE["y"], _SPACE["y"], out=out).tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_tensors_are_made_and_known_by_pytorchs_names_of_dtypes() -> None:
    tensor = tg.LongTensor([1, 2])
    assert (tensor.tolist(), tensor.dtype) == ([1, 2], tg.int64)
    assert isinstance(tensor, tg.LongTensor)
    assert not isinstance(tensor, tg.FloatTensor)
    assert not isinstance([1, 2], tg.LongTensor)
    assert (tg.FloatTensor(2, 3).shape, tg.FloatTensor(2, 3).dtype) == ((2, 3), tg.float32)
    traced = tg.trace(lambda x: x * 2 if isinstance(x, tg.DoubleTensor) else x * 3)
    assert traced(_SPACE["y"]).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert traced(_SPACE["x"]).tolist() == [[0.75, 0.75], [0.75, 0.75]]


def test_memory_formats_have_names() -> None:
    x = _SPACE["y"].clone(memory_format=tg.preserve_format)
    assert x.contiguous(memory_format=tg.contiguous_format) is x


_IN_A_FORMAT: dict[str, Any] = {
    "clone": lambda x, **kw: x.clone(**kw),
    "contiguous": lambda x, **kw: x.contiguous(**kw),
    "to": lambda x, **kw: x.to(tg.float32, **kw),
    "double": lambda x, **kw: x.double(**kw),
    "type": lambda x, **kw: x.type(tg.float32, **kw),
    "cpu": lambda x, **kw: x.cpu(**kw),
    "is_contiguous": lambda x, **kw: x.is_contiguous(**kw),
    "zeros_like": tg.zeros_like,
    "ones_like": tg.ones_like,
    "empty_like": tg.empty_like,
    "full_like": lambda x, **kw: tg.full_like(x, 2.0, **kw),
    "rand_like": tg.rand_like,
    "randn_like": tg.randn_like,
    "randint_like": lambda x, **kw: tg.randint_like(x, 1, 5, **kw),
    "empty": lambda x, **kw: tg.empty(x.shape, **kw),
}


@pytest.mark.parametrize("name", _IN_A_FORMAT)
def test_memory_formats_are_taken_or_refused_by_name(name: str) -> None:
    x, call = tg.ones(2, 3, 4, 5), _IN_A_FORMAT[name]
    for args in (None, tg.preserve_format, tg.contiguous_format):
        for run in (call, call if name == "randint_like" else tg.trace(call)):  # which is not drawn in traces
            assert getattr(run(x, memory_format=args), "shape", x.shape) == x.shape
    for args in (tg.channels_last, tg.channels_last_3d):
        with pytest.raises(tg.UnsupportedError, match=rf"{name}\(memory_format={args}\).*leave memory_format out"):
            call(x, memory_format=args)
    with pytest.raises(TypeError, match=rf"{name}\(\): argument 'memory_format' must be torch.memory_format, not str"):
        call(x, memory_format="rows")


def test_tensors_are_made_in_the_memory_that_there_is() -> None:
    x = tg.ones(2)
    assert (x.layout, x.is_pinned()) == (tg.strided, False)
    for make in (tg.zeros, tg.ones, tg.empty, tg.rand, tg.randn, tg.arange, tg.eye, x.new_zeros, x.new_ones):
        assert make(2, layout=tg.strided, pin_memory=False).dtype in (tg.float64, tg.int64)
        with pytest.raises(tg.UnsupportedError, match="layout=sparse_coo"):
            make(2, layout="sparse_coo")
        with pytest.raises(RuntimeError, match="leave pin_memory out"):
            make(2, pin_memory=True)
    assert tg.tensor([1.0], pin_memory=False).tolist() == x.new_tensor([1.0], pin_memory=False).tolist() == [1.0]
    with pytest.raises(RuntimeError, match="no device 'cuda'"):
        tg.tensor([1.0], pin_memory=True)
    assert tg.nn.Linear(2, 3).to(memory_format=tg.contiguous_format).weight.shape == (3, 2)
    with pytest.raises(tg.UnsupportedError, match="channels_last"):
        tg.nn.Linear(2, 3).to(memory_format=tg.channels_last)


def test_rows_of_an_embedding_are_scaled_down_where_they_are_asked_for() -> None:
    weight = tg.tensor([[3.0, 4.0], [0.1, 0.2], [6.0, 8.0]], requires_grad=True)
    rows = F.embedding(tg.tensor([0, 0]), weight, max_norm=1.0)
    rows.sum().backward()
    assert rows.detach().numpy() == pytest.approx(np.array([[0.6, 0.8], [0.6, 0.8]]), rel=1e-7)
    assert weight.detach().numpy() == pytest.approx(np.array([[0.6, 0.8], [0.1, 0.2], [6.0, 8.0]]), rel=1e-7)
    assert weight.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    layer = tg.nn.Embedding(3, 2, max_norm=1.0, norm_type=1.0, _weight=tg.ones(3, 2))
    assert layer(tg.tensor([1])).tolist()[0] == pytest.approx([0.5, 0.5], rel=1e-6)
    assert layer.weight[0].tolist() == [1.0, 1.0]
    assert repr(layer) == "Embedding(3, 2, max_norm=1.0, norm_type=1.0)"
    again = tg.trace(lambda i, w: F.embedding(i, w, max_norm=1.0))(tg.tensor([2]), weight)
    assert again.tolist()[0] == pytest.approx([0.6, 0.8], rel=1e-7)
    assert weight[2].tolist() == pytest.approx([0.6, 0.8], rel=1e-7)


def test_derivatives_go_through_what_is_not_promoted() -> None:
    x = tg.tensor([0.5, 2.0], dtype=tg.float32, requires_grad=True)
    (tg.xlogy(x, 2.0).sum() + tg.xlogy(2.0, x).sum() + tg.quantile(x, 0.25)).backward()
    assert x.grad.dtype == tg.float32
    want = [0.6931472 + 4.0 + 0.75, 0.6931472 + 1.0 + 0.25]
    assert x.grad.tolist() == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "dtype"), [(1.0, -1.0, "float32"), (1, 0.5, "float32"), (1, 0, "int64"), (1j, 1.0, "complex64")]
)
def test_where_of_two_numbers_has_pytorchs_dtype(x: Any, y: Any, dtype: str) -> None:
    before = tg.get_default_dtype()
    tg.set_default_dtype(tg.float32)
    try:
        mask = tg.tensor([True, False])
        assert tg.where(mask, x, y).dtype == dtype
        assert tg.trace(lambda mask: tg.where(mask, x, y))(mask).dtype == dtype
        assert tg.trace(lambda v: tg.where(v > 0, v[0].item(), 2))(tg.ones(2)).dtype == "float32"
    finally:
        tg.set_default_dtype(before)


def test_sums_of_weights_in_bins_keep_float32() -> None:
    index = tg.tensor([0, 2, 2])
    assert tg.bincount(index, weights=tg.ones(3, dtype=tg.float32)).dtype == tg.float32
    assert tg.bincount(index, weights=tg.ones(3, dtype=tg.int64)).dtype == tg.float64
    assert tg.bincount(index).dtype == tg.int64
