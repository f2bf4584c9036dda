"""The shape of a Tensor is a `Size`, as in PyTorch: the texts and classes are those that PyTorch 2.13 gives."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg

Size: Any = tg.Size
TWO = (2,)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3), (2, 3, 4)])
def test_the_shape_of_a_tensor_is_a_size(shape: tuple[int, ...]) -> None:
    x = tg.ones(shape)
    for size in (x.shape, x.size(), x.data.shape, tg.nn.Parameter(x).shape, tg.broadcast_shapes(shape, (1,) * x.ndim)):
        assert type(size) is Size
        assert size == shape == size
        assert hash(size) == hash(shape)
        assert str(size) == f"{size}" == repr(size) == f"torch.Size({list(shape)})"
        assert size.numel() == x.numel() == int(np.prod(shape))


def test_arrays_keep_tuples() -> None:
    seen = []
    tg.grad(lambda x: seen.append(type(x.shape)) or np.sum(x * x))(np.ones(2))
    assert {type(np.ones(2).shape), *seen} == {tuple}


def test_parts_and_sums_of_sizes_are_sizes() -> None:
    size, one, none = tg.ones(2, 3).shape, (4,), ()
    results = [size[:1], size[::-1], size[5:], size + one, one + size, size + size, size * 2, 2 * size, size + none]
    assert {type(x) for x in results} == {Size}
    assert list(map(str, results)) == [
        "torch.Size([2])",
        "torch.Size([3, 2])",
        "torch.Size([])",
        "torch.Size([2, 3, 4])",
        "torch.Size([4, 2, 3])",
        "torch.Size([2, 3, 2, 3])",
        "torch.Size([2, 3, 2, 3])",
        "torch.Size([2, 3, 2, 3])",
        "torch.Size([2, 3])",
    ]
    assert [size[0], size[-1], *size, max(size), size.index(3), size.count(2)] == [2, 3, 2, 3, 3, 1, 1]
    np.testing.assert_array_equal(size + np.array([1, 1]), [3, 4])
    np.testing.assert_array_equal(size * np.array([1, 2]), [2, 6])


def test_sizes_are_made_of_integers() -> None:
    assert [Size(), Size([2, 3]), Size(n for n in (2, 3))] == [(), (2, 3), (2, 3)]
    result = Size([np.int32(2), tg.tensor(3), True])
    assert [(n, type(n)) for n in result] == [(2, int), (3, int), (1, int)]
    halves, one = (1.5,), [1]
    with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 1 is 'float'\)"):
        Size([1, 1.5])
    with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 2 is 'float'\)"):
        tg.ones(2, 3).shape + halves
    with pytest.raises(TypeError, match=r"can only concatenate tuple \(not list\) to torch.Size"):
        tg.ones(2).shape + one
    with pytest.raises(TypeError, match="can only concatenate list"):
        one + tg.ones(2).shape


def test_sizes_are_copied_and_pickled() -> None:
    size = tg.ones(2, 3).shape
    for again in (copy.copy(size), copy.deepcopy(size), pickle.loads(pickle.dumps(size))):
        assert (type(again), again) == (Size, size)


@program
def test_sizes_in_programs(trace: Any) -> Any:
    @trace
    def run(x: Any) -> Any:
        n, *rest = x.shape
        y = x.reshape(x.shape[::-1]).reshape(x.shape) * x.shape.numel() + tg.zeros(x.shape[:1] + x.shape[1:])
        match x.shape:
            case Size() as size:
                y = y * len(size)
        return y, x.shape, x.size()[1:], f"{x.shape}", type(x.shape) is Size, n, rest, {x.shape: 1}

    for shape in ((2, 3), (2, 3), (3, 2), (6,), (2, 3)):
        x = tg.ones(*shape).requires_grad_()
        y, *others = run(x)
        y.sum().backward()
        yield y.detach().numpy(), x.grad.numpy(), others, type(others[0]) is Size, type(others[1]) is Size


@program
def test_sizes_as_arguments_are_told_apart_by_their_lengths(trace: Any) -> Any:
    @trace
    def run(size: Any) -> Any:
        return tg.ones(size) * (2.0 + len(size)), isinstance(size, Size)

    for size in (Size([2]), Size([2]), Size([2, 2]), Size([2, 2]), (2,), (2, 2), Size([2]), Size([])):
        yield run(size)[0].numpy(), run(size)[1]


@program
def test_sizes_from_outside_are_those_of_the_call(trace: Any) -> Any:
    sizes = [tg.ones(2, 3).shape]

    @trace
    def run(x: Any) -> Any:
        return x.reshape(sizes[0]) * sizes[0].numel(), sizes[0] + TWO

    for size in (Size([2, 3]), Size([3, 2]), Size([6]), Size([3, 2])):
        sizes[0] = size
        y, more = run(tg.ones(6))
        yield y.numpy(), more, type(more) is Size


@program
def test_sizes_of_what_a_mask_chooses(trace: Any) -> Any:
    @trace
    def run(x: Any) -> Any:
        y = x[x > 1.0]
        return y.sum() * y.shape.numel(), y.shape + TWO, f"{y.shape}", tg.zeros(y.shape)

    for values in ([1.0, 2.0, 3.0], [1.0, 0.0, 0.0], [4.0, 2.0, 3.0]):
        total, more, text, zeros = run(tg.tensor(values))
        yield total.numpy(), more, text, zeros.numpy()


def test_sizes_under_transforms() -> None:
    x = tg.ones(2, 3)
    np.testing.assert_array_equal(tg.func.grad(lambda x: (x * x.shape.numel()).sum())(x), np.full((2, 3), 6.0))
    np.testing.assert_array_equal(tg.func.vmap(lambda x: x * x.shape.numel())(x), np.full((2, 3), 3.0))
    assert tg.func.vmap(lambda x: tg.ones(x.shape + TWO) * x.sum())(x).shape == (2, 3, 2)
