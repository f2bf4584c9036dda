"""Lists whose elements a loop reads by its counter: one program for all values, unless the list is used otherwise."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

N = 12
WEIGHTS = [np.random.default_rng(k).normal(size=(3, 3)) for k in range(N)]


def rows(r: Any) -> Any:
    return [r.normal(size=3) for _ in range(N)]


def pairs(r: Any) -> Any:
    return [(0.4 * r.normal(size=(3, 3)), r.normal(size=3)) for _ in range(N)]


def layers(r: Any) -> Any:
    return [{"w": 0.4 * r.normal(size=(3, 3)), "b": r.normal(size=3)} for _ in range(N)]


def numbers(r: Any) -> Any:
    return [float(x) for x in r.normal(size=N)]


def array(r: Any) -> Any:
    return r.normal(size=N)


def vector(r: Any) -> Any:
    return r.normal(size=3)


# -- one program ---------------------------------------------------------------------------------------------------
def by_index(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(len(ws)):
        s = s * 0.5 - ws[i] if s[0] > 0 else s + ws[i]
    return s.sum()


def from_the_end(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(len(ws) - 1, -1, -1):
        s = s * 0.5 - ws[i] * ws[-1] if s[0] > 0 else s + ws[i] * ws[i - 1]
    return s.sum()


def its_length_is_asked_for(ws: Any) -> Any:
    s = np.zeros(3)
    for k in range(4):
        for i in range(len(ws) - k):
            s = s * 0.5 - ws[i] if s[k % 3] > 0 else s + ws[i] * len(ws)
    return s.sum()


def of_numbers(schedule: Any) -> Any:
    x = 0.3
    for i in range(N):
        x = x - schedule[i] * x**2 * 0.1 if x > 0 else x + schedule[i]
    return x


def of_dicts(ls: Any) -> Any:
    x = np.ones(3)
    for i in range(len(ls)):
        x = np.tanh(ls[i]["w"] @ x + ls[i]["b"])
        if x[0] > 0:
            x = x * 1.5
    return x.sum()


def of_dicts_in_a_variable(ls: Any) -> Any:
    x = np.ones(3)
    for i in range(len(ls)):
        p = ls[i]
        x = np.tanh(p["w"] @ x + p["b"])
        if x[0] > 0:
            x = x * 1.5
    return x.sum()


def of_pairs(ls: Any) -> Any:
    x = np.ones(3)
    for i in range(len(ls)):
        w, b = ls[i]
        x = np.tanh(w @ x + b)
        if x[0] > 0:
            x = x * 1.5
    return x.sum()


def two_at_once(ls: Any) -> Any:
    ws, bs = [w for w, _ in ls], tuple([b for _, b in ls])
    x = np.ones(3)
    for w, b in zip(ws, bs):
        x = np.tanh(w @ x + b)
        if x[0] > 0:
            x = x * 1.5
    return x.sum()


def one_by_one(ws: Any) -> Any:
    s = np.zeros(3)
    for w in ws:
        s = s * 0.5 - w if s[0] > 0 else s + w
    return s.sum()


def pairs_one_by_one(ls: Any) -> Any:
    x = np.ones(3)
    for w, b in ls[1:]:
        x = np.tanh(w @ x + b)
        if x[0] > 0:
            x = x * 1.5
    return x.sum()


def known_numbers(x: Any) -> Any:
    m = x[2]
    for k in [1.0, 99.0, 0.5, -99.0] * 5:
        if m > k:
            m = m * 0.5
        m += x[0] * np.sin(k) + x[1]
    return m


def until_one_is_found(ws: Any) -> Any:
    s = np.zeros(3)
    for w in ws:
        for v in ws:
            if (v * w).sum() > 2:
                s = s + v
                break
        else:
            s = s - w
    return s.sum()


def with_their_numbers(ws: Any) -> Any:
    s = np.zeros(3)
    for i, w in enumerate(ws, 1):
        s = s * 0.5 - w if s[0] > 0 else s + w * i
    return s.sum()


def made_in_the_trace(x: Any) -> Any:
    ws = [x * k for k in range(N)]
    s = 0.0
    for i in range(N):
        s = s + ws[i] @ x
        if s > 5:
            s = s * 0.5 - ws[i][0]
    return s


def from_outside(x: Any) -> Any:
    ws = WEIGHTS
    for i in range(N):
        x = np.tanh(ws[i] @ x)
        if x[0] > 0:
            x = x * 1.5
    return x.sum()


def an_order(x: Any) -> Any:
    order = [(7 * k) % N for k in range(N)]
    s = x[0]
    for i in range(N):
        s = s + x[order[i]] if x[order[i]] > s else s * 0.9 - x[order[i] - 1]
    return s


def of_both_kinds_of_floats(x: Any) -> Any:
    steps = [0.1, *[x[k] * 0.5 for k in range(1, N)]]
    s = x[0]
    for i in range(N):
        s = s - steps[i] if s > 0.2 else s * 1.1 + 0.3
    return s


ONE: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (by_index, rows),
    (from_the_end, rows),
    (its_length_is_asked_for, rows),
    (of_numbers, numbers),
    (of_dicts, layers),
    (of_dicts_in_a_variable, layers),
    (of_pairs, pairs),
    (two_at_once, pairs),
    (with_their_numbers, rows),
    (one_by_one, rows),
    (pairs_one_by_one, pairs),
    (known_numbers, vector),
    (until_one_is_found, rows),
    (made_in_the_trace, vector),
    (from_outside, vector),
    (an_order, array),
    (of_both_kinds_of_floats, array),
]


def leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [y for k in sorted(x) for y in leaves(x[k])]
    return [y for z in x for y in leaves(z)] if isinstance(x, list | tuple) else [x]


def moved(x: Any, by: Iterator[Any], scale: float) -> Any:
    if isinstance(x, dict):
        return {k: moved(x[k], by, scale) for k in sorted(x)}
    return type(x)(moved(y, by, scale) for y in x) if isinstance(x, list | tuple) else x + scale * next(by)


@pytest.mark.parametrize(("fun", "given"), ONE, ids=[fun.__name__ for fun, _ in ONE])
def test_one_program_serves_all_values(fun: Any, given: Any) -> None:
    traced = tg.value_and_grad(fun)
    r = np.random.default_rng(5)
    for _ in range(5):
        x = given(r)
        value, derivative = traced(x)
        np.testing.assert_allclose(value, fun(x), rtol=1e-12)
        direction = [r.normal(size=np.shape(y)) for y in leaves(x)]
        low, high = (fun(moved(x, iter(direction), step)) for step in (-1e-6, 1e-6))
        along = sum(np.sum(s * d) for s, d in zip(leaves(derivative), direction))
        np.testing.assert_allclose(along, (high - low) / 2e-6, rtol=1e-5, atol=1e-6)
    assert traced.cache_info().traces == 1


# -- what is done otherwise is done as in Python ---------------------------------------------------------------------
def items_are_set(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(N - 1):
        if s[0] > 0:
            ws[i + 1] = ws[i] * 0.5
        s = s + ws[i]
    return s, ws


def items_are_set_by_another_name(ws: Any) -> Any:
    vs, s = ws, np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            vs[-1] = s
        s = s + ws[i]
    return s, ws


def another_function_changes_it(ws: Any) -> Any:
    def drop() -> None:
        held["ws"][2] = np.ones(3)

    held, s = {"ws": ws}, np.zeros(3)
    for i in range(N):
        if s[0] > 0.5:
            drop()
        s = s + ws[i]
    return s, ws


def elements_are_written(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            ws[i][0] = 5.0
        s = 0.9 * s + ws[i] + ws[0]
    return s, ws


def elements_are_updated_in_a_variable(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(N):
        w = ws[i]
        if s[0] > 0:
            w += 1.0
        s = s + w
    return s, ws


def the_last_one_is_written_behind_the_loop(ws: Any) -> Any:
    s = w = np.zeros(3)
    for i in range(N):
        w = ws[i]
        if s[0] > 0:
            s = s - w
        s = 0.5 * s + w
    w[0] = 100.0
    return s, ws


def it_is_changed_behind_the_loop(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            s = s - ws[i]
        s = 0.5 * s + ws[i]
    ws[0][1] = 7.0
    ws.append(s)
    del ws[3]
    return ws


def a_view_is_written(ws: Any) -> Any:
    a = np.stack(ws)
    vs, s = [a[k] for k in range(N)], np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            a[-1] = s
        s = 0.9 * s + vs[i]
    return s, a


def entries_of_dicts_are_set(ls: Any) -> Any:
    x = np.ones(3)
    for i in range(N):
        p = ls[i]
        x = np.tanh(p["w"] @ x + p["b"])
        if x[0] > 0:
            p["b"] = x
    return x, ls


def entries_of_the_last_are_set_behind_the_loop(ls: Any) -> Any:
    x, p = np.ones(3), ls[0]
    for i in range(N):
        p = ls[i]
        x = np.tanh(p["w"] @ x + p["b"])
        if x[0] > 0:
            x = x * 1.5
    p["b"] = x
    return ls


def the_last_is_seen_in_another_name(ls: Any) -> Any:
    x, p = np.ones(3), ls[0]
    for i in range(N):
        p = ls[i]
        x = np.tanh(p["w"] @ x + p["b"])
        if x[0] > 0:
            x = x * 1.5
    ls[-1]["b"] = x
    return p["b"] * 2.0


def lists_within_are_extended(ws: Any) -> Any:
    ls, x = [[w, 2 * w] for w in ws], np.ones(3)
    for i in range(N):
        p = ls[i]
        x = 0.5 * x + p[0] * p[1]
        if x[0] > 0:
            p.append(x)
    return x, ls


def objects_are_told_apart(ws: Any) -> Any:
    first, s = ws[0], np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            s = s - ws[i]
        if ws[i] is first:
            s = s + 10.0
        s = 0.5 * s + ws[i]
    return s


def some_are_one_object(ws: Any) -> Any:
    vs, s = [ws[0], ws[1]] * (N // 2), np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            vs[i][0] = 1.0
        s = 0.5 * s + vs[i]
    return s, vs


def of_two_shapes(ws: Any) -> Any:
    vs, s = [w[: 1 + k % 2] for k, w in enumerate(ws)], 0.0
    for i in range(N):
        if s > 0:
            s = s - vs[i].sum()
        s = 0.5 * s + vs[i].sum() * len(vs[i])
    return s


def some_are_none(ws: Any) -> Any:
    vs, s = [w if k % 3 else None for k, w in enumerate(ws)], np.zeros(3)
    for i in range(N):
        w = vs[i]
        if w is not None:
            s = s + w if s[0] > 0 else s * 0.5 - w
    return s


def of_two_dtypes(ws: Any) -> Any:
    steps, s = [1, 0.5, True] * (N // 3), np.zeros(3)
    for i in range(N):
        s = s * 0.5 + steps[i] * ws[i] if s[0] > 0 else s - ws[i]
    return s


def it_grows_while_it_is_gone_through(ws: Any) -> Any:
    s = np.zeros(3)
    for i, w in enumerate(ws):
        if s[0] > 0 and i < 20:
            ws.append(w * 0.5)
        s = 0.5 * s + w
    return s, ws


def it_grows_while_its_elements_are_read(ws: Any) -> Any:
    s = np.zeros(3)
    for w in ws:
        if s[0] > 0 and len(ws) < 20:
            ws.append(w * 0.5)
        s = 0.5 * s + w
    return s, ws


def elements_one_by_one_are_written(ws: Any) -> Any:
    s = np.zeros(3)
    for w in ws:
        if s[0] > 0:
            w *= 2.0
        s = 0.5 * s + w
    return s, ws


def elements_one_by_one_are_told_apart(ws: Any) -> Any:
    s = np.zeros(3)
    for k, w in enumerate(ws):
        if s[0] > 0:
            s = s - w
        s = 0.5 * s + (w if w is ws[k] else 100.0)
    return s


def elements_are_known_by_what_they_are(ws: Any) -> Any:
    names, s = {id(w): float(k) for k, w in enumerate(ws)}, np.zeros(3)
    for w in ws:
        if s[0] > 0:
            s = s - w
        s = 0.5 * s + w * names[id(w)]
    return s


def elements_are_collected(ws: Any) -> Any:
    s, result = np.zeros(3), []
    for w in ws:
        if s[0] > 0:
            result.append(w)
        s = 0.5 * s + w
    return result


def it_shrinks_while_it_is_gone_through(ws: Any) -> Any:
    s = np.zeros(3)
    for w, k in zip(ws, range(N)):
        if s[0] > 0 and k > 3:
            ws.pop()
        s = 0.5 * s + w
    return s, ws


def it_is_left_within(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(N):
        if s[0] > 1.5:
            return s, ws, i
        s = s + ws[i]
    return s, ws, -1


def it_is_asked_too_far(ws: Any) -> Any:
    s = np.zeros(3)
    try:
        for i in range(N + 3):
            s = s * 0.5 - ws[i] if s[0] > 0 else s + ws[i]
    except IndexError:
        s = s + len(ws)
    return s, ws


def it_is_given_to_a_function(ws: Any) -> Any:
    s = np.zeros(3)
    for i in range(N):
        if s[0] > 0:
            s = s - 0.1 * sum(ws)
        s = 0.5 * s + ws[i]
    return s


OTHER: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (items_are_set, rows),
    (items_are_set_by_another_name, rows),
    (another_function_changes_it, rows),
    (elements_are_written, rows),
    (elements_are_updated_in_a_variable, rows),
    (the_last_one_is_written_behind_the_loop, rows),
    (it_is_changed_behind_the_loop, rows),
    (a_view_is_written, rows),
    (entries_of_dicts_are_set, layers),
    (entries_of_the_last_are_set_behind_the_loop, layers),
    (the_last_is_seen_in_another_name, layers),
    (lists_within_are_extended, rows),
    (objects_are_told_apart, rows),
    (some_are_one_object, rows),
    (of_two_shapes, rows),
    (some_are_none, rows),
    (of_two_dtypes, rows),
    (it_grows_while_its_elements_are_read, rows),
    (elements_one_by_one_are_written, rows),
    (elements_one_by_one_are_told_apart, rows),
    (elements_are_known_by_what_they_are, rows),
    (elements_are_collected, rows),
    (it_grows_while_it_is_gone_through, rows),
    (it_shrinks_while_it_is_gone_through, rows),
    (it_is_left_within, rows),
    (it_is_asked_too_far, rows),
    (it_is_given_to_a_function, rows),
]


@pytest.mark.parametrize(("fun", "given"), OTHER, ids=[fun.__name__ for fun, _ in OTHER])
def test_what_else_is_done_with_a_list_is_done_as_in_python(fun: Any, given: Any) -> None:
    traced = tg.trace(fun)
    for seed in range(5):
        mine, theirs = given(np.random.default_rng(seed)), given(np.random.default_rng(seed))
        result, wanted = leaves([traced(mine), mine]), leaves([fun(theirs), theirs])
        assert len(result) == len(wanted)
        for x, y in zip(result, wanted):
            np.testing.assert_allclose(x, y, rtol=1e-12)


def test_elements_that_are_kept_are_those_of_the_list() -> None:
    def fun(ws: Any, kept: Any) -> Any:
        w = s = np.zeros(3)
        for i in range(N):
            w = ws[i]
            if s[0] > 0:
                s = s - w
            s = 0.5 * s + w
        kept["last"] = w
        return s, [w]

    traced = tg.trace(fun)
    for seed in range(3):
        ws, kept = rows(np.random.default_rng(seed)), {}
        s, result = traced(ws, kept)
        np.testing.assert_allclose(s, fun(ws, {})[0], rtol=1e-12)
        assert kept["last"] is result[0] is ws[-1]


def test_an_index_that_is_out_of_range_is_an_error_in_the_line_of_the_user() -> None:
    def fun(ws: Any) -> Any:
        s = np.zeros(3)
        for i in range(N):
            if s[0] > 0:
                s = s * 0.5
            s = s + ws[i + 1]
        return s

    with pytest.raises(IndexError, match="list index out of range") as raised:
        tg.trace(fun)(rows(np.random.default_rng(0)))
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.name, last.line) == ("fun", "s = s + ws[i + 1]")


def test_lists_of_other_lengths_are_other_programs() -> None:
    traced = tg.trace(by_index)
    for n in (5, 9, 5, 9, 12):
        ws = rows(np.random.default_rng(n))[:n]
        np.testing.assert_allclose(traced(ws), by_index(ws), rtol=1e-12)
    assert traced.cache_info().traces == 3
