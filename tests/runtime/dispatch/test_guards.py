"""Value guards: Python code that asks for values, and the tree of paths that this makes."""

import logging
import math

import numpy as np
import pytest
from hatch import unseen

import tracegrad as tg
from tracegrad.runtime.dispatch import dispatcher


def traces(f):
    return f.cache_info().traces


def test_each_outcome_of_a_branch_is_traced_once():
    def f(x):
        if x.sum() > 0:
            return x * 2
        if (x < -5).any():
            return x - 1
        return -x

    g = tg.trace(f)
    for _ in range(3):
        for x in ([1.0, 2.0], [-1.0, -2.0], [-9.0, 1.0]):
            np.testing.assert_array_equal(g(np.array(x)), f(np.array(x)))
    assert traces(g) == 3
    assert g.cache_info().retraces == 2


def test_a_branch_follows_the_value_of_each_call_not_of_the_first():
    g = tg.trace(lambda x: "positive" if x > 0 else "not positive")
    assert [g(v) for v in (1.0, -1.0, 0.0, 2.0, math.nan)] == ["positive"] + ["not positive"] * 2 + ["positive"] + [
        "not positive"
    ]
    assert traces(g) == 2


def test_bool_of_a_number_guards_its_boolean_only():
    g = tg.trace(lambda x: 1 if x.sum() else 0)
    assert [g(np.array([v])) for v in (3.0, 5.0, 0.0, -2.0, math.nan, -0.0)] == [1, 1, 0, 1, 1, 0]
    assert traces(g) == 2


# Python's own code, which no trace follows, asks a traced value for its number.
converted = unseen(lambda x, kind: kind(x))


def test_int_of_a_float_that_python_asks_for_guards_its_whole_part_only():
    g = tg.trace(lambda x: x * converted(x, int))
    assert [g(v) for v in (2.25, 2.5, 3.5)] == [4.5, 5.0, 10.5]
    assert traces(g) == 2


def test_float_that_python_asks_for_guards_the_value():
    g = tg.trace(lambda x: np.full(2, converted(x.max(), float)) + x.min())
    for x in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0]):
        np.testing.assert_array_equal(g(np.array(x)), np.full(2, max(x) + min(x)))
    assert traces(g) == 2


def test_float_and_int_of_a_value_are_numbers_and_no_questions():
    f = tg.trace(lambda x: (np.full(2, float(x.max())) + int(x[0]), float(x[0]), int(x[1]), max(map(float, x))))
    for x in ([1.0, 2.5], [1.25, 3.0], [-7.5, 1e9]):
        array, least, whole, most = f(np.array(x))
        np.testing.assert_array_equal(array, np.full(2, max(x) + int(x[0])))
        assert (least, whole, most) == (x[0], int(x[1]), max(x))
        assert (type(least), type(whole), type(most)) == (float, int, float)
    assert traces(f) == 1


def test_text_is_that_of_the_value_and_guards_it():
    f = tg.trace(lambda x: (f"{x.sum():.1f}", repr(x), f"{x}"))
    assert f(np.ones(3)) == ("3.0", "array([1., 1., 1.])", "[1. 1. 1.]")
    assert f(np.ones(3) * 2) == ("6.0", "array([2., 2., 2.])", "[2. 2. 2.]")
    assert f.cache_info().traces == 2


def test_what_is_printed_or_logged_is_no_guard(capsys, caplog):
    logger = logging.getLogger("test_guards")

    @tg.trace
    def f(x):
        print("sum", x.sum(), [x[0]])  # noqa: T201
        logger.warning("sum %s %.1f", x.sum(), x[0])
        return x + 1

    for k in range(3):
        f(np.full(2, k + 0.5))
    assert capsys.readouterr().out == "sum 1.0 [np.float64(0.5)]\n"
    assert caplog.text.count("sum 1.0 0.5") == caplog.text.count("sum") == 1
    assert f.cache_info().traces == 1


