"""NumPy's scalars, universal functions and ranges where traced code gives them traced numbers, alone or in lists."""

from __future__ import annotations

import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from along import differences, named, replayed, weighted

import tracegrad as tg
from tracegrad.trace.rewriting.call_sites import marked

X, V = np.array([1.3, 0.7, 0.4]), np.array([0.3, -0.5, 0.1])

Scalar, Whole, Real = np.float64, np.int64, float
OPERATIONS = {"times": float.__mul__, "minus": np.float64.__sub__}


def of_either(x: Any) -> Any:
    """Python takes the first way; an error that no Python raises would take the other."""
    try:
        return float.__mul__(x[0], x[1]) + 0 * x[0]
    except TypeError:
        return x[2]


class Kinds:
    scalar, dtype = np.float64, np.dtype("f8")

    def __init__(self) -> None:
        self.real = float

    class Inner:
        whole = int


KINDS = Kinds()


def of_a_local_variable(x: Any) -> Any:
    scalar = np.float64
    return scalar(x[0]) * scalar([x[1], x[2]])


def of_a_closure(x: Any) -> Any:
    real = float

    def inner(v: Any) -> Any:
        return real(v) ** 2

    return inner(x[0]) * x[1]


def of_a_default(x: Any) -> Any:
    def inner(x: Any, scalar: Any = np.float64, *, real: Any = float) -> Any:
        return scalar(x[0]) * real(x[1])

    return inner(x)


def in_a_loop(x: Any) -> Any:
    kinds, total = {"a": float, "b": np.float64}, 0.0
    for k in range(3):
        for name in kinds:
            total = total + kinds[name](x[k]) ** (k + 1)
    while kinds["a"](total) < 6.0:
        total = KINDS.real(total * 1.5)
    return total * x[0]


def of_the_first_that_works(x: Any) -> Any:
    for kind in (np.array, np.float64):
        try:
            return kind(x[0], *([1] if kind is np.float64 else [])) * x[1]
        except TypeError:
            continue
    return x[2]


