"""Mixed precision: contexts that change no dtype, and the factor of the loss, as PyTorch has it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tracegrad as tg
from tracegrad import amp
from tracegrad.cuda import amp as cuda_amp


def test_autocast_changes_no_dtype_and_says_where_it_is() -> None:
    x = tg.ones(2, 2, dtype=tg.float32)
    assert not tg.is_autocast_enabled("cpu")
    with tg.autocast("cpu", dtype=tg.float16):
        assert (x @ x).dtype == tg.float32
        assert tg.is_autocast_enabled("cpu")
        assert tg.get_autocast_dtype("cpu") == tg.float16
        with amp.autocast(device_type="cpu", enabled=False):
            assert not tg.is_autocast_enabled("cpu")
        assert tg.is_autocast_enabled("cpu")
    assert not tg.is_autocast_enabled("cpu")
    assert tg.get_autocast_dtype("cpu") is tg.bfloat16

    @tg.autocast("cpu")
    def f(x: Any) -> Any:
        return x * 2, tg.is_autocast_enabled("cpu"), tg.is_autocast_enabled()

    assert f(1) == (2, True, False)


def test_autocast_of_another_device_is_disabled() -> None:
    with pytest.warns(UserWarning, match="device_type of 'cuda', but it is not available. Disabling"):
        context = tg.autocast("cuda")
    with context:
        assert not tg.is_autocast_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tg.autocast("cuda", enabled=False), cuda_amp.autocast(enabled=False):
            pass
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'gpu'"):
        tg.autocast("gpu")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        tg.autocast(1)  # type: ignore[arg-type]


def test_a_traced_step_with_autocast() -> None:
    @tg.trace
    def step(x: Any) -> Any:
        with tg.autocast("cpu"):
            return (x * x).sum()

    for _ in range(3):
        assert step(tg.ones(3)).item() == 3.0
    assert not tg.is_autocast_enabled("cpu")


def scaled(scaler: Any, optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def test_the_factor_shrinks_and_grows() -> None:
    w = tg.tensor([1.0, 2.0], dtype=tg.float32, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.5)
    scaler = amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    factors = []
    for infinite in (False, True, False, False, False, False):
        before = w.tolist()
        scaled(scaler, optimizer, w.sum() * (float("inf") if infinite else 1.0))
        assert w.tolist() == (before if infinite else [x - 0.5 for x in before])
        factors.append(scaler.get_scale())
    assert factors == [8.0, 4.0, 4.0, 8.0, 8.0, 16.0]
    state = scaler.state_dict()
    assert state == {
        "scale": 16.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2,
        "_growth_tracker": 0,
    }
    other = amp.GradScaler("cpu")
    assert other.get_scale() == 65536.0
    other.load_state_dict(state)
    assert other.state_dict() == state
    other.update(new_scale=3.0)
    assert other.get_scale() == 3.0


def test_gradients_are_divided_once() -> None:
    w = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=1.0)
    scaler = amp.GradScaler("cpu", init_scale=4.0)
    outputs = scaler.scale([w.sum(), (w * 2).sum()])
    assert [x.item() for x in outputs] == [8.0, 16.0]
    sum(outputs).backward()
    assert w.grad.tolist() == [12.0, 12.0]
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since the last"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert w.tolist() == [-2.0, -2.0]
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    w.grad = None
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        scaler.step(optimizer)
    with pytest.raises(AssertionError, match="growth factor"):
        amp.GradScaler("cpu", growth_factor=1.0)


def test_a_scaler_without_a_device_does_nothing() -> None:
    with pytest.warns(UserWarning, match="'cuda' is enabled, but the device is not available"):
        scaler = amp.GradScaler()
    w = tg.ones(2, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=1.0)
    scaled(scaler, optimizer, w.sum())
    assert w.tolist() == [0.0, 0.0]
    assert (scaler.is_enabled(), scaler.get_scale(), scaler.state_dict()) == (False, 1.0, {})
    assert not cuda_amp.GradScaler(enabled=False).is_enabled()


def test_a_traced_step_does_not_retrace() -> None:
    w = tg.ones(2, dtype=tg.float32, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.1)
    scaler = amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

    @tg.trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (w * x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    factors = []
    for _ in range(7):
        step(tg.ones(2, dtype=tg.float32))
        factors.append(scaler.get_scale())
    assert factors == [8.0, 8.0, 16.0, 16.0, 16.0, 32.0, 32.0]
    assert w.tolist() == pytest.approx([0.3, 0.3], abs=1e-6)
    assert step.cache_info().traces <= 2