def test_an_item_is_a_number_and_no_question():
    f = tg.trace(lambda x: x.max().item() * 2 + sum(x.tolist()))
    for x in ([1.0, 2.0], [1.0, 3.0], [4.0, 2.0]):
        assert f(np.array(x)) == max(x) * 2 + sum(x)
        assert type(f(np.array(x))) is float
    assert traces(f) == 1
    g = tg.grad(lambda x: np.sum(x) * x[0].item() + sum(x.tolist()))
    np.testing.assert_allclose(g(np.array([2.0, 3.0])), [8.0, 3.0])


def test_minus_zero_and_nan_are_values_of_their_own():
    g = tg.trace(lambda x: math.copysign(1.0, converted(x, float)) if not math.isnan(converted(x, float)) else 5.0)
    values = [0.0, -0.0, math.nan, math.nan, 0.0, -0.0]
    assert [g(np.float64(v)) for v in values] == [1.0, -1.0, 5.0, 5.0, 1.0, -1.0]
    assert traces(g) == 3


def test_a_loop_over_values_is_one_path_for_all_numbers_of_iterations():
    def f(x):
        steps = 0
        while x > 1.0:
            x = x / 2
            steps += 1
        return x, steps

    g = tg.trace(f)
    for v in (8.0, 5.0, 0.5, 100.0, 8.0, 7.0, 100.0):
        assert g(np.float64(v)) == f(v)
    assert traces(g) == 2


def test_numbers_used_as_sizes_and_indices_are_guarded():
    def f(x, n):
        return sum((x[i] for i in range(n)), np.zeros(n)) + np.arange(n)

    g = tg.trace(f)
    x = np.arange(12.0)
    for n in (2, 3, 2):
        np.testing.assert_array_equal(g(x, n), f(x, n))
    assert traces(g) == 2


def test_derivatives_follow_the_path_taken():
    def f(x):
        return np.sum(x**2) if x[0] > 0 else np.sum(np.sin(x))

    g = tg.grad(tg.trace(f))
    for x in (np.array([1.0, 2.0]), np.array([-1.0, 2.0])):
        np.testing.assert_allclose(g(x), 2 * x if x[0] > 0 else np.cos(x), rtol=1e-14)
    assert traces(g) == 2


def test_values_are_asked_of_fresh_copies_and_inner_derivatives_too():
    def slope(x):
        return tg.grad(lambda y: y * y * y)(x)

    g = tg.trace(lambda x: slope(x) if slope(x) > 3.0 else -slope(x))
    assert [g(v) for v in (2.0, 0.5, 3.0)] == [12.0, -0.75, 27.0]
    assert traces(g) == 2


def test_an_error_on_a_path_not_taken_is_not_raised():
    def f(x, i):
        return x[i] if i.max() < 3 else x * 0 - 1

    g = tg.trace(f)
    x = np.arange(3.0)
    np.testing.assert_array_equal(g(x, np.array([2, 0, 1])), [2, 0, 1])
    np.testing.assert_array_equal(g(x, np.array([2, 9, 1])), [-1, -1, -1])
    np.testing.assert_array_equal(g(x, np.array([0, 0, 1])), [0, 0, 1])
    assert traces(g) == 2


def test_an_error_of_the_user_depends_on_the_value_and_leaves_no_program():
    @tg.trace
    def f(x):
        if x.sum() < 0:
            raise ValueError("negative")
        return x + 1

    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            f(-np.ones(2))
    np.testing.assert_array_equal(f(np.ones(2)), [2, 2])
    with pytest.raises(ValueError, match="negative"):
        f(-np.ones(2))
    assert traces(f) == 1


def test_answers_computed_by_the_program_decide_where_numpy_rounds_otherwise(monkeypatch):
    # As if the compiled sum differed from NumPy's in the last bit, across the threshold.
    from tracegrad.trace.builder.builder import TraceBuilder

    honest = TraceBuilder.compute

    def other(self, node):
        value = honest(self, node)
        return np.asarray(not value) if value.dtype == bool else value

    monkeypatch.setattr(TraceBuilder, "compute", other)
    g = tg.trace(lambda x: x * 2 if x.sum() > 0 else x * 3)
    for _ in range(3):
        np.testing.assert_array_equal(g(np.ones(2)), [2, 2])
    assert traces(g) == 2