CALLS: dict[str, Callable[[Any], Any]] = {
    "of_a_local_variable": of_a_local_variable,
    "of_a_closure": of_a_closure,
    "of_a_default": of_a_default,
    "in_a_loop": in_a_loop,
    "of_the_first_that_works": of_the_first_that_works,
    "of_an_attribute": lambda x: KINDS.real(x[0]) * Kinds.scalar(x[1]) + KINDS.Inner.whole(x[0]) * x[2],
    "of_a_dtype": lambda x: KINDS.dtype.type(x[0]) * np.dtype("float64").type(x[1]),
    "of_an_item": lambda x: [float, np.float64][1](x[0]) * {"a": float}["a"](x[1]),
    "of_one_of_two": lambda x: (float if x[0] > x[1] else np.float64)(x[0]) * x[1],
    "of_one_of_two_builtins": lambda x: (float if x[0] > x[1] else abs)(x[0]) * (abs if x[0] > 0 else float)(x[1]),
    "of_its_own_type": lambda x: type(x[0])(x[1]) * x[0] + type(float(x[0]))(x[1]),
    "of_arguments_in_a_tuple": lambda x: (lambda f, a: f(*a) * x[1])(float, (x[0],)),
    "of_an_argument_that_jumps": lambda x: (lambda f: f(x[0] if x[0] > 0 else x[1]) * x[1])(min if x[0] < 0 else float),
    "largest_by_another_name": lambda x: (lambda largest: largest(float(x[0]), float(x[1])) * x[2])(max),
    "float64": lambda x: np.float64(x[0]) * x[1],
    "another_name_of_float64": lambda x: Scalar(x[0]) * Scalar([x[1], x[2]]),
    "another_name_of_int64": lambda x: x[Whole(x[0])] * x[2],
    "another_name_of_float": lambda x: Real(x[0]) * x[1],
    "method_of_float": lambda x: float.__mul__(x[0], x[1]),
    "method_of_float_and_an_int": lambda x: float.__pow__(float(x[0]), 2) * float.__neg__(x[1]),
    "reflected_method_of_float": lambda x: float.__rsub__(x[0], 2.0) * x[1],
    "method_of_float_and_no_float": lambda x: (float.__add__(x[0], x) is NotImplemented) * x[1],
    "method_of_a_number_beside": lambda x: float.__truediv__(2.0, x[0]),
    "method_that_asks_the_value": lambda x: float.is_integer(x[0]) + x[1],
    "method_of_float64": lambda x: np.float64.__mul__(x[0], x[1]) + np.float64.sum(x[2]),
    "methods_with_options": lambda x: np.float64.round(x[0], decimals=1) + np.float64.__add__(np.float64(2.0), x[1]),
    "methods_in_a_table": lambda x: OPERATIONS["minus"](x[0], x[1]) * OPERATIONS["times"](x[0], x[1]),
    "method_where_errors_are_caught": of_either,
    "float64_of_a_float": lambda x: np.float64(float(x[0])) * x[1],
    "float64_of_a_list": lambda x: np.float64([x[0], x[1] ** 2]),
    "exp": lambda x: np.exp([x[0], x[1] ** 2]),
    "sqrt_of_a_tuple": lambda x: np.sqrt((x[0], x[1])),
    "add_lists": lambda x: np.add(list(x), list(x**2)),
    "power": lambda x: np.power([x[0], 2.0], x[1]),
    "reduce": lambda x: np.multiply.reduce([x[0], x[1], 3.0]),
    "accumulate": lambda x: np.multiply.accumulate([x[0], x[1], x[2]]),
    "reduceat": lambda x: np.multiply.reduceat([x[0], x[1], x[2]], [0, 2]),
    "outer": lambda x: np.multiply.outer([x[0], 1.0], x),
    "arange_from": lambda x: np.arange(x[0], 4.0) ** 2,
    "arange_by": lambda x: np.arange(0.0, 3.0, x[1]),
    "arange_downwards": lambda x: np.arange(2.0, x[0] - 4.0, -x[1]),
    "mgrid": lambda x: np.mgrid[0 : 3 : x[1], 0:2] ** 2,
    "mgrid_of_one_axis": lambda x: np.mgrid[x[0] : 4],
    "ogrid": lambda x: np.ogrid[0 : 3 : x[1], 0:2][0] ** 2,
    "real_roots": lambda x: np.emath.sqrt(x) * np.emath.logn(2.5, x + 1),
    "complex_roots": lambda x: (lambda z: np.concatenate([z.real, z.imag]))(np.emath.sqrt(x - 0.5)),
    "complex_logarithm": lambda x: np.abs(np.emath.log(x - 0.5) + np.emath.log2(x - 0.6) + np.emath.log10(x)),
    "complex_angle": lambda x: np.abs(np.emath.arccos(2 * x) + np.emath.arcsin(3 * x) + np.emath.arctanh(x)),
    "complex_power": lambda x: np.emath.power(x - 0.5, 1.5).imag,
    "r_": lambda x: np.r_[0 : 3 : x[1], x],
}


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_derivatives_are_those_of_numpy_and_differences(name: str, eager: bool) -> None:
    f, total = CALLS[name], weighted(CALLS[name], name)
    with tg.disable_jit() if eager else nullcontext(), replayed():
        result = tg.trace(named(f, name))(X)
        np.testing.assert_allclose(result, f(X), rtol=1e-13)
        assert type(result) is type(f(X))
        assert np.vdot(tg.grad(total)(X), V) == pytest.approx(differences(total, X, V), rel=1e-8)
        assert tg.jvp(total, (X,), (V,))[1] == pytest.approx(differences(total, X, V), rel=1e-8)


def test_scalars_have_the_type_they_are_asked_for() -> None:
    def f(x: Any) -> Any:
        narrow = np.float32(x[0])
        assert isinstance(narrow, np.float32)
        assert isinstance(np.float64(x[0]), float)
        return narrow, np.int64(x[0] * 10), np.complex64(x), np.float64(3) * x

    with replayed():
        for result, wanted in zip(tg.trace(f)(X), f(X)):
            assert type(result) is type(wanted)
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_whether_results_are_complex_is_asked_for_and_not_in_batches() -> None:
    f = tg.trace(lambda x: np.emath.sqrt(x - 0.5))
    with replayed():
        assert f(X).dtype == np.complex128
        assert f(X + 1).dtype == np.float64
        with pytest.raises(tg.UnsupportedError, match=r"np\.emath of an element of a batch.* use NumPy's function"):
            tg.vmap(np.emath.sqrt)(X)


