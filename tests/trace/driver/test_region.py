"""Closed traces: a function recorded as a graph that reads nothing from around it, and that has no values."""

from __future__ import annotations

import contextlib
import operator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.avals import Aval
from tracegrad.errors import TraceError, UnsupportedError
from tracegrad.ir import verify
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.driver.region import closed, emitted

F64 = np.dtype(np.float64)


# Under a name of tracegrad's own files the functions are not the user's, and a trace runs them as they are.
_SPACE: dict[str, Any] = {"closed": closed, "emitted": emitted, "verify": verify, "leaves": tg.tree.leaves, "seen": []}
_CODE = """
def note(found):
    verify(found.graph)
    seen[:] = [(str(found.graph), len(found.captured), found.weak, found.tensors)]
    return found

def applied(fn, *args, what="the body of a test"):
    found = note(closed(fn, args, what))
    return found.result(emitted(found.graph, [*leaves(args), *found.captured]))
"""
exec(compile(_CODE, tg.__file__.replace("__init__", "made_by_a_test"), "exec"), _SPACE)
applied, note, seen = _SPACE["applied"], _SPACE["note"], _SPACE["seen"]

x = np.linspace(0.5, 1.5, 3)
w = np.arange(3.0)


def test_a_region_is_a_graph_of_its_own_with_what_it_captures_as_inputs() -> None:
    def f(a: Any) -> Any:
        y = np.exp(a)
        return applied(lambda b: b * y + w, a)

    np.testing.assert_allclose(tg.trace(f)(x), x * np.exp(x) + w)
    assert seen[0][0] == (
        "graph(%0: f64[3], %1: f64[3], %2: f64[3]) {\n"
        "  %3 = multiply(%0, %1) : f64[3]\n"
        "  %4 = add(%3, %2) : f64[3]\n"
        "  return %4\n"
        "}"
    )
    assert seen[0][1] == 2


def test_captures_come_once_and_only_where_they_are_used() -> None:
    def f(a: Any) -> Any:
        y, z = np.exp(a), np.cos(a)

        def body(b: Any) -> Any:
            z + 1.0
            return b * y + y * y + y.copy()

        return applied(body, a)

    tg.trace(f)(x)
    assert seen[0][1] == 1


def test_the_result_is_a_pytree_and_python_numbers_stay_weak() -> None:
    def f(a: Any, n: Any) -> Any:
        return applied(lambda b, k: {"n": (k * 2, 1.0, True), "y": b * np.float32(2), "none": None}, a, n)

    single = x.astype(np.float32)
    result = tg.trace(f)(single, 1.5)
    assert result["n"] == (3.0, 1.0, True)
    assert result["y"].dtype == np.float32
    np.testing.assert_array_equal(result["y"], single * np.float32(2))
    assert seen[0][2] == (True, True, True, False)


def test_numbers_take_the_dtype_of_the_arrays_they_meet() -> None:
    single = x.astype(np.float32)
    assert tg.trace(lambda a: applied(lambda b, k: b * k, a, 2.0))(single).dtype == np.float32
    assert tg.trace(lambda a: applied(lambda b, k: b * k, a, np.float64(2.0)))(single).dtype == np.float64


def test_arguments_can_be_abstract_values() -> None:
    @tg.trace
    def f(a: Any) -> Any:
        note(closed(lambda b: np.sum(b) + a, (Aval((4,), F64),), "a test"))
        return a

    f(1.0)
    assert seen[0][0].startswith("graph(%0: f64[4], %1: f64[])")


def test_arrays_made_inside_belong_to_the_region_and_can_be_updated_there() -> None:
    def f(a: Any) -> Any:
        def body(b: Any) -> Any:
            z = np.zeros(3)
            z[1:] = b[:2]
            view = z[:2]
            view += 1.0
            return z

        return applied(body, a)

    np.testing.assert_allclose(tg.trace(f)(x), [1.0, x[0] + 1.0, x[1]])
    assert seen[0][1] == 0


def test_regions_nest_and_capture_through_each_other() -> None:
    def f(a: Any) -> Any:
        y = np.exp(a)

        def outer(b: Any) -> Any:
            z = b * 2.0
            return applied(lambda c: applied(lambda d: d * y + z * w, c) + b, b)

        return applied(outer, a)

    np.testing.assert_allclose(tg.trace(f)(x), x * np.exp(x) + 2 * x * w + x)