def test_too_many_paths_run_as_plain_python(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_PATHS", 3)
    g = tg.trace(lambda x: x * converted(x.sum(), float))
    for k in range(6):
        x = np.full(2, k + 0.5)
        np.testing.assert_array_equal(g(x), x * x.sum())
    (spec,) = g._specializations.values()
    assert len(spec.paths) == 3
    assert traces(g) == 3


def test_derivatives_keep_the_paths_that_were_used_last(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_PATHS", 3)
    derivative = tg.grad(lambda x: np.sum(np.array([x[0], x[1] ** 2])) * len(f"{float(x.sum()):.0f}"))
    for k in range(6):
        for _ in range(3):
            np.testing.assert_array_equal(derivative(np.array([10.0**k, 0.5])), [k + 1.0, k + 1.0])
        assert traces(derivative) == k + 1
    (spec,) = derivative._specializations.values()
    assert len(spec.paths) == 3


def test_a_function_that_meets_many_objects_keeps_the_paths_of_the_last(monkeypatch):
    monkeypatch.setattr(dispatcher, "MAX_PATHS", 3)
    models = [eval(f"lambda x: x ** {k}", {}) for k in range(2, 8)]

    def derivative_of(model):
        return tg.grad(lambda x: np.sum(np.array([model(x[0])])))

    for k, model in enumerate(models, 2):
        derivative = derivative_of(model)
        for _ in range(2):
            np.testing.assert_allclose(derivative(np.array([3.0])), [k * 3.0 ** (k - 1)])
    (spec,) = derivative._specializations.values()
    assert len(spec.paths) == 3
    before = traces(derivative)
    derivative_of(models[-2])(np.array([3.0]))
    assert traces(derivative) == before
    np.testing.assert_allclose(derivative_of(models[0])(np.array([3.0])), [6.0])


def logged(x):
    return f"{float(x.sum()):.2f}"


def branching(x):
    return sum(v for v in x if v > 0)


def counting(x):
    return x * len(str(COUNT))


COUNT = 0


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (logged, r"format\(\) at \S*test_guards.py:\d+ has another answer.*outside"),
        (branching, r"bool\(\) at \S*test_guards.py:\d+ has another answer.*np.where"),
        (counting, "the global COUNT has changed.*as an argument"),
    ],
)
def test_a_function_that_is_traced_time_after_time_says_so_once_and_why(f, message, monkeypatch):
    g, rng = tg.trace(f), np.random.default_rng(0)

    def calls(count):
        for _ in range(count):
            monkeypatch.setitem(globals(), "COUNT", COUNT + 1)
            x = rng.normal(size=12)
            assert np.all(g(x) == f(x)) or np.allclose(g(x), f(x))

    calls(5)
    with pytest.warns(tg.PerformanceWarning, match=f"{f.__name__} has been traced .*{message}") as caught:
        calls(20)
    assert len(caught) == 1
    calls(5)


def test_the_value_of_an_array_can_be_asked_for_as_a_whole():
    g = tg.trace(lambda x: x.tolist())
    assert g(np.array([1.0, 2.0])) == [1.0, 2.0]
    assert g(np.array([1.0, 3.0])) == [1.0, 3.0]


def test_the_boolean_of_an_array_is_ambiguous_as_in_numpy():
    with pytest.raises(ValueError, match=r"ambiguous.*test_guards.py:\d+"):
        tg.trace(lambda x: 1 if x else 2)(np.ones(2))


def test_only_what_is_asked_for_is_computed_while_tracing(monkeypatch):
    from tracegrad.trace.builder.builder import TraceBuilder

    seen = []
    honest = TraceBuilder.compute
    monkeypatch.setattr(TraceBuilder, "compute", lambda self, node: seen.append(node.name) or honest(self, node))
    g = tg.trace(lambda x: np.exp(x) if x.sum() > 0 else x)
    g(np.ones(2))
    assert set(seen) == {"greater"}
