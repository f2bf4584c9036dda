"""Bad input: every error names what is wrong, and the user's file and line."""

import re

import numpy as np
import pytest

import tracegrad as tg

X = np.ones(3)
HERE = r"test_bad_input\.py:\d+"


def f(x, params=None, n=2):
    return np.sum(x) * n


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((np.array(["a"]),), tg.DTypeError, "the argument x has dtype <U1.*supported are"),
        ((np.ones(1, np.clongdouble),), tg.DTypeError, "the argument x has dtype complex256"),
        ((np.array([None]),), tg.DTypeError, "the argument x has dtype object"),
        ((X, {"h": np.ones(2, np.longdouble)}), tg.DTypeError, r"the argument params\['h'\] has dtype float128"),
        ((np.array("2020-01-01", "M8[D]"),), tg.DTypeError, "the argument x has dtype datetime64"),
    ],
    ids=lambda x: str(x)[:40] if isinstance(x, str) else "",
)
def test_arguments_that_cannot_be_traced_are_named(args, error, message):
    for fun in (tg.trace(f), tg.grad(f)):
        with pytest.raises(error, match=message + f".*{HERE}"):
            fun(*args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X, {"w": [X, {1, 2}]}), r"the argument params\['w'\]\[1\] is of type set.*static_argnames='params'"),
        ((X, object()), r"the argument params is of type object.*static_argnames='params'"),
        ((X, np.ma.masked_array([1.0], [True])), r"the argument params is a MaskedArray.*np\.asarray\(x\)"),
    ],
)
def test_arguments_that_no_trace_is_made_of_run_plainly_with_their_derivative(args, message):
    def double(x, params):
        return np.sum(x) * 2

    for fun, answer in ((tg.trace(double), 6.0), (tg.grad(double), [2.0, 2.0, 2.0])):
        with pytest.warns(tg.PerformanceWarning, match=f"runs as plain Python, uncompiled: {message}.*{HERE}"):
            np.testing.assert_array_equal(fun(*args), answer)
        np.testing.assert_array_equal(fun(*args), answer)
        with pytest.raises(tg.TraceError, match=f"{message}.*{HERE}"):
            fun.explain(*args)


DERIVATIVES = {
    "grad": tg.grad(f),
    "jvp": lambda x: tg.jvp(f, (x,), (1.0,)),
    "vjp": lambda x: tg.vjp(f, x),
    "vmap": tg.vmap(f),
    "hessian": tg.hessian(f),
}


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@pytest.mark.parametrize(
    "x", [object(), {1, 2}, "a", np.ma.masked_array([1.0], [True])], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize("name", DERIVATIVES)
def test_what_cannot_be_differentiated_is_named(name, x):
    error = tg.UnsupportedError if isinstance(x, np.ndarray) else TypeError
    with pytest.raises(error, match=rf"\bx\b.*{HERE}"):
        DERIVATIVES[name](x)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: x + np.ones(4), tg.ShapeError, r"add: .*f64\[3\], f64\[4\]"),
        (lambda x: x @ np.ones((2, 2)), ValueError, "matmul"),
        (lambda x: np.reshape(x, (2, 2)), ValueError, "reshape"),
        (lambda x: np.sum(x, axis=3), ValueError, f"sum: axis 3 is out of bounds for an array of 1 axes .*{HERE}"),
        (lambda x: np.flip(x, -2), IndexError, f"flip: axis -2 is out of bounds .*{HERE}"),
        (lambda x: x.mean(axis="rows"), TypeError, f"mean: an axis is an integer, got axis='rows' .*{HERE}"),
        (lambda x: np.concatenate([x, np.ones((2, 2))]), ValueError, "concatenate"),
        (lambda x: np.busday_count(x, x), tg.UnsupportedError, r"np\.busday_count is not .*; compute it outside"),
        (lambda x: np.positive(x > 0), tg.DTypeError, r"positive is not defined for dtypes \(bool\)"),
    ],
)
def test_errors_inside_name_the_line(function, error, message):
    with pytest.raises(error, match=message) as caught:
        tg.trace(function)(X)
    if isinstance(caught.value, tg.TracegradError):
        assert "test_bad_input.py:" in str(caught.value)
    (note,) = caught.value.__notes__
    assert re.fullmatch(rf"while tracing \S+ \(\S*{HERE}\), at \S*{HERE}", note)


