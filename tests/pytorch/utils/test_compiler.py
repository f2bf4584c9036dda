"""`compile` and `torch.compiler`: PyTorch's signature over the compiler, for functions and modules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tracegrad as tg


def model() -> Any:
    tg.manual_seed(0)
    return tg.nn.Sequential(tg.nn.Linear(2, 3), tg.nn.Dropout(0.5), tg.nn.Linear(3, 1))


def test_functions_compile_directly_and_as_decorators() -> None:
    @tg.compile
    def f(x: Any) -> Any:
        return tg.sin(x) * 2

    @tg.compile(fullgraph=True, dynamic=False, backend="inductor", mode="max-autotune")
    def g(x: Any) -> Any:
        return tg.sin(x) * 2

    x = tg.tensor([0.5], requires_grad=True)
    for compiled in (f, g, tg.compile(lambda x: tg.sin(x) * 2, options={"trace.enabled": True})):
        x.grad = None
        compiled(x).backward()
        assert x.grad.item() == pytest.approx(2 * tg.cos(x).item())
        assert compiled.cache_info().traces == 1
    plain = tg.compile(len, disable=True)
    assert plain is len
    with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
        tg.compile(len, mode="default", options={})


def test_a_compiled_module_is_a_module() -> None:
    plain = model().eval()
    compiled = tg.compile(plain)
    x = tg.ones(4, 2)
    assert tg.allclose(compiled(x), plain(x))
    assert isinstance(compiled, tg.nn.Module)
    assert [p is q for p, q in zip(compiled.parameters(), plain.parameters())] == [True] * 4
    assert set(compiled.state_dict()) == {f"_orig_mod.{name}" for name in plain.state_dict()}
    assert compiled[0] is plain[0]
    assert len(compiled) == 3
    assert not compiled.training
    compiled.train()
    assert plain.training
    assert plain[1].training
    compiled.eval()
    assert not plain[1].training
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert tg.allclose(other(x), plain(x))
        assert other[0].weight is not plain[0].weight


def test_a_compiled_module_trains() -> None:
    losses = []
    for wrap in (lambda m: m, tg.compile):
        net = model().eval()
        call = wrap(net)
        optimizer = tg.optim.SGD(call.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = (call(tg.ones(4, 2)) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1])


def test_what_the_compiler_says_of_itself() -> None:
    seen = []

    @tg.compile
    def f(x: Any) -> Any:
        seen.append(tg.compiler.is_compiling())
        return x + 1

    f(tg.ones(1))
    assert seen[0]
    assert not tg.compiler.is_compiling()
    tg.compiler.reset()

    @tg.compiler.disable
    def g(x: Any) -> Any:
        return f(x)

    assert g(tg.ones(1)).item() == 2.0
    assert g.__name__ == "g"
    assert tg.compile(lambda x: g(x) * 2)(tg.ones(1)).item() == 4.0
    assert tg.compiler.disable(reason="slow")(len)([1]) == 1
