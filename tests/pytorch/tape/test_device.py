"""Devices: objects that name them, the CPU as the only one for Tensors, and the namespaces of those that are not."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tracegrad as tg
from tracegrad import accelerator, cuda


@pytest.mark.parametrize(
    ("arguments", "text", "shown"),
    [
        (("cpu",), "cpu", "device(type='cpu')"),
        (("cpu:0",), "cpu:0", "device(type='cpu', index=0)"),
        (("cuda",), "cuda", "device(type='cuda')"),
        (("cuda", 1), "cuda:1", "device(type='cuda', index=1)"),
        ((1,), "cuda:1", "device(type='cuda', index=1)"),
        (("mps",), "mps", "device(type='mps')"),
        ((tg.device("cuda:2"),), "cuda:2", "device(type='cuda', index=2)"),
    ],
)
def test_a_device_has_a_type_and_an_index(arguments: tuple[Any, ...], text: str, shown: str) -> None:
    device = tg.device(*arguments)
    assert (str(device), repr(device), f"on {device}") == (text, shown, f"on {text}")
    kind, _, index = text.partition(":")
    assert (device.type, device.index) == (kind, int(index) if index else None)
    for other in (tg.device(text), pickle.loads(pickle.dumps(device)), copy.deepcopy(device)):
        assert other == device
        assert hash(other) == hash(device)
        assert (type(other), other.type, other.index) == (tg.device, device.type, device.index)
    assert device != tg.device("cuda:7")


def test_a_device_without_an_index_is_another_one() -> None:
    assert tg.device("cpu") != tg.device("cpu", 0)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("gpu",), RuntimeError, "Expected one of cpu, cuda, .* device type at start of device string: gpu"),
        (("cuda:x",), RuntimeError, "Invalid device string: 'cuda:x'"),
        (("cuda:0", 1), RuntimeError, "must not include an index because index was passed explicitly: cuda:0"),
        (("cuda", -1), RuntimeError, "Device index must not be negative"),
        ((1.5,), TypeError, "must be str, not float"),
        ((), TypeError, "type"),
    ],
)
def test_a_device_that_cannot_be_is_refused(arguments: tuple[Any, ...], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        tg.device(*arguments)


def test_a_tensor_is_on_the_cpu() -> None:
    x = tg.ones(2, device=tg.device("cpu"))
    assert x.device == tg.device("cpu") == "cpu"
    assert x.device.type == "cpu"
    assert (x.is_cuda, x.is_cpu, x.is_mps, x.is_sparse, x.get_device()) == (False, True, False, False, -1)
    assert x.cpu() is x.to(tg.device("cpu")) is x.to("cpu") is x.to(device="cpu:0") is x
    assert x.to(tg.device("cpu"), tg.float32).dtype == tg.float32
    assert x.to("cpu", tg.int64, non_blocking=True).dtype == tg.int64
    assert tg.Generator(device="cpu").device.type == "cpu"
    model = tg.nn.Linear(2, 1, device=x.device).to(x.device)
    assert model.weight.device.type == "cpu"
    assert model.to(x.device, tg.float64) is model


@pytest.mark.parametrize(
    "move",
    [
        lambda device: tg.ones(2, device=device),
        lambda device: tg.ones(2).to(device),
        lambda device: tg.ones(2).to(device=device),
        lambda device: tg.nn.Linear(2, 1).to(device),
        lambda device: tg.nn.Linear(2, 1, device=device),
        lambda device: tg.set_default_device(device),
        lambda device: tg.ones(2).cuda(),
        lambda device: tg.ones(2).pin_memory(),
        lambda device: tg.nn.Linear(2, 1).cuda(),
        lambda device: device.__enter__(),
    ],
)
def test_nothing_moves_to_another_device(move: Any) -> None:
    with pytest.raises(RuntimeError, match=r"tracegrad computes on the CPU: there is no device 'cuda"):
        move(tg.device("cuda"))


def test_a_number_is_a_cuda_device() -> None:
    with pytest.raises(RuntimeError, match="no device 'cuda:0'"):
        tg.ones(2).to(0)


def test_the_default_device_is_the_cpu() -> None:
    tg.set_default_device("cpu")
    tg.set_default_device(None)
    with tg.device("cpu") as device:
        assert tg.get_default_device() == device == tg.zeros(1).device
    assert tg.device("cpu")(lambda x: x + 1)(1) == 2


def test_the_namespaces_of_other_devices_answer() -> None:
    assert not cuda.is_available()
    assert not cuda.is_initialized()
    assert not cuda.is_bf16_supported()
    assert cuda.device_count() == cuda.memory_allocated() == cuda.max_memory_allocated() == 0
    cuda.manual_seed(0)
    cuda.manual_seed_all(0)
    cuda.empty_cache()
    assert not accelerator.is_available()
    assert accelerator.device_count() == 0
    current: object = accelerator.current_accelerator()
    assert current is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (cuda.current_device, "no device 'cuda'"),
        (cuda.get_device_name, "no device 'cuda'"),
        (cuda.synchronize, "no device 'cuda'"),
        (lambda: cuda.set_device(0), "no device 'cuda'"),
        (accelerator.current_device_index, "when none is available"),
        (accelerator.synchronize, "when none is available"),
        (lambda: accelerator.set_device_index(0), "when none is available"),
    ],
)
def test_what_needs_another_device_raises(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize(
    ("name", "instead"), [("backends", "settings"), ("distributed", "dask"), ("fx", "graph"), ("jit", "trace")]
)
def test_namespaces_that_are_not_there_say_what_is(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=rf"tracegrad has no '{name}': .*tracegrad\.{instead}|{instead}"):
        getattr(tg, name)
    with pytest.raises(ModuleNotFoundError, match=rf"No module named 'tracegrad\.{name}': .*{instead}"):
        __import__(f"tracegrad.{name}")
