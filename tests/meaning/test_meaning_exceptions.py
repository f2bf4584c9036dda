"""Traced code raises what Python and NumPy raise, where they do, and leaves what they leave."""

from __future__ import annotations

import contextlib
import sys
import traceback
import warnings
from typing import Any

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg

EYE = np.eye(2)
SINGULAR = np.ones((2, 2))
LinAlgError = np.linalg.LinAlgError


# -- an operation raises ------------------------------------------------------------------------------------------
@program
def test_a_failed_factorization_takes_the_except_branch_whatever_the_first_call_did(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        try:
            L = np.linalg.cholesky(K)
        except LinAlgError:
            return K * 0.5
        return L * 2.0

    @trace
    def g(K: Any) -> Any:
        try:
            L = np.linalg.cholesky(K)
        except LinAlgError:
            return K * 0.5
        return L * 2.0

    for sign in (1.0, -1.0, 1.0, -1.0, -1.0, 1.0):
        yield f(sign * EYE), g(-sign * EYE)


@program
def test_jitter_is_added_until_it_works(trace: Any) -> Any:
    @trace
    def f(K: Any, y: Any) -> Any:
        jitter = 1e-8
        for _ in range(12):
            try:
                return np.linalg.solve(np.linalg.cholesky(K + jitter * np.eye(2)), y), jitter
            except LinAlgError:
                jitter *= 10.0
        raise LinAlgError("hopeless")

    for scale in (0.0, 1e-5, 1e-2, 0.0, 1e9):
        yield attempt(f, np.ones((2, 2)) - scale * EYE, np.arange(2.0), text=True)


@program
def test_a_factorization_is_tried_for_its_exception_alone(trace: Any) -> Any:
    @trace
    def is_definite(K: Any) -> Any:
        try:
            np.linalg.cholesky(K)
        except LinAlgError:
            return False
        return True

    for sign in (1.0, -1.0, 1.0, -1.0):
        yield is_definite(sign * EYE)


@program
def test_a_factorization_nobody_uses_still_raises(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        np.linalg.cholesky(K)
        return K + 1.0

    for sign in (1.0, -1.0, 1.0, -1.0):
        yield attempt(f, sign * EYE, text=True)


@program
def test_one_failure_is_raised_again_where_it_is_met_again(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        tried = 0
        for _ in range(3):
            try:
                return np.linalg.inv(K), tried
            except LinAlgError:
                tried += 1
        return K, tried

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        yield f(K)


@program
def test_a_failure_before_the_try_is_not_caught_by_it(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        y = np.linalg.inv(K)
        try:
            return np.linalg.cholesky(y)
        except LinAlgError:
            return K

    for K in (EYE, SINGULAR, -EYE, EYE, SINGULAR, -EYE):
        yield attempt(f, K, text=True)


@program
def test_an_index_nobody_uses_still_raises(trace: Any) -> Any:
    @trace
    def f(x: Any, i: Any) -> Any:
        x[i]
        return x + 1.0

    for i in (np.array([0]), np.array([5]), np.array([1])):
        yield attempt(f, np.ones(3), i, text=True)


def test_a_caught_failure_is_a_path_that_is_traced_once() -> None:
    @tg.trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.cholesky(K) * 2.0
        except LinAlgError:
            return K * 0.5

    for sign in (1.0, -1.0) * 4:
        np.testing.assert_allclose(f(sign * EYE), EYE * (2.0 if sign > 0 else -0.5))
    assert f.cache_info().traces == 2


def test_a_factorization_within_a_try_is_computed_once() -> None:
    @tg.trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.cholesky(K)
        except LinAlgError:
            return K

    assert sum(": call over" in line for line in f.explain(EYE).groups) == 1


@program
def test_an_exception_that_nobody_catches_reaches_the_caller(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        return np.linalg.inv(K)

    for K in (SINGULAR, EYE, SINGULAR, SINGULAR, 2 * EYE):
        yield attempt(f, K, text=True)


@program
def test_else_and_finally(trace: Any) -> Any:
    log: list[str] = []

    @trace
    def f(K: Any) -> Any:
        try:
            y = np.linalg.inv(K)
        except LinAlgError:
            return K - 1.0
        else:
            y = y + 1.0
        finally:
            K = K * 2.0
        return y + K

    for K in (EYE, SINGULAR, 2 * EYE, SINGULAR):
        yield f(K), list(log)


@program
def test_nested_tries(trace: Any) -> Any:
    @trace
    def f(A: Any, B: Any) -> Any:
        try:
            try:
                x = np.linalg.inv(A)
            except IndexError:
                x = A
            return x + np.linalg.inv(B)
        except LinAlgError:
            try:
                return np.linalg.cholesky(A)
            except LinAlgError:
                return B * 3.0

    for A in (EYE, SINGULAR, -EYE):
        for B in (EYE, SINGULAR):
            yield f(A, B)


@program
def test_an_exception_passes_through_helpers(trace: Any) -> Any:
    def half(K: Any) -> Any:
        return np.linalg.inv(K)

    def whole(K: Any) -> Any:
        return half(K) + half(K + EYE)

    @trace
    def f(K: Any) -> Any:
        try:
            return whole(K)
        except LinAlgError:
            return K

    for K in (EYE, SINGULAR, -EYE, EYE):
        yield f(K)


@program
def test_suppress_and_exit_methods_may_swallow(trace: Any) -> Any:
    class Guarded:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, kind: Any, error: Any, tb: Any) -> Any:
            return kind is LinAlgError

    @trace
    def f(K: Any) -> Any:
        y = K * 2.0
        with contextlib.suppress(LinAlgError):
            y = np.linalg.inv(K)
        return y

    @trace
    def g(K: Any) -> Any:
        y = K * 2.0
        with Guarded():
            y = np.linalg.inv(K)
        return y

    for K in (EYE, SINGULAR, 3 * EYE, SINGULAR):
        yield f(K), g(K)


@program
def test_an_index_that_is_out_of_range_is_caught(trace: Any) -> Any:
    @trace
    def f(x: Any, i: Any) -> Any:
        try:
            return x[i] * 2.0
        except IndexError:
            return x[:2] + 1.0

    @trace
    def text(x: Any, i: Any) -> Any:
        try:
            return x[i]
        except IndexError as error:
            return str(error)

    x = np.arange(4.0)
    for i in (np.array([0, 3]), np.array([0, 4]), np.array([9, 1]), np.array([-4, 1]), np.array([-5, 1])):
        yield f(x, i), text(x, i)


@program
def test_an_index_by_number_that_is_out_of_range(trace: Any) -> Any:
    @trace
    def f(x: Any, i: Any) -> Any:
        try:
            return x[i]
        except IndexError:
            return x.sum()

    x = np.arange(4.0)
    for i in (1, 7, 2, -5, 8):
        yield f(x, i)


@program
def test_take_and_put_out_of_range(trace: Any) -> Any:
    @trace
    def f(x: Any, i: Any) -> Any:
        y = np.zeros(3)
        y[i] = 1.0
        return np.take(x, i) + y[i]

    for i in (np.array([0, 2]), np.array([0, 3]), np.array([1, 1])):
        yield attempt(f, np.arange(3.0), i)


@program
def test_an_exception_in_a_loop_over_rows(trace: Any) -> Any:
    @trace
    def f(Ks: Any) -> Any:
        good = 0
        total = np.zeros((2, 2))
        for K in Ks:
            try:
                total = total + np.linalg.inv(K)
                good += 1
            except LinAlgError:
                continue
        return total, good

    for pattern in ([1, 1, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0]):
        yield f(np.stack([EYE if p else SINGULAR for p in pattern]))


@program
def test_eigenvalues_of_what_is_not_finite(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.eigh(K)[0]
        except LinAlgError:
            return np.full(2, -1.0)

    for scale in (1.0, np.nan, 2.0):
        yield f(scale * EYE)


@program
def test_what_comes_before_the_exception_is_kept(trace: Any) -> Any:
    @trace
    def f(K: Any, x: Any) -> Any:
        y = x + 1.0
        try:
            y = y * 2.0
            y = np.linalg.solve(K, y)
            y = y + 100.0
        except LinAlgError:
            y = y - 0.5
        return y

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        yield f(K, np.arange(2.0))


@program
def test_the_exception_is_an_object(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.inv(K)
        except (ValueError, TypeError) as error:
            return type(error).__name__, str(error), error.args

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        yield f(K)


# -- the function raises ------------------------------------------------------------------------------------------
@program
def test_a_raise_after_a_comparison(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        if x.sum() < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    for v in (1.0, -1.0, 4.0, -1.0, -2.0, 9.0):
        yield attempt(f, np.full(2, v), text=True)


@program
def test_an_assert(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        assert x[0] > 0, "first"
        assert (x > 0).all(), f"least {x.min():.1f}"
        return np.log(x)

    for x in ([1.0, 2.0], [-1.0, 2.0], [1.0, -2.0], [1.0, -3.0], [2.0, 2.0]):
        yield attempt(f, np.array(x))


class Bad(Exception):
    def __init__(self, where: Any, value: Any):
        super().__init__("bad", where, value)
        self.value = value


@program
def test_values_in_an_exception_are_values(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        y = x * 2.0
        if y.max() > 5.0:
            raise Bad(np.argmax(y), y.max())
        return y

    for v in (1.0, 3.0, 4.0, 1.0, 3.0):
        result = attempt(f, np.array([v, 0.5]), text=True)
        yield result, getattr(getattr(result, "error", None), "value", None)


@program
def test_cause_and_context(trace: Any) -> Any:
    @trace
    def f(K: Any, how: Any) -> Any:
        try:
            return np.linalg.inv(K)
        except LinAlgError as error:
            if how > 1.0:
                raise ValueError("from") from error
            if how > 0.0:
                raise ValueError("in") from None
            raise KeyError("while")  # noqa: B904

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        for how in (0.0, 1.0, 2.0):
            result = attempt(f, K, how, text=True)
            error = getattr(result, "error", None)
            chain = [] if error is None else [error.__cause__, error.__context__, error.__suppress_context__]
            yield result, [(type(e).__name__, str(e)) for e in chain]


@program
def test_a_bare_raise_gives_the_same_exception(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.inv(K)
        except LinAlgError:
            K = K + 1.0
            raise

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        yield attempt(f, K, text=True)


@program
def test_an_exception_group(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        results: list[Exception] = []
        results += [ValueError("negative") for v in x if v < 0]
        results += [OverflowError("large") for v in x if v > 10]
        if results:
            raise ExceptionGroup("several", results)
        return x * 2.0

    @trace
    def g(x: Any) -> Any:
        try:
            return f(x)
        except* ValueError:
            y = x - 1.0
        except* OverflowError:
            y = x + 1.0
        return y

    for x in ([1.0, 2.0], [-1.0, 20.0], [-1.0, 2.0], [1.0, 2.0], [11.0, 3.0]):
        yield attempt(f, np.array(x)), attempt(g, np.array(x))


@program
def test_a_users_exception_is_caught_in_the_function(trace: Any) -> Any:
    class TooLarge(Exception):
        pass

    def checked(x: Any) -> Any:
        if np.abs(x).max() > 2.0:
            raise TooLarge
        return x

    @trace
    def f(x: Any) -> Any:
        try:
            return checked(x * 2.0)
        except TooLarge:
            return np.clip(x, -1.0, 1.0)

    for v in (0.5, 3.0, 0.75, 4.0):
        yield f(np.array([v, -v]))


@program
def test_return_in_finally_swallows(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        y = K
        try:
            y = np.linalg.inv(K)
        finally:
            return y * 3.0  # noqa: B012

    for K in (EYE, SINGULAR, 2 * EYE, SINGULAR):
        yield f(K)


@program
def test_a_retry_by_decorator(trace: Any) -> Any:
    def retrying(fun: Any) -> Any:
        def call(K: Any) -> Any:
            for _ in range(3):
                try:
                    return fun(K)
                except LinAlgError:
                    K = K + np.eye(2)
            raise RuntimeError("gave up")

        return call

    @trace
    @retrying
    def f(K: Any) -> Any:
        return np.linalg.cholesky(K)

    for scale in (1.0, -0.5, -1.5, -9.0, 1.0):
        yield attempt(f, scale * EYE, text=True)


@program
def test_a_generator_that_raises(trace: Any) -> Any:
    def rows(x: Any) -> Any:
        try:
            for row in x:
                if row[0] < 0:
                    raise ValueError("row")
                yield row * 2.0
        finally:
            pass

    @trace
    def f(x: Any) -> Any:
        try:
            return np.stack(list(rows(x)))
        except ValueError:
            return -x

    for v in (1.0, -1.0, 2.0, -2.0):
        yield f(np.array([[1.0, 2.0], [v, 3.0]]))


@program
def test_stop_iteration_ends_a_loop(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        rows = iter(x)
        total = 0.0
        try:
            while True:
                total = total + next(rows)
        except StopIteration:
            return total

    yield f(np.arange(3.0))
    yield f(np.arange(4.0))


@program
def test_a_key_that_is_missing(trace: Any) -> Any:
    table = {"a": 2.0}

    @trace
    def f(x: Any, key: Any = "a") -> Any:
        try:
            return x * table["b"]
        except KeyError as error:
            return x * table["a"], error.args

    yield f(np.ones(2))
    table["b"] = 5.0
    yield f(np.ones(2))
    del table["b"]
    yield f(np.ones(2))


@program
def test_a_traced_function_that_calls_a_traced_function_that_raises(trace: Any) -> Any:
    @trace
    def inner(x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("inner")
        return np.linalg.inv(x[1:].reshape(2, 2))

    @trace
    def outer(x: Any) -> Any:
        try:
            return inner(x) * 2.0
        except ValueError as error:  # LinAlgError is one
            return str(error)

    for x in ([1.0, 1, 0, 0, 1], [-1.0, 1, 0, 0, 1], [1.0, 1, 1, 1, 1], [1.0, 2, 0, 0, 2]):
        yield outer(np.array(x)), attempt(inner, np.array(x), text=True)


# -- what a failing call leaves -----------------------------------------------------------------------------------
@program
def test_effects_before_the_exception_stay_and_those_behind_do_not_happen(trace: Any) -> Any:
    class Box:
        before = after = 0

    box, log = Box(), []
    counts = {"n": 0}

    @trace
    def f(x: Any) -> Any:
        box.before += 1
        log.append("begun")
        counts["n"] += 1
        if x[0] < 0:
            raise ValueError("negative")
        box.after += 1
        log.append("done")
        return x * 2.0

    for v in (1.0, -1.0, 2.0, -2.0, -3.0, 1.0):
        yield attempt(f, np.array([v]), text=True), box.before, box.after, list(log), counts["n"]


@program
def test_effects_before_an_operation_that_fails(trace: Any) -> Any:
    state = {"calls": 0, "good": 0}

    @trace
    def f(K: Any) -> Any:
        state["calls"] += 1
        y = np.linalg.inv(K)
        state["good"] += 1
        return y

    for K in (EYE, SINGULAR, EYE, SINGULAR, SINGULAR):
        yield attempt(f, K, text=True), dict(state)


@program
def test_finally_has_effects_on_both_ways(trace: Any) -> Any:
    depth = {"now": 0, "left": 0}

    @trace
    def f(K: Any) -> Any:
        depth["now"] += 1
        try:
            return np.linalg.inv(K)
        finally:
            depth["now"] -= 1
            depth["left"] += 1

    for K in (EYE, SINGULAR, EYE, SINGULAR, SINGULAR):
        yield attempt(f, K, text=True), dict(depth)


@program
def test_a_context_manager_of_the_users_is_left(trace: Any) -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def section(name: Any) -> Any:
        log.append(("enter", name))
        try:
            yield name
        except ValueError as error:
            log.append(("error", str(error)))
            raise
        finally:
            log.append(("exit", name))

    @trace
    def f(x: Any) -> Any:
        with section("a"):
            if x[0] < 0:
                raise ValueError("negative")
            return x * 2.0

    for v in (1.0, -1.0, 2.0, -2.0):
        yield attempt(f, np.array([v]), text=True), list(log)


@program
def test_an_argument_updated_in_place_before_the_exception(trace: Any) -> Any:
    @trace
    def f(params: Any, x: Any) -> Any:
        params["w"] = params["w"] + x
        if x[0] < 0:
            raise ValueError("negative")
        params["w"] = params["w"] * 2.0
        return params["w"].sum()

    params = {"w": np.ones(2)}
    for v in (1.0, -1.0, 2.0, -2.0):
        yield attempt(f, params, np.full(2, v), text=True), params["w"]


@program
def test_an_except_branch_has_effects_of_its_own(trace: Any) -> Any:
    failures: list[int] = []

    @trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.inv(K)
        except LinAlgError:
            failures.append(len(failures))
            return K

    for K in (EYE, SINGULAR, SINGULAR, EYE, SINGULAR):
        yield f(K), list(failures)


@program
def test_other_calls_work_after_an_exception(trace: Any) -> Any:
    @trace
    def f(x: Any, K: Any) -> Any:
        if x.shape[0] == 3:
            raise ValueError("three")
        return np.linalg.solve(K, x)

    for n, K in ((3, EYE), (2, SINGULAR), (2, EYE), (3, SINGULAR), (2, EYE), (2, SINGULAR)):
        yield attempt(f, np.ones(n), K, text=True)


# -- more of both ---------------------------------------------------------------------------------------------------
@program
def test_the_text_of_an_exception_is_kept_in_an_attribute(trace: Any) -> Any:
    class Box:
        last = None

    box = Box()

    @trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.inv(K)
        except LinAlgError as e:
            box.last = str(e)
            return K

    for K in (EYE, SINGULAR, EYE):
        yield f(K), box.last


@program
def test_exceptions_are_kept_in_a_list(trace: Any) -> Any:
    errs = []

    @trace
    def f(K: Any) -> Any:
        try:
            return np.linalg.inv(K)
        except LinAlgError as e:
            errs.append(e)
            return K

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        yield f(K), [type(e).__name__ + str(e) for e in errs]


class Negative(Exception):
    pass


@program
def test_an_exception_carries_a_value_to_the_except_branch(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            if x[0] < 0:
                raise Negative(x * 2)
            return x
        except Negative as e:
            return e.args[0] + 1

    for v in (1.0, -1.0, 2.0, -3.0):
        yield f(np.array([v, 1.0]))


# The context manager is made in the traced code, so its methods are not seen.
@pytest.mark.filterwarnings("ignore:.*no trace sees:tracegrad.errors.PerformanceWarning")
@program
def test_an_exit_method_is_told_of_the_exception(trace: Any) -> Any:
    log = []

    class C:
        def __enter__(s) -> Any:
            return s

        def __exit__(s, t: Any, v: Any, tb: Any) -> Any:
            log.append(None if t is None else t.__name__)
            return False

    @trace
    def f(x: Any) -> Any:
        with C():
            if x[0] < 0:
                raise ValueError("n")
        return x

    for v in (1.0, -1.0, 2.0, -3.0):
        yield attempt(f, np.array([v]), text=True), list(log)


@program
def test_a_method_that_counts_and_raises(trace: Any) -> Any:
    class M:
        n = 0

        def __init__(s) -> Any:
            s.w = np.ones(2)

        @trace
        def step(s, x: Any) -> Any:
            s.n += 1
            s.w = s.w - x
            if s.w[0] < -1:
                raise OverflowError("w", s.n)
            return s.w.sum()

    m = M()
    for v in (1.0, 0.5, 1.0, 1.0, 0.25):
        yield attempt(m.step, np.full(2, v), text=True), m.n, m.w


@program
def test_a_raise_in_a_comprehension(trace: Any) -> Any:
    def chk(v: Any) -> Any:
        if v < 0:
            raise ValueError("neg")
        return v * 2

    @trace
    def f(x: Any) -> Any:
        try:
            return np.array([chk(v) for v in x])
        except ValueError:
            return x

    for v in (1.0, -1.0, 2.0):
        yield f(np.array([v, 2.0]))


@program
def test_a_property_that_raises(trace: Any) -> Any:
    class P:
        def __init__(s) -> Any:
            s.x = np.ones(2)
            s.ok = True

        @property
        def y(s) -> Any:
            if not s.ok:
                raise AttributeError("not ok")
            return s.x * 2

    p = P()

    @trace
    def f(a: Any) -> Any:
        return a + getattr(p, "y", 0.0)

    yield f(np.ones(2))
    p.ok = False
    yield f(np.ones(2))
    p.ok = True
    yield f(np.ones(2))


@program
def test_a_division_by_zero_that_is_caught(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any) -> Any:
        try:
            return x / (1 / n)
        except ZeroDivisionError:
            return x * 0.0

    for n in (1, 0, 2, 0, 0.0, 4.0):
        yield f(np.ones(2), n)


@program
def test_a_division_by_zero_that_is_not_caught(trace: Any) -> Any:
    s = {"n": 0}

    @trace
    def f(x: Any, n: Any) -> Any:
        s["n"] += 1
        return x * (1 // n)

    for n in (1, 0, 2, 0, 3):
        yield attempt(f, np.ones(2), n, text=True), s["n"]


@program
def test_shapes_that_do_not_fit(trace: Any) -> Any:
    s = {"n": 0}

    @trace
    def f(x: Any, y: Any) -> Any:
        s["n"] += 1
        try:
            return x + y
        except ValueError:
            return x

    for n in (2, 3, 2, 3):
        yield attempt(f, np.ones(2), np.ones(n)), s["n"]


@program
def test_what_is_no_integer(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            return int(x.sum())
        except (ValueError, OverflowError) as e:
            return type(e).__name__

    for v in (1.0, np.nan, np.inf, 2.0):
        yield f(np.array([v, 1.0]))


@program
def test_an_iterator_that_ends_in_a_try(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        it = iter([1.0, 2.0])
        out = x
        for _ in range(3):
            try:
                out = out + next(it)
            except StopIteration:
                out = out * 10
        return out

    yield f(np.ones(2))
    yield f(np.zeros(2))


@program
def test_a_failure_in_a_scan(trace: Any) -> Any:
    @trace
    def f(Ks: Any) -> Any:
        try:
            return tg.scan(lambda c, K: (c + np.linalg.inv(K), c), np.zeros((2, 2)), Ks)[0]
        except LinAlgError:
            return Ks[0]

    for P in (EYE, SINGULAR, EYE):
        yield f(np.stack([EYE, P]))


@program
def test_a_failure_in_a_batch(trace: Any) -> Any:
    @trace
    def f(Ks: Any) -> Any:
        try:
            return tg.vmap(np.linalg.inv)(Ks)
        except LinAlgError:
            return Ks

    for P in (EYE, SINGULAR, EYE):
        yield f(np.stack([EYE, P]))


@program
def test_a_try_in_one_branch(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        if x[0] > 0:
            try:
                return np.linalg.cholesky(x[1] * EYE)
            except LinAlgError:
                if x[0] > 5:
                    raise
                return EYE * x[0]
        return EYE * 0

    for a, b in ((1.0, 1.0), (1.0, -1.0), (6.0, -1.0), (-1.0, -1.0), (1.0, 4.0), (7.0, -2.0)):
        yield attempt(f, np.array([a, b]), text=True)


@program
def test_a_warning_that_is_an_error(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        if x[0] < 0:
            warnings.warn("neg", UserWarning, stacklevel=1)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for v in (1.0, -1.0, 1.0, -1.0):
            yield attempt(f, np.array([v]), text=True)


@program
def test_a_raise_in_a_recursion(trace: Any) -> Any:
    @trace
    def f(x: Any, n: Any = 3) -> Any:
        if n == 0:
            if x[0] < 0:
                raise ValueError("deep")
            return x
        return f(x * 1.0, n - 1) + 1

    for v in (1.0, -1.0, 2.0):
        yield attempt(f, np.array([v]), text=True)


@program
def test_a_recursion_that_is_too_deep(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        def g(n: Any) -> Any:
            return g(n + 1)

        try:
            return g(0)
        except RecursionError:
            return x

    yield f(np.ones(2))
    yield f(np.zeros(2))


@program
def test_an_array_is_written_before_a_failure(trace: Any) -> Any:
    @trace
    def f(x: Any, K: Any) -> Any:
        x[0] = 5.0
        y = np.linalg.inv(K)
        x[1] = 6.0
        return y

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        x = np.zeros(2)
        yield attempt(f, x, K, text=True), x


@program
def test_an_array_is_written_in_each_clause(trace: Any) -> Any:
    @trace
    def f(x: Any, K: Any) -> Any:
        try:
            np.linalg.inv(K)
            x[1] = 1.0
        except LinAlgError:
            x[0] += 1
        finally:
            x[2] += 1

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        x = np.zeros(3)
        yield attempt(f, x, K, text=True), x


@program
def test_a_nonlocal_count_is_in_the_exception(trace: Any) -> Any:
    n = 0

    @trace
    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        if x[0] < 0:
            raise ValueError(n)
        return x * n

    for v in (1.0, -1.0, 1.0, -1.0, 1.0):
        yield attempt(f, np.array([v]), text=True), n


@program
def test_decompositions_of_what_is_not_finite(trace: Any) -> Any:
    @trace
    def f(K: Any) -> Any:
        out = []
        for g in (np.linalg.svd, np.linalg.pinv, np.linalg.det, np.linalg.matrix_rank):
            try:
                out.append(g(K)[..., 0] if g is np.linalg.pinv else 1.0)
            except LinAlgError:
                out.append(-1.0)
        return out

    for s in (1.0, np.nan, 2.0):
        try:
            yield f(s * EYE)
        except Exception as e:
            yield type(e).__name__


@program
def test_notes_of_an_exception(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            if x[0] < 0:
                raise ValueError("a")
        except ValueError as e:
            e.add_note(f"value {float(x[0])}")
            raise
        return x

    for v in (1.0, -1.0, -2.0):
        r = attempt(f, np.array([v]), text=True)
        yield r, getattr(getattr(r, "error", None), "__notes__", None)


@program
def test_a_generator_is_closed_before_its_end(trace: Any) -> Any:
    log = []

    @trace
    def f(x: Any) -> Any:
        def g() -> Any:
            try:
                yield x
                yield x * 2
            finally:
                log.append("closed")

        it = g()
        a = next(it)
        it.close()
        return a

    yield f(np.ones(2)), list(log)
    yield f(np.ones(2)), list(log)


@program
def test_an_exit_that_is_caught(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            if x[0] < 0:
                sys.exit(3)
        except SystemExit as e:
            return x * e.code
        return x

    for v in (1.0, -1.0, 2.0):
        yield f(np.array([v]))


@program
def test_an_exit_that_is_not_caught(trace: Any) -> Any:
    s = []

    @trace
    def f(x: Any) -> Any:
        s.append(1)
        if x[0] < 0:
            raise SystemExit(4)
        return x

    for v in (1.0, -1.0, 2.0, -1.0):
        try:
            yield f(np.array([v])), len(s)
        except SystemExit as e:
            yield e.code, len(s)


@program
def test_a_shape_that_does_not_fit(trace: Any) -> Any:
    @trace
    def f(x: Any, shape: Any) -> Any:
        try:
            return x.reshape(shape)
        except ValueError:
            return -x

    yield f(np.arange(6.0), (2, 3))
    yield f(np.arange(6.0), (4, 2))
    yield f(np.arange(6.0), (3, 2))


# -- floating-point errors ---------------------------------------------------------------------------------------
@program
def test_floating_point_errors_that_the_caller_asks_for(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        return np.exp(x) / x

    @trace
    def g(x: Any, y: Any = 1.0) -> Any:
        return np.sqrt(x) * y

    for v in (1.0, 2.0):
        yield f(np.full(2, v)), g(np.full(2, v)), g(np.full(2, v), y=2.0)
    for _ in range(2):
        for kind in ("raise", "ignore"):
            with np.errstate(all=kind):
                for v in (1.0, 0.0, 1000.0, -1.0):
                    yield attempt(f, np.full(2, v), text=True)
                    yield attempt(g, np.full(2, v), text=True), attempt(g, np.full(2, v), y=2.0, text=True)
        before = np.seterr(all="ignore")
        yield f(np.zeros(2)), np.geterr()
        np.seterr(**before)


@pytest.mark.filterwarnings("ignore::tracegrad.errors.PerformanceWarning")
@program
def test_floating_point_errors_that_the_function_asks_for(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            with np.errstate(divide="raise", over="raise"):
                return np.exp(1.0 / x)
        except FloatingPointError as error:
            return x, str(error)

    @trace
    def g(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return np.log(x)

    for v in (1.0, 0.0, 1e-3, 2.0, 0.0):
        yield f(np.full(2, v)), g(np.full(2, v))


def test_integers_divided_by_zero_raise_where_that_is_asked_for() -> None:
    f = tg.trace(lambda x, y: x // y)
    x, y = np.arange(3), np.array([1, 0, 2])
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(f(x, y), [0, 0, 1])
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        f(x, y)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(f(x, y), [0, 0, 1])


def test_a_function_that_asks_for_floating_point_errors_says_that_it_is_slow() -> None:
    @tg.trace
    def f(x: Any) -> Any:
        with np.errstate(over="raise"):
            return np.exp(x)

    with pytest.warns(tg.PerformanceWarning, match=r"f runs as plain Python.*floating-point errors \(.*exceptions\.py"):
        f(np.ones(2))


# -- tracebacks ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("first", [EYE, SINGULAR])
def test_the_traceback_of_every_call_shows_the_line(first: Any) -> None:
    def inner(K: Any) -> Any:
        return np.linalg.inv(K)  # here

    @tg.trace
    def f(K: Any) -> Any:
        return inner(K * 1.0) + 1.0

    with contextlib.suppress(LinAlgError):
        f(first)
    for _ in range(3):
        with pytest.raises(LinAlgError) as caught:
            f(SINGULAR)
        lines = [frame.line or "" for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert any(line.endswith("# here") for line in lines), lines
        assert getattr(caught.value, "__notes__", []) == []


# -- derivatives --------------------------------------------------------------------------------------------------
@program
def test_the_derivative_is_that_of_the_branch_that_was_taken(trace: Any) -> Any:
    def f(K: Any) -> Any:
        try:
            return np.sum(np.linalg.cholesky(K)[1])
        except LinAlgError:
            return np.sum(K**2)

    derivative = tg.grad(f) if trace is tg.trace else lambda K: _by_hand(K)
    for K in (EYE, -EYE, 4 * EYE, -2 * EYE):
        yield derivative(K)


def _by_hand(K: Any) -> Any:
    if K[0, 0] < 0:
        return 2 * K
    # Of the factor [[a, 0], [b, c]] of a diagonal matrix: b = K01 / a, c = sqrt(K11); K01 and K10 are one number.
    a, c = np.sqrt(K[0, 0]), np.sqrt(K[1, 1])
    return np.array([[0.0, 0.5 / a], [0.5 / a, 0.5 / c]])


@program
def test_the_derivative_of_a_function_that_raises_raises(trace: Any) -> Any:
    def f(x: Any) -> Any:
        if x.sum() > 3.0:
            raise OverflowError("large")
        return np.sum(x**2)

    derivative = tg.value_and_grad(f) if trace is tg.trace else lambda x: (f(x), 2 * x)
    for v in (1.0, 2.0, 0.5, 2.0):
        yield attempt(derivative, np.full(2, v), text=True)


def test_gradients_of_tensors_go_through_the_branch_that_was_taken() -> None:
    @tg.trace
    def f(K: Any) -> Any:
        try:
            return tg.linalg.inv(K).sum()
        except RuntimeError:
            return (K * K).sum()
        except ValueError:
            return (K * K).sum()

    for K in (EYE, SINGULAR, EYE, SINGULAR):
        k = tg.tensor(K, requires_grad=True)
        f(k).backward()
        np.testing.assert_allclose(k.grad.numpy(), 2 * K if K is SINGULAR else -np.ones((2, 2)), atol=1e-12)


@program
def test_the_class_of_what_numpy_refuses_is_numpys(trace: Any) -> Any:
    @trace
    def f(x: Any, case: int) -> Any:
        try:
            cases = [
                lambda: x + np.ones(2),
                lambda: x.reshape(2, 2),
                lambda: np.stack([x, np.ones(2)]),
                lambda: x[7],
                lambda: np.linalg.inv(x),
                lambda: x[np.ones(2)],
                lambda: x.sum(axis=3),
                lambda: np.array([x, [x]]),
            ]
            return cases[case](), None
        except Exception as error:
            known = type(error) is ValueError, type(error) is error.__class__, isinstance(error, LookupError)
            return x * 2, (type(error).__name__, error.__class__.__name__, *known)

    for case in range(8):
        yield f(np.ones(3), case)


@program
def test_a_comparison_within_a_loop_of_an_element_does_not_read_behind_the_end(trace: Any) -> Any:
    def f(x: Any) -> Any:
        products = x * x[::-1]
        limit = np.sort(products) - 0.2 * x
        filled = np.zeros((3, 2))
        column, row = filled[:, 0], filled[1]
        for k in range(3):
            column[k] = products[k] * (k + 1)
            if column[k] > float(limit[2]):
                row[1] += 0.5
        return np.sum(filled * np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))

    f = trace(f)
    points = np.random.default_rng(0).normal(size=(12, 3))
    for x in points:
        yield attempt(f, x)