def test_what_python_raises_inside_is_pythons_own_and_shows_the_line():
    for _ in range(2):
        with pytest.raises(TypeError, match="ufunc 'add' did not contain a loop") as caught:
            tg.trace(lambda x: x + "text")(X)
        assert caught.traceback[-1].path.name == "test_bad_input.py"


def test_what_only_a_trace_cannot_do_runs_as_plain_python_and_says_so_once():
    f = tg.trace(lambda x: memoryview(x))
    with pytest.warns(tg.PerformanceWarning, match=rf"runs as plain Python.* raised TypeError: .*bytes-like.*{HERE}"):
        assert f(X).tolist() == X.tolist()
    assert f(X + 1).tolist() == (X + 1).tolist()


def test_results_that_can_be_read_only_once_are_refused():
    with pytest.raises(tg.TraceError, match=f"holds a generator, which can be read only once.*return a list.*{HERE}"):
        tg.trace(lambda x: (y for y in x))(X)
    with pytest.raises(tg.TraceError, match=f"holds a zip, .*{HERE}"):
        tg.trace(lambda x: [x, zip(x, x)])(X)


def test_an_index_out_of_range_is_an_error_at_every_call():
    g = tg.trace(lambda x, i: x[i])
    np.testing.assert_array_equal(g(X, np.array([0, 2])), [1, 1])
    for _ in range(2):
        with pytest.raises(IndexError, match=r"out of bounds"):
            g(X, np.array([0, 3]))
    np.testing.assert_array_equal(g(X, np.array([0, -3])), [1, 1])
    assert g.cache_info().traces == 1


def test_numpy_cannot_take_a_traced_array_behind_the_back_of_the_trace():
    import collections

    with pytest.raises(tg.TraceError, match=f"cannot become an ndarray.*{HERE}"):
        tg.trace(
            lambda x: np.frompyfunc(lambda v: v, 1, 1)(np.array(collections.deque([x]), object)[0]) + np.float64(x)
        )(X[:1])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tg.grad(3), TypeError, "grad takes a function, got a int"),
        (lambda: tg.trace([]), TypeError, "trace takes a function, got a list"),
        (lambda: tg.trace(np.ones((2, 2))), TypeError, "got a ndarray; the trace of a matrix is"),
        (lambda: tg.grad(f, argnums="x"), TypeError, "argnums must be an int or a tuple of ints, got 'x'"),
        (lambda: tg.grad(f, argnums=()), TypeError, "argnums must be"),
        (lambda: tg.grad(f, argnums=(0, 0))(X, 1.0), ValueError, r"argnums names an argument twice: \(0, 0\)"),
        (lambda: tg.jacfwd(f, argnums=(0, -2))(X, 1.0), ValueError, r"argnums names an argument twice: \(0, -2\)"),
        (lambda: tg.grad(lambda x: x, has_aux=True)(2.0), TypeError, r"a pair \(value, aux\), got a float"),
        (lambda: tg.grad(f, argnums=True), TypeError, "argnums must be"),
        (lambda: tg.trace(f, static_argnames="nope"), ValueError, "f .*has no parameter 'nope'"),
        (lambda: tg.trace(f, static_argnums=-9), ValueError, "has no positional parameter -9"),
        (lambda: tg.trace(f, static_argnums=3), ValueError, "f .*has no positional parameter 3"),
        (lambda: tg.trace(lambda *, k: k, static_argnums=0), ValueError, "has no positional parameter 0"),
        (lambda: tg.trace(f, static_argnums="x"), TypeError, "expected int, got 'x'"),
    ],
)
def test_transforms_check_what_they_are_given(make, error, message):
    with pytest.raises(error, match=message + f".*{HERE}"):
        make()


def test_arguments_that_do_not_fit_the_signature_name_the_function():
    with pytest.raises(TypeError, match=f"f .*: got an unexpected keyword argument 'speed'.*{HERE}"):
        tg.trace(f)(X, speed=3)
    with pytest.raises(TypeError, match=rf"vjp of f \(\S*test_bad_input.py:\d+\): cotangent .* got a str.*{HERE}"):
        tg.vjp(f, X)[1]("text")


