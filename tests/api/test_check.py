"""`tg.check`: what agrees passes, and what does not is found and named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.audit import Audit
from tracegrad.ops.elementwise import table as elementwise

X = np.array([0.5, 1.5, 2.5])


def row(audit: Audit, what: str) -> Any:
    (result,) = [each for each in audit.comparisons if each.what.startswith(what)]
    return result


def network(p: Any, x: Any, labels: Any) -> Any:
    return {"loss": np.mean((np.tanh(x @ p["w"] + p["b"])[np.arange(4), labels]) ** 2), "shape": x.shape}


def test_what_is_right_passes_in_every_row() -> None:
    p = {"w": np.cos(np.arange(6.0)).reshape(3, 2), "b": 0.5}
    x, labels = np.sin(np.arange(12.0)).reshape(4, 3), np.array([0, 1, 1, 0])
    audit = tg.check(network)(p, x, labels=labels)
    assert audit
    assert len(audit.comparisons) == 5
    assert all(0 <= each.difference <= each.allowed < 1e-6 for each in audit.comparisons)
    assert str(audit).startswith("network: ok\nok   value: compiled beside NumPy")


def test_a_wrong_rule_is_found_by_differences() -> None:
    wrong = tg.custom_vjp(lambda x: x**2)
    wrong.defvjp(lambda x: (x**2, x), lambda x, ct: (2.01 * x * ct,))
    audit = tg.check(lambda x: np.sum(wrong(x)))(X)
    assert not audit
    assert row(audit, "value").ok
    assert not row(audit, "gradient beside").ok
    assert "can't apply forward-mode" in row(audit, "forward").told
    assert "FAIL gradient beside differences" in str(audit)


@pytest.mark.parametrize("iterations", [1, 60])
def test_the_first_node_whose_code_differs_from_numpy_is_named(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: Any) -> Any:
        for _ in range(iterations):
            x = np.sqrt(x + 1.0)
        return np.sum(1.0 / np.arctan(x))

    right = elementwise.arctan.impl
    monkeypatch.setattr(elementwise.arctan, "impl", lambda x: right(x) * 1.001)
    audit = tg.check(f)(X)
    assert not audit
    told = row(audit, "gradient: compiled").told
    assert told.startswith("first at arctan : f64[3]")
    assert "test_check.py" in told


def test_the_arguments_stay_as_they_are() -> None:
    def doubled(x: Any) -> Any:
        x *= 2.0
        return np.sum(x**2)

    x = X.copy()
    assert tg.check(doubled)(x)
    np.testing.assert_array_equal(x, X)


def test_what_cannot_be_compared_says_why() -> None:
    audit = tg.check(lambda x: np.sum(np.abs(x - 1.5)))(X)
    assert audit
    assert "kink" in row(audit, "gradient beside").told
    assert "too few digits" in row(audit, "second").told
    assert "no floating arguments" in tg.check(np.argmax)(np.array([1, 2])).comparisons[1].told
    with pytest.raises(TypeError, match="check takes a function"):
        tg.check(3)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        tg.check(lambda x: 1 // 0)(X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_and_both_widths_are_audited(dtype: str) -> None:
    assert tg.check(lambda x, n: np.exp(x) * n)(np.dtype(dtype).type(0.5), 3)
    assert tg.check(lambda x: np.sum(np.sin(x) * np.exp(x)))(X.astype(dtype))


def test_what_is_not_a_number_counts_as_a_difference_where_it_is_one_in_one_way() -> None:
    with np.errstate(all="ignore"):
        assert tg.check(lambda x: x / 0.0)(X * 0.0).comparisons[0].ok
    x = np.array([1.0, np.nan])
    assert tg.check(lambda x: x * 2.0)(x).comparisons[0].ok


def test_a_wrong_rule_is_named_with_its_line() -> None:
    wrong = tg.custom_vjp(lambda x: x**2)
    wrong.defvjp(lambda x: (wrong(x), x), lambda x, ct: (ct * x,))

    def f(x):
        return np.sum(np.sin(wrong(x * 2.0)))

    row = next(each for each in tg.check(f)(np.array([0.3, 0.5])).comparisons if not each.ok)
    assert row.what == "gradient beside differences"
    line = f.__code__.co_firstlineno + 1
    assert "each op has the right derivative: look at the rule of " in row.told
    assert f"test_check.py:{line})" in row.told


def test_an_op_with_a_wrong_rule_is_named() -> None:
    from tracegrad.ops.elementwise.table import sin

    rules = sin._vjp
    (operand,) = rules
    right = rules[operand]
    try:
        rules[operand] = lambda ct, ans, x: 2.0 * right(ct, ans, x)
        audit = tg.check(lambda x: np.sum(np.sin(np.exp(x))))(np.array([0.3, 0.5]))
    finally:
        rules[operand] = right
    told = [each.told for each in audit.comparisons if not each.ok]
    assert any(text.startswith("first at sin (") for text in told), str(audit)


def test_nan_in_the_value_is_told_with_its_line_and_nothing_is_said_of_differences() -> None:
    def f(x):
        return np.sum(np.log(x - 1.0))

    audit = tg.check(f)(np.array([0.5, 3.0]))
    assert audit
    assert "'log'" in audit.comparisons[-1].told
    assert f"test_check.py:{f.__code__.co_firstlineno + 1}" in audit.comparisons[-1].told
    infinite = tg.check(lambda x: np.sum(np.sqrt(x)))(np.zeros(2))
    assert all(each.difference == 0 for each in infinite.comparisons[-2:])
    assert "not finite here" in infinite.comparisons[-1].told


def test_tensors_that_require_grad_are_audited_and_stay_as_they_are() -> None:
    t = tg.tensor([0.5, 1.0], requires_grad=True)
    assert tg.check(lambda t: (t * t).sum())(t)
    assert t.grad is None
    assert t.requires_grad
