"""Every second, third or fourth element of memory: taken from whole vectors, nothing behind the last being touched."""

import ctypes
import mmap

import numpy as np
import pytest

import tracegrad as tg

FUNCTIONS = {
    "every second": lambda x: x[::2] + x[:1],
    "every second from the second on": lambda x: x[1::2] + x[:1],
    "every third": lambda x: x[::3] + x[:1],
    "every fourth from the second on": lambda x: x[1::4] + x[:1],
    "every fifth": lambda x: x[::5] + x[:1],
    "the greatest of every third": lambda x: np.max(x[::3]),
    "neighbours": lambda x: np.maximum(x[: x.size // 2 * 2 : 2], x[1 : x.size // 2 * 2 : 2]),
}
LENGTHS = (10, 17, 31, 32, 33, 40, 63, 64, 65, 66, 100, 129, 257, 1000, 1001, 1002, 1003)


def at_the_end_of_memory(x):
    """A copy behind which nothing may be read; and what keeps it there."""
    page = mmap.PAGESIZE
    size = -(-x.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    whole = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(whole.ctypes.data + size), ctypes.c_size_t(page), 0) == 0
    result = whole[size - x.nbytes : size].view(x.dtype)
    result[:] = x
    return result


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="memory cannot be protected")
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "int16", "uint8", "bool"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_elements_are_those_of_numpy_and_nothing_behind_them_is_touched(name, dtype):
    function = FUNCTIONS[name]
    traced = tg.trace(function, tiered=False)
    for length in LENGTHS:
        x = (np.random.default_rng(length).standard_normal(length) * 3).astype(dtype)
        args = at_the_end_of_memory(x)
        for _ in range(2):
            result = traced(args)
        np.testing.assert_array_equal(result, function(x), err_msg=f"{length} elements")


def test_columns_of_a_matrix_and_their_derivative():
    x = np.random.default_rng(0).standard_normal((20, 31))
    np.testing.assert_array_equal(tg.trace(lambda x: x[:, 1::2] * 2.0)(x), x[:, 1::2] * 2.0)
    derivative = tg.grad(lambda x: np.sum(np.sin(x[:, ::3])))(x)
    expected = np.zeros_like(x)
    expected[:, ::3] = np.cos(x[:, ::3])
    np.testing.assert_allclose(derivative, expected, rtol=1e-12)