def test_views_of_arrays_from_outside_are_read_inside() -> None:
    def f(a: Any) -> Any:
        y = np.outer(np.exp(a), a)
        return applied(lambda b: b * y.T[0] + y[1:2, :].reshape(3) + y.copy()[0], a)

    y = np.outer(np.exp(x), x)
    np.testing.assert_allclose(tg.trace(f)(x), x * y.T[0] + y[1] + y[0])


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_nest_inside_and_outside(order: int) -> None:
    def g(a: Any) -> Any:
        return np.sum(np.sin(a) * a)

    def inside(a: Any) -> Any:
        y = np.exp(a)
        return applied(lambda b: tg.grad(lambda c: np.sum(np.sin(c) * y) + g(c))(b), a)

    def plain(a: Any) -> Any:
        return tg.grad(lambda c: np.sum(np.sin(c) * np.exp(a)) + g(c))(a)

    np.testing.assert_allclose(tg.trace(inside)(x), plain(x))
    scalar = [lambda a, f=f: np.sum(f(a)) for f in (inside, plain)]
    for _ in range(order):
        scalar = [lambda a, f=f: np.sum(tg.grad(f)(a) ** 2) for f in scalar]
    np.testing.assert_allclose(tg.trace(scalar[0])(x), tg.trace(scalar[1])(x))


def test_pullbacks_and_traced_functions_and_custom_rules_work_inside() -> None:
    @tg.custom_vjp
    def double(a: Any) -> Any:
        return a * 2.0

    double.defvjp(lambda a: (a * 2.0, None), lambda _, ct: (ct * 3.0,))
    square = tg.trace(lambda a: a * a)

    def f(a: Any) -> Any:
        out, pull = tg.vjp(np.sin, a)

        def body(b: Any) -> Any:
            own = tg.grad(lambda c: np.sum(double(c) * square(c)))(b)
            return pull(b)[0] + own + out

        return applied(body, a)

    np.testing.assert_allclose(tg.trace(f)(x), np.cos(x) * x + 3 * x**2 + 4 * x**2 + np.sin(x))


def test_rules_hold_in_a_region_that_is_differentiated_later() -> None:
    factors = np.array([1.0, 2.0, 3.0])

    @tg.custom_vjp
    def scaled(v: Any) -> Any:
        return v * factors

    scaled.defvjp(lambda v: (scaled(v), v), lambda v, ct: (ct * factors * v * 10.0,))

    @tg.custom_jvp
    def sine(v: Any) -> Any:
        return np.sin(v)

    sine.defjvp(lambda primals, tangents: (sine(primals[0]), tangents[0] * 7.0 * sine(primals[0])))

    def looped(f: Any, v: Any) -> Any:
        return tg.scan(lambda c, _: (f(c), None), v, length=3)[0]

    def unrolled(f: Any, v: Any) -> Any:
        return f(f(f(v)))

    for f in (scaled, sine, lambda v: sine(scaled(v))):
        values = [tg.trace(lambda v, run=run, f=f: run(f, v))(x) for run in (looped, unrolled)]
        np.testing.assert_allclose(*values)
        first = [tg.grad(lambda v, run=run, f=f: np.sum(run(f, v) * v)) for run in (looped, unrolled)]
        np.testing.assert_allclose(first[0](x), first[1](x))
        second = [tg.grad(lambda v, g=g: np.sum(g(v) ** 2))(x) for g in first]
        np.testing.assert_allclose(*second)
    tangents = [tg.jvp(lambda v, run=run: run(sine, v), (x,), (w,))[1] for run in (looped, unrolled)]
    np.testing.assert_allclose(*tangents)


def test_tensors_stand_for_tensors() -> None:
    weight = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def f(t: Any) -> Any:
        return applied(lambda u: (u.relu() * weight).softmax(0).unsqueeze(0), t)

    t = tg.tensor([0.5, -1.0, 2.0], requires_grad=True)
    result = tg.trace(f)(t)
    result.pow(2).sum().backward()
    results = t.grad.numpy(), weight.grad.numpy()
    t.grad = weight.grad = None
    expected = (t.relu() * weight).softmax(0).unsqueeze(0)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy())
    expected.pow(2).sum().backward()
    np.testing.assert_allclose(results[0], t.grad.numpy())
    np.testing.assert_allclose(results[1], weight.grad.numpy())
    assert seen[0][1] == 1
    assert seen[0][3] == (True,)


# -- questions -----------------------------------------------------------------------------------------------------
QUESTIONS = {
    "bool()": (lambda a: 1.0 if a[0] > 0 else 2.0, "tg.where"),
    "int()": (lambda a: operator.call(int, a[0]), "tg.fori_loop"),  # `int(a[0])` is a number of the trace
    "float()": (lambda a: operator.call(float, a[0]), "tg.where"),
    "str()": (lambda a: str(a[0]), "tg.where"),
    "hash()": (lambda a: {1.0: 2.0}[a[0]], "tg.where"),
    "format()": (lambda a: f"{a[0]:.2f}", "tg.where"),
    "an index": (lambda a: [1.0, 2.0][np.argmax(a)], "tg.fori_loop"),
}


@pytest.mark.parametrize("asked", QUESTIONS)
def test_a_question_for_a_value_names_the_line_and_what_to_use_instead(asked: str) -> None:
    question, instead = QUESTIONS[asked]
    f = tg.trace(lambda a: applied(question, a, what="the body of scan"))
    with pytest.raises(TraceError, match=instead) as caught:
        f(x)
    text = str(caught.value)
    assert text.startswith(f"{asked} of a value inside the body of scan")
    assert "test_region.py" in text