def test_a_static_argument_that_cannot_be_hashed_is_named():
    with pytest.raises(TypeError, match=f"the static argument params must be hashable, got a list.*{HERE}"):
        tg.trace(f, static_argnames="params")(X, [1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tg.grad(lambda x: x)(X), TypeError, r"the output must be a scalar, got shape \(3,\); use vjp"),
        (lambda: tg.grad(lambda x: x)(X), tg.ShapeError, "the output must be a scalar"),
        (lambda: tg.grad(lambda x: (x.sum(), x))(X), TypeError, "the output must be a scalar, got a tuple of 2"),
        (lambda: tg.grad(lambda x: None)(X), TypeError, "the output must be a scalar, got a NoneType"),
        (lambda: tg.grad(lambda x: np.argmax(x))(X), TypeError, "the output must be floating, got int64"),
        (lambda: tg.grad(lambda x: x.sum(), has_aux=True)(X), TypeError, r"must return a pair \(value, aux\)"),
        (lambda: tg.grad(f)(np.arange(3)), TypeError, "grad of f .*real- or complex-valued inputs, got int64 at x "),
        (lambda: tg.grad(f)(X > 0), TypeError, "got bool at x "),
        (lambda: tg.grad(f, argnums=1)(X, {"n": [np.arange(3)]}), tg.DTypeError, r"got int64 at params\['n'\]\[0\] "),
        (lambda: tg.grad(f, argnums=2)(X, None, 3), tg.DTypeError, "got int at n "),
        (
            lambda: tg.grad(f, argnums=5)(X),
            ValueError,
            "argnums names argument 5, but there are 1 positional arguments",
        ),
        (lambda: tg.grad(f, argnums=-4)(X), ValueError, "argnums names argument -4"),
        (lambda: tg.vjp(lambda x: "text", X), TypeError, "the outputs must be arrays, got a str"),
        (lambda: tg.vjp(lambda x: x, np.arange(3))[1](X), tg.DTypeError, "got int64 at x"),
        (lambda: tg.vjp(lambda x: [x], X)[1](X), tg.ShapeError, f"vjp of .*: the structures differ at .*{HERE}"),
        (lambda: tg.vjp(f, X)[1](X), tg.ShapeError, rf"cotangent has shape \(3,\), the output .*{HERE}"),
    ],
)
@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
def test_derivatives_that_do_not_exist_are_refused(call, error, message, eager):
    if eager:
        with tg.disable_jit(), pytest.raises(error, match=message):
            call()
    else:
        with pytest.raises(error, match=message):
            call()


def test_nothing_is_kept_of_a_call_that_failed():
    g = tg.grad(lambda x: np.sum(x) * 2)
    with pytest.raises(tg.DTypeError):
        g(np.arange(3))
    assert g.cache_info() == (0, 0, 0, 1, 0, 0)
    np.testing.assert_array_equal(g(X), [2, 2, 2])


def test_a_message_names_the_users_line_beyond_installed_packages():
    from scipy import ndimage

    with pytest.raises(tg.TraceError, match=f"cannot become an ndarray.*{HERE}"):
        tg.trace(lambda x: ndimage.median_filter(x, 3))(X)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "tg.where(x > 0, tg.ones(3), tg.ones(4))",
        "tg.nn.functional.mse_loss(x, y, reduction='sum')",
        "tg.dist(x, y)",
        "tg.lerp(x, y, 0.5)",
        "tg.maximum(x, y)",
        "tg.pow(x, y)",
        "tg.eq(x, y)",
        "tg.addcmul(x, y, y)",
        "x * y",
        "x.clamp(y)",
        "x.copy_(y)",
        "x.clone().add_(y)",
        "x.__setitem__(slice(None), y)",
        "tg.einsum('i,i->', x, y)",
        "tg.tensordot(x, y, 1)",
        "tg.atan2(x, y)",
        "tg.logaddexp(x, y)",
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_shapes_of_tensors_that_do_not_fit_raise_pytorchs_runtime_error(text: str, requires_grad: bool) -> None:
    space = {"tg": tg, "x": tg.ones(2, requires_grad=requires_grad) * 1, "y": tg.ones(3)}
    with pytest.raises(RuntimeError):
        eval(text, space)
    with pytest.raises(RuntimeError):
        tg.trace(lambda x, y: eval(text, {"tg": tg, "x": x, "y": y}))(space["x"], space["y"])


def test_shapes_of_arrays_that_do_not_fit_raise_numpys_value_error_alone() -> None:
    for f in (tg.grad(lambda x: (x + np.ones(4)).sum()), tg.trace(lambda x: np.maximum(x, np.ones(4)))):
        with pytest.raises(ValueError, match="shape") as error:
            f(np.ones(3))
        assert not isinstance(error.value, RuntimeError)
