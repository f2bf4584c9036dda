"""`torch.testing.assert_close`, with the messages of PyTorch 2.13, and PyTorch's names of settings of the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import settings
from tracegrad.testing import assert_close

NAN, INF = float("nan"), float("inf")


def single(*values: float) -> Any:
    return tg.tensor(values, dtype=tg.float32)


@pytest.mark.parametrize(
    ("actual", "expected", "options"),
    [
        (single(1.0), single(1.0 + 1e-6), {}),
        (single(NAN), single(NAN), {"equal_nan": True}),
        (single(INF, 1.0), single(INF, 1.0), {}),
        (single(1.0), single(1.0).double(), {"check_dtype": False}),
        (tg.ones(2, requires_grad=True), tg.ones(2), {}),
        (np.ones(2), np.ones(2), {}),
        ({"a": [1, 2.0]}, {"a": (1, 2.0 + 1e-9)}, {}),
        (tg.ones(0), tg.ones(0), {}),
        (None, None, {}),
        (tg.tensor([1, 2]), tg.tensor([1, 3]), {"rtol": 0, "atol": 1}),
    ],
)
def test_what_is_close_passes(actual: object, expected: object, options: dict[str, Any]) -> None:
    assert_close(actual, expected, **options)


@pytest.mark.parametrize(
    ("actual", "expected", "options", "text"),
    [
        (
            single(1.0, 2.0),
            single(1.0, 4.0),
            {},
            "Tensor-likes are not close!\n\nMismatched elements: 1 / 2 (50.0%)\n"
            "Greatest absolute difference: 2.0 at index (1,) (up to 1e-05 allowed)\n"
            "Greatest relative difference: 0.5 at index (1,) (up to 1.3e-06 allowed)",
        ),
        (
            tg.tensor(1.0, dtype=tg.float32),
            tg.tensor(2.0, dtype=tg.float32),
            {},
            "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)\n"
            "Relative difference: 0.5 (up to 1.3e-06 allowed)",
        ),
        (
            [single(NAN)],
            [single(NAN)],
            {},
            "Tensor-likes are not close!\n\nMismatched elements: 1 / 1 (100.0%)\n"
            "Greatest absolute difference: nan at index (0,) (up to 1e-05 allowed)\n"
            "Greatest relative difference: nan at index (0,) (up to 1.3e-06 allowed)\n\n"
            "The failure occurred for item [0]",
        ),
        (
            tg.tensor([True, False]),
            tg.tensor([True, True]),
            {},
            "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\n"
            "Greatest absolute difference: 1 at index (1,)\nGreatest relative difference: 1.0 at index (1,)",
        ),
        (
            single(1, 2),
            single(1),
            {},
            "The values for attribute 'shape' do not match: torch.Size([2]) != torch.Size([1]).",
        ),
        (single(1), single(1).double(), {}, "The values for attribute 'dtype' do not match: float32 != float64."),
        (1, 1.5, {}, "The (d)types do not match: <class 'int'> != <class 'float'>."),
        ([1, 2], [1], {}, "The length of the sequences mismatch: 2 != 1"),
        (
            {"a": 1},
            {"b": 1},
            {},
            "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\n"
            "Additional keys in the actual mapping: ['a']",
        ),
        (None, 1, {}, "None mismatch: None is not 1"),
        (single(1), single(2), {"msg": "no"}, "no"),
        ([1, 2], [1], {"msg": lambda text: text[:10]}, "The length"),
    ],
)
def test_what_is_not_close_is_said(actual: object, expected: object, options: dict[str, Any], text: str) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_close(actual, expected, **options)
    assert str(failure.value) == text


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="but got no atol"):
        assert_close(1, 1, rtol=1)
    with pytest.raises(TypeError, match="No comparison pair was able to handle inputs of type"):
        assert_close(tg.ones(1), [1.0])


def test_settings_of_the_process() -> None:
    with settings.override(num_threads=2):
        assert tg.get_num_threads() == 2
        tg.set_num_threads(1)
        assert settings.num_threads == 1
        with pytest.raises(RuntimeError, match="expects a positive integer"):
            tg.set_num_threads(0)
    tg.use_deterministic_algorithms(True, warn_only=True)
    assert tg.are_deterministic_algorithms_enabled()
    tg.use_deterministic_algorithms(False)
    with pytest.raises(RuntimeError, match="best is not one of 'highest', 'high', or 'medium'"):
        tg.set_float32_matmul_precision("best")
    assert tg.get_float32_matmul_precision() == "highest"