def test_a_mask_decides_a_shape() -> None:
    with pytest.raises((TraceError, UnsupportedError), match="test_region"):
        tg.trace(lambda a: applied(lambda b: b[b > 1.0], a))(x)


def test_questions_for_what_the_arguments_have_no_part_in_are_answered_outside() -> None:
    mask = np.array([True, False, True])

    def f(a: Any, n: Any) -> Any:
        def body(b: Any) -> Any:
            total = 0.0
            for _ in range(int(n) + 1):
                total = total + b[mask]
            return total if n * 2 > 5 else -total

        return applied(lambda b: applied(body, b), a)

    traced = tg.trace(f)
    np.testing.assert_allclose(traced(x, 3), 4 * x[mask])
    np.testing.assert_allclose(traced(x, 1), -2 * x[mask])
    assert traced.cache_info().traces == 2


# -- what a region refuses, and what it leaves behind ----------------------------------------------------------------
@pytest.mark.parametrize("make", [lambda a: a, lambda a: a.copy(), lambda a: a.copy()[1:]])
def test_arrays_from_outside_cannot_be_updated_inside(make: Any) -> None:
    def f(a: Any) -> Any:
        y = make(a)

        def body(b: Any) -> Any:
            y[0] = b[0]
            return y

        return applied(body, a, what="the body of scan")

    with pytest.raises(UnsupportedError, match="in-place update of an array from outside of the body of scan"):
        tg.trace(f)(x)


def test_tensors_from_outside_cannot_be_updated_inside() -> None:
    def f(t: Any) -> Any:
        y = t * 1.0

        def body(u: Any) -> Any:
            y.add_(u)
            return y

        return applied(body, t)

    with pytest.raises(UnsupportedError, match="in-place update of an array from outside of the body of a test"):
        tg.trace(f)(tg.tensor([1.0, 2.0]))


def test_arguments_cannot_be_updated_inside() -> None:
    def body(b: Any) -> Any:
        b += 1.0
        return b

    with pytest.raises(UnsupportedError, match="in-place update of an argument of the body of a test"):
        tg.trace(lambda a: applied(body, a))(x)


def test_values_of_a_region_that_escape_say_so() -> None:
    def f(a: Any) -> Any:
        saved = []

        def body(b: Any) -> Any:
            saved.append(b * 2.0)
            return b

        applied(body, a)
        return saved[0] + a

    with pytest.raises(TraceError, match="escaped"):
        tg.trace(f)(x)


def test_an_exception_leaves_the_trace_around_it_as_it_was() -> None:
    def f(a: Any) -> Any:
        def body(b: Any) -> Any:
            raise KeyError("mine")

        with contextlib.suppress(KeyError):
            applied(lambda b: applied(body, b), a)
        y = a * 2.0
        y[0] = 1.0
        return y + applied(lambda b: b, a)

    np.testing.assert_allclose(tg.trace(f)(x), [1.0 + x[0], *(3 * x[1:])])
    assert current_trace() is None


def test_results_that_are_no_arrays_are_named() -> None:
    with pytest.raises(TraceError, match=r"the body of a test must return arrays, but the result\['a'\] is a str"):
        tg.trace(lambda a: applied(lambda b: {"a": "text"}, a))(x)


def test_there_must_be_a_trace() -> None:
    with pytest.raises(TraceError, match="no trace is under way"):
        closed(lambda a: a, (x,), "a test")


def test_nodes_keep_the_lines_of_the_user() -> None:
    traced = tg.trace(lambda a: applied(lambda b: np.tanh(b), a))
    node = next(n for n in traced.graph(x).nodes if n.name == "tanh")
    assert "test_region.py" in node.location


@pytest.mark.parametrize(
    ("row", "rows", "expected"),
    [
        (
            lambda r, x: r * x[0],
            lambda x: w,
            True,
        ),  # of the region's argument, and of one that is differentiated around it
        (lambda r, x: r * 2.0, lambda x: x, True),
        (lambda r, x: tg.grad(lambda z: z * x[0])(r), lambda x: w, True),
        (lambda r, x: r * 2.0, lambda x: w, False),
        (lambda r, x: r * tg.stop_gradient(x[0]), lambda x: w, False),
    ],
)
def test_a_region_knows_what_derivatives_flow_through(row: Any, rows: Any, expected: bool) -> None:
    told = []

    def mapped(r: Any, x: Any) -> Any:
        result = row(r, x)
        trace: Any = current_trace()
        told.append(trace.innermost().has_derivative(result.node))
        return result

    tg.grad(lambda x: np.sum(tg.vmap(lambda r: mapped(r, x))(rows(x))))(x)
    assert told[0] is expected