def test_masks_in_a_list_are_reduced() -> None:
    f = lambda x: np.logical_and.reduce([x > 0.5, x < 1.0])  # noqa: E731
    with replayed():
        np.testing.assert_array_equal(tg.trace(f)(X), f(X))


def test_only_the_length_of_a_range_is_asked_for() -> None:
    f = tg.trace(lambda x: np.arange(0.0, 3.0, x))
    for x in (0.7, 0.71, 0.72):
        np.testing.assert_allclose(f(x), np.arange(0.0, 3.0, x), rtol=1e-13)
    assert f.cache_info().traces == 1
    with pytest.raises(ZeroDivisionError):
        f(0.0)


def test_a_module_of_another_name_for_numpy_has_its_own_functions() -> None:
    other: Any = types.ModuleType("other")
    other.float64 = lambda x: x * 2
    space = {"np": other}
    exec("def f(x):\n    return np.float64(x)", space)
    assert tg.trace(space["f"])(3.0) == 6.0


def test_an_array_is_filled_in_order_by_its_flat() -> None:
    def f(x: Any) -> Any:
        y = np.zeros((2, 4))
        y.flat = x**2
        return y

    total = weighted(f, "filled")
    with replayed():
        np.testing.assert_allclose(tg.trace(f)(X), f(X), rtol=1e-13)
        assert np.vdot(tg.grad(total)(X), V) == pytest.approx(differences(total, X, V), rel=1e-8)


def test_code_is_marked_once_and_stays_that_of_its_file() -> None:
    text = "def f(x):\n    return float(x) + g(x)\ndef g(x):\n    return int(x)\n"
    spaces: list[dict[str, Any]] = [{}, {}, {}]
    for space, file in zip(spaces, ("one.py", "two.py", "one.py")):
        exec(compile(text, file, "exec"), space)
    first, second, again = [marked(space["f"].__code__) for space in spaces]
    assert first is marked(spaces[0]["f"].__code__) is again
    assert (first.co_filename, second.co_filename) == ("one.py", "two.py")


def test_an_undefined_function_is_the_error_that_python_raises() -> None:
    def f(x: Any) -> Any:
        try:
            return undefined_function(x)  # type: ignore[name-defined]
        except NameError as error:
            return x, str(error), error.name

    x = np.ones(2)
    assert repr(tg.trace(f)(x)) == repr(f(x))


def test_a_method_of_a_class_of_numbers_of_what_is_none_names_the_class_that_python_names() -> None:
    def f(x: Any) -> Any:
        try:
            return float.__mul__(x, 2.0)
        except TypeError as error:
            return x.sum(), str(error)

    x = np.ones(2)
    assert repr(tg.trace(f)(x)) == repr(f(x))


def test_the_classes_of_numbers_are_those_of_python_where_their_attributes_are_read() -> None:
    def f(x: Any) -> Any:
        asked = float.__name__, int.__doc__, float.__mul__ is float.__mul__, complex.__mro__[-1], np.float64.__name__
        return x + 1, asked, float.fromhex("0x1p3"), int.from_bytes(b"12"), float.__eq__(1.0, 1.0)

    x = np.ones(2)
    assert repr(tg.trace(f)(x)) == repr(f(x))


def test_methods_of_universal_functions_of_any_name_are_compiled() -> None:
    import numpy as other

    smallest = np.minimum
    x = np.array([3.0, -1.0, 2.0])
    for f, derivative in (
        (lambda x: other.minimum.reduce(x), [0.0, 1.0, 0.0]),
        (lambda x: smallest.reduce(x, axis=None), [0.0, 1.0, 0.0]),
        (lambda x: other.add.reduce(other.maximum.accumulate(x)), [3.0, 0.0, 0.0]),
        (lambda x: other.multiply.outer(x, x).sum(), [8.0, 8.0, 8.0]),
    ):
        np.testing.assert_allclose(tg.grad(f)(x), derivative)
