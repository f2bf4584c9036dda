"""Printing: what a Tensor prints is what PyTorch prints for the same array, recorded in `data/printing.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from paths import TESTS

from tracegrad.torch.tape.tensors.dtypes import set_default_dtype
from tracegrad.torch.tape.tensors.factories import tensor
from tracegrad.torch.tape.tensors.printing import format_of, get_printoptions, set_printoptions, text_of, text_of_array

# `input` is an expression of NumPy, `text` what PyTorch 2.13 prints with float64 as its default dtype ("torch." taken
# out), `history` how the Tensor came to be: a leaf that requires grad, or a clone of one.
RECORDED = json.loads((TESTS / "data" / "printing.json").read_text())


def _id(case: dict[str, Any]) -> str:
    return "-".join([case["input"], case.get("history", ""), *map(str, case.get("options", {}).items())])


@pytest.fixture(autouse=True)
def _default_options() -> Iterator[None]:
    yield
    set_printoptions(profile="default")
    set_default_dtype(np.float64)


@pytest.mark.parametrize("case", RECORDED, ids=_id)
def test_an_array_prints_as_in_pytorch(case: dict[str, Any]) -> None:
    set_printoptions(**case.get("options", {}))
    array = np.asarray(eval(case["input"], {"np": np, "__builtins__": {"complex": complex}}))
    node = "CloneBackward0" if case.get("history") == "clone" else None
    assert text_of_array(array, bool(case.get("history")), node) == case["text"]


def test_the_dtype_is_told_unless_it_is_the_default() -> None:
    single, double = np.ones(2, "float32"), np.ones(2)
    assert (text_of_array(single), text_of_array(double)) == ("tensor([1., 1.], dtype=float32)", "tensor([1., 1.])")
    set_default_dtype(np.float32)
    assert (text_of_array(single), text_of_array(double)) == ("tensor([1., 1.])", "tensor([1., 1.], dtype=float64)")
    assert text_of_array(np.array([1j])) == "tensor([0.+1.j], dtype=complex128)"
    assert text_of_array(np.array([1j], "complex64")) == "tensor([0.+1.j])"


def test_a_tensor_prints_with_its_place_on_the_tape() -> None:
    x = tensor([1.0, 2.5], requires_grad=True)
    assert text_of(x) == "tensor([1.0000, 2.5000], requires_grad=True)"
    assert text_of(x * x) == "tensor([1.0000, 6.2500], grad_fn=<MulBackward0>)"


def test_a_number_formats_by_a_spec_and_an_array_does_not() -> None:
    assert format_of(tensor(1.5, requires_grad=True), ".3f") == "1.500"
    assert format_of(tensor(1.5), "") == "1.5"
    assert format_of(tensor(3), "04d") == "0003"
    assert format_of(tensor([1.5]), "") == "tensor([1.5000])"
    with pytest.raises(TypeError, match="unsupported format string"):
        format_of(tensor([1.5]), ".3f")


def test_options_not_given_stay_but_sci_mode_returns_to_the_values() -> None:
    set_printoptions(precision=2, sci_mode=True)
    set_printoptions(linewidth=20)
    assert get_printoptions() == {
        "precision": 2,
        "threshold": 1000,
        "edgeitems": 3,
        "linewidth": 20,
        "sci_mode": None,
    }
    with pytest.raises(ValueError, match="no print profile 'wide'"):
        set_printoptions(profile="wide")


@pytest.mark.parametrize("shape", [(1001,), (40, 40), (2, 700), (11, 10, 10)])
def test_a_summary_shows_the_elements_at_the_edges_and_no_others(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    numbers = [
        int(word)
        for word in text_of_array(array)[len("tensor(") : -1]
        .replace("[", " ")
        .replace("]", " ")
        .replace(",", " ")
        .split()
        if word != "..."
    ]
    edges = [i if n <= 6 else [*i[:3], *i[-3:]] for n in shape if (i := list(range(n)))]
    assert numbers == array[np.ix_(*edges)].ravel().tolist()


def test_printing_raises_no_floating_point_flags() -> None:
    with np.errstate(all="raise"):
        text_of_array(np.array([1e-308, 1e308, np.inf, np.nan, 5e-324]))


def test_a_result_of_several_tensors_shows_those_without_axes_as_tensors() -> None:
    x = tensor([1.0, 3.0, 3.0], requires_grad=True)
    assert str(x.mode()) == (
        "tracegrad.return_types.mode(\nvalues=tensor(3., grad_fn=<ModeBackward0>),\nindices=tensor(2))"
    )
    assert repr(x.max(0)).endswith("indices=tensor(1))")
