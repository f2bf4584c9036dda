"""Explicit Runge-Kutta methods as graph loops: the steps of SciPy's `RK23`, `RK45` and `DOP853`.

No Python runs in a step. Step sizes, tests and interpolation are the same as in `scipy.integrate`, in the same order;
sums of products may be rounded differently. Cases that SciPy warns of or refuses are left to SciPy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control import cond, scan, while_loop
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.elementwise.float_representation import nextafter
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    power,
    sign,
    sqrt,
    subtract,
    where,
)
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.linear import arange, cast, full, reduce_sum, reshape, slice

if TYPE_CHECKING:
    from tracegrad.typing import Array, NDArray, Number


METHODS = ("RK23", "RK45", "DOP853")

_USUAL: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-6, "max_step": np.inf, "first_step": None}
_RUNNING, _FINISHED, _FAILED = 1, 0, -1
_SAFETY, _SMALLEST, _LARGEST = 0.9, 0.2, 10.0  # safety factor, and limits of the ratio of two step lengths


def tolerances(options: Mapping[str, object]) -> list[NDArray]:
    """Return `rtol` and `atol` as arrays."""
    return [np.asarray(options.get(name, _USUAL[name]), np.float64) for name in ("rtol", "atol")]


def fits(options: Mapping[str, object], size: int, ends: Sequence[float], times: NDArray) -> bool:
    """Whether SciPy would solve for `size` elements without a warning or an error, in at least one step."""
    args, (rtol, atol), length = _USUAL | dict(options), tolerances(options), ends[1] - ends[0]
    direction, first = np.sign(length), args["first_step"]
    return bool(
        args.keys() == _USUAL.keys()
        and {rtol.shape, atol.shape} <= {(), (size,)}
        and np.all(rtol >= 100 * np.finfo(np.float64).eps)
        and np.all(atol >= 0)
        and args["max_step"] > 0
        and (first is None or 0 < first <= abs(length))
        and size * len(times) * direction
        and np.isfinite(length)
        and direction * (times[0] - ends[0]) >= 0
        and direction * (ends[1] - times[-1]) >= 0
        and np.all(direction * np.diff(times) > 0)
    )


def integrator(begin: Graph, derivative: Graph, method: str, options: Mapping[str, object], count: int) -> Graph:
    """Build the graph (t0, t1, times, rtol, atol, *tables, *values) -> solution, number of evaluations, status.

    The solution is at each of `count` times, and nan at times that the solver has not reached. The status is SciPy's.
    """
    law = (_DormandPrince8 if method == "DOP853" else _EmbeddedPair)(derivative, method, _USUAL | dict(options))

    def solve(t0: Array, t1: Array, times: Array, rtol: Array, atol: Array, *rest: Array) -> list[Array]:
        values = rest[law.tables :]
        y = replay(begin, [t0, *values])[0][0]
        f, args = law.derivative(t0, y, values), (t1, sign(subtract(t1, t0)), rtol, atol, times, *rest)
        h, calls = _first_step(law, t0, y, f, *args)
        rows = full(shape=(count, y.shape[0]), value=np.nan, dtype="float64")
        carry = [t0, y, f, h, _number(False), rows, _number(0), _number(calls), _number(_RUNNING)]
        kinds = _kinds([*carry, *args])
        iteration = build(lambda *xs: _attempt(law, *xs), kinds)
        condition = build(lambda *xs: [equal(xs[8], _RUNNING)], kinds)
        result = while_loop(*carry, *args, cond=condition, body=iteration, carries=9, capacity=0)
        return [result[5], result[7], result[8]]

    shapes = ((), (), (count,), *(x.shape for x in (*tolerances(options), *tables(method))))
    return build(solve, [*(Aval(shape, np.dtype(np.float64)) for shape in shapes), *begin.avals[1:]])


@functools.cache
def tables(name: str) -> list[NDArray]:
    """Return SciPy's tables of a method.

    For each stage, there are the weights of earlier stages and the position in the step. The other tables are the
    weights of one or two error estimates, and the weights of the interpolant by row.
    """
    from scipy import integrate

    method = getattr(integrate, name)
    n, extra_nodes = method.n_stages, getattr(method, "C_EXTRA", np.zeros(0))
    size = n + 1 + len(extra_nodes)
    weights, nodes = np.zeros((size, size)), np.ones(size)
    weights[:n, : method.A.shape[1]], weights[n, :n], nodes[:n], nodes[n + 1 :] = (
        method.A,
        method.B,
        method.C,
        extra_nodes,
    )
    if len(extra_nodes):
        weights[n + 1 :], errors, between = method.A_EXTRA, [method.E3, method.E5], method.D
    else:
        errors, between = [method.E], method.P.T
    errors = [np.pad(row, (0, size - len(row))) for row in errors]
    return [np.ascontiguousarray(x, np.float64) for x in (weights, nodes, errors, between)]


class _RungeKutta:
    """Runge-Kutta method of SciPy for a system with a right-hand side; the stages `ks` are rows."""

    tables = 4

    def __init__(self, derivative: Graph, name: str, options: Mapping[str, Any]):
        from scipy import integrate

        method = getattr(integrate, name)
        self._rhs, self.stages, self.order = derivative, method.n_stages, method.error_estimator_order
        self.longest, self.first_step = float(options["max_step"]), options["first_step"]

    def derivative(self, t: Array, y: Array, values: tuple[Array, ...]) -> Array:
        result: Array = replay(self._rhs, [t, y, *values])[0][0]
        return result

    def compute_stages(
        self,
        ks: Array,
        first: int,
        last: int,
        step: tuple[Array, ...],
        weights: Array,
        nodes: Array,
        values: tuple[Array, ...],
    ) -> Sequence[Array]:
        """Compute the stages from `first` to `last`, and the last state, in a step from (t, y) of the length h."""

        def stage(
            ks: Array, z: Array, k: Array, weight_row: Array, c: Array, t: Array, y: Array, h: Array, *values: Array
        ) -> list[Array]:
            z = add(y, multiply(_sum(weight_row, ks), h))
            new = self.derivative(add(t, multiply(c, h)), z, values)
            return [dynamic_update_slice(ks, reshape(new, shape=(1, *new.shape)), k, 0, step=(1, 1)), z]

        length = last + 1 - first
        stage_weights = slice(weights, start=(first, 0), stop=(last + 1, weights.shape[1]), step=(1, 1))
        stage_nodes = slice(nodes, start=(first,), stop=(last + 1,), step=(1,))
        numbers = arange(start=first, step=1, length=length, dtype="int64")
        operands = [ks, step[1], numbers, stage_weights, stage_nodes, *step, *values]
        kinds = [Aval(x.shape[1:], x.dtype) if 2 <= i < 5 else x for i, x in enumerate(_kinds(operands))]
        results: Sequence[Any] = scan(
            *operands, body=build(stage, kinds), carries=2, xs=3, length=length, reverse=False
        )
        return results


class _EmbeddedPair(_RungeKutta):
    """Embedded pair: two methods with the same stages, whose difference is the error."""

    extra_stages = 0  # number of stages of the interpolant after the stages of a step

    def error(self, ks: Array, h: Array, scale: Array, errors: Array) -> Array:
        return _norm(divide(multiply(_sum(_row(errors, 0), ks), h), scale))

    def known(
        self, ks: Array, step: tuple[Array, ...], new: Array, tables: tuple[Array, ...], values: tuple[Array, ...]
    ) -> list[Array]:
        """Return the coefficients of the interpolant in a step."""
        return [_sum(_row(tables[3], j), ks) for j in range(tables[3].shape[0])]

    def between(self, x: Array, y: Array, h: Array, known: tuple[Array, ...]) -> Array:
        """Return the state at the fraction `x` of a step."""
        powers = [x]
        while len(powers) < len(known):
            powers.append(multiply(powers[-1], x))
        return add(multiply(h, functools.reduce(add, map(multiply, known, powers))), y)


class _DormandPrince8(_RungeKutta):
    """The method of order 8 with errors of order 5 and 3."""

    extra_stages = 3

    def error(self, ks: Array, h: Array, scale: Array, errors: Array) -> Array:
        third, fifth = (_sum_of_squares(divide(_sum(_row(errors, j), ks), scale)) for j in range(2))
        both = sqrt(multiply(add(fifth, multiply(third, 0.01)), float(scale.shape[0])))
        return where(equal(both, 0.0), 0.0, divide(multiply(absolute(h), fifth), both))

    def known(
        self, ks: Array, step: tuple[Array, ...], new: Array, tables: tuple[Array, ...], values: tuple[Array, ...]
    ) -> list[Array]:
        n, (_, y, h), (weights, nodes, _, between) = self.stages, step, tables
        every, _ = self.compute_stages(ks, n + 1, n + self.extra_stages, step, weights, nodes, values)
        moved, first, last = subtract(new, y), multiply(h, _row(ks, 0)), add(_row(ks, n), _row(ks, 0))
        ends = [moved, subtract(first, moved), subtract(multiply(moved, 2.0), multiply(h, last))]
        return [*ends, *(multiply(h, _sum(_row(between, j), every)) for j in range(between.shape[0]))]

    def between(self, x: Array, y: Array, h: Array, known: tuple[Array, ...]) -> Array:
        factors, result = (x, subtract(1.0, x)), multiply(known[-1], x)
        for k, row in enumerate(reversed(known[:-1]), 1):
            result = multiply(add(result, row), factors[k % 2])
        return add(result, y)


def _first_step(
    law: _EmbeddedPair | _DormandPrince8,
    t0: Array,
    y: Array,
    f: Array,
    t1: Array,
    direction: Array,
    rtol: Array,
    atol: Array,
    times: Array,
    *rest: Array,
) -> tuple[Array, int]:
    """Compute the length of the first step, and the number of evaluations, as SciPy's `select_initial_step`.

    Source: Hairer, Norsett and Wanner, "Solving Ordinary Differential Equations I", section II.4.
    """
    if law.first_step is not None:
        return _number(float(law.first_step)), 1
    length, scale = absolute(subtract(t1, t0)), add(atol, multiply(absolute(y), rtol))
    d0, d1 = _norm(divide(y, scale)), _norm(divide(f, scale))
    flat = logical_or(less(d0, 1e-5), less(d1, 1e-5))
    h0 = _lesser_of(where(flat, 1e-6, divide(multiply(d0, 0.01), d1)), length)
    ahead = law.derivative(
        add(t0, multiply(h0, direction)), add(y, multiply(multiply(h0, direction), f)), rest[law.tables :]
    )
    d2 = divide(_norm(divide(subtract(ahead, f), scale)), h0)
    still = logical_and(less_equal(d1, 1e-15), less_equal(d2, 1e-15))
    by_order = power(divide(0.01, _greater_of(d1, d2)), 1.0 / (law.order + 1))
    h1 = where(still, _greater_of(1e-6, multiply(h0, 1e-3)), by_order)
    return _lesser_of(_lesser_of(_lesser_of(multiply(h0, 100.0), h1), length), law.longest), 2


def _attempt(
    law: _EmbeddedPair | _DormandPrince8,
    t: Array,
    y: Array,
    f: Array,
    h: Array,
    again: Array,
    rows: Array,
    i: Array,
    calls: Array,
    status: Array,
    t1: Array,
    direction: Array,
    rtol: Array,
    atol: Array,
    times: Array,
    *rest: Array,
) -> list[Array]:
    """Try a step of the length `h`; return the loop-carried values, from `t` to `status`.

    `again` is true if the previous attempt was rejected.
    """
    tables, values = rest[: law.tables], rest[law.tables :]
    least = multiply(absolute(subtract(nextafter(t, multiply(direction, np.inf)), t)), 10.0)
    length = where(again, h, where(greater(h, law.longest), law.longest, _greater_of(h, least)))
    fails = less(length, least)
    ahead = add(t, multiply(length, direction))
    ahead = where(greater(multiply(direction, subtract(ahead, t1)), 0.0), t1, ahead)
    h = subtract(ahead, t)

    zeros = full(shape=(tables[0].shape[0], *f.shape), value=0.0, dtype="float64")
    ks = dynamic_update_slice(zeros, reshape(f, shape=(1, *f.shape)), 0, 0, step=(1, 1))
    ks, new = law.compute_stages(ks, 1, law.stages, (t, y, h), tables[0], tables[1], values)
    error = law.error(ks, h, add(atol, multiply(maximum(absolute(y), absolute(new)), rtol)), tables[2])
    good = less(error, 1.0)
    factor = multiply(power(error, -1.0 / (law.order + 1)), _SAFETY)
    longer = _lesser_of(_LARGEST, factor)
    factor = where(good, where(again, _lesser_of(1.0, longer), longer), _greater_of(_SMALLEST, factor))

    advances, again = where(fails, False, good), where(good, False, True)
    rows, i, extra_count = _filled(law, advances, (ks, t, y, h, new, *rest), ahead, direction, times, rows, i)
    calls = add(calls, where(fails, 0, add(extra_count, law.stages)))
    over = logical_and(good, greater_equal(multiply(direction, subtract(ahead, t1)), 0.0))
    status = where(fails, _FAILED, where(over, _FINISHED, _RUNNING))
    t, y, f = (where(advances, *each) for each in ((ahead, t), (new, y), (_row(ks, law.stages), f)))
    return [t, y, f, multiply(absolute(h), factor), again, rows, i, calls, status]


def _filled(
    law: _EmbeddedPair | _DormandPrince8,
    advances: Array,
    step: tuple[Array, ...],
    ahead: Array,
    direction: Array,
    times: Array,
    rows: Array,
    i: Array,
) -> tuple[Array, ...]:
    """Interpolate the rows of the times within a step, from number `i` on.

    Return the rows, the next number, and the number of additional stages.
    """
    count, (_, t, y, h, *_) = times.shape[0], step

    def passed(i: Array, advances: Array, ahead: Array, direction: Array, times: Array) -> Array:
        early = less_equal(multiply(direction, subtract(_element(times, i), ahead)), 0.0)
        return logical_and(advances, logical_and(less(i, count), early))

    def known(ks: Array, t: Array, y: Array, h: Array, new: Array, *rest: Array) -> list[Array]:
        results: list[Any] = law.known(ks, (t, y, h), new, rest[: law.tables], rest[law.tables :])
        return results

    def fill(
        i: Array,
        rows: Array,
        advances: Array,
        ahead: Array,
        direction: Array,
        times: Array,
        t: Array,
        y: Array,
        h: Array,
        *each: Array,
    ) -> list[Array]:
        row = law.between(divide(subtract(_element(times, i), t), h), y, h, each)
        return [add(i, 1), dynamic_update_slice(rows, reshape(row, shape=(1, *row.shape)), i, 0, step=(1, 1))]

    kinds, any_of = _kinds(step), passed(i, advances, ahead, direction, times)
    results = build(known, kinds)
    none = build(lambda *_: [full(shape=x.shape, value=0.0, dtype="float64") for x in results.results], kinds)
    each = cond(cast(any_of, dtype="int64"), *step, branches=(none, results))
    operands = [i, rows, advances, ahead, direction, times, t, y, h, *each]
    condition = build(lambda i, rows, *xs: [passed(i, *xs[:4])], _kinds(operands))
    i, rows, _ = while_loop(*operands, cond=condition, body=build(fill, _kinds(operands)), carries=2, capacity=0)
    return rows, i, where(any_of, law.extra_stages, 0)


def _element(x: Array, i: Array) -> Array:
    return reshape(dynamic_slice(x, minimum(i, x.shape[0] - 1), sizes=(1,), step=(1,)), shape=())


def _number(x: object) -> Array:
    return full(shape=(), value=x, dtype={bool: "bool", int: "int64", float: "float64"}[type(x)])


def _kinds(xs: list[Array] | tuple[Array, ...]) -> list[Aval]:
    return [Aval(x.shape, np.dtype(x.dtype)) for x in xs]


def _row(x: Array, k: int) -> Array:
    return reshape(slice(x, start=(k, 0), stop=(k + 1, x.shape[1]), step=(1, 1)), shape=(x.shape[1],))


def _sum(weights: Array, rows: Array) -> Array:
    """Sum rows with weights."""
    return reduce_sum(multiply(reshape(weights, shape=(weights.shape[0], 1)), rows), axes=(0,))


def _sum_of_squares(x: Array) -> Array:
    return reduce_sum(multiply(x, x), axes=(0,))


def _norm(x: Array) -> Array:
    return divide(sqrt(_sum_of_squares(x)), x.shape[0] ** 0.5)


def _lesser_of(x: Array | Number, y: Array | Number) -> Array:
    """Compute the minimum as Python's `min` does, also with nan."""
    return where(less(y, x), y, x)


def _greater_of(x: Array | Number, y: Array) -> Array:
    return where(greater(y, x), y, x)
