"""`explain`, `graph` and the log: seeing what was recorded, and why a function was traced again."""

import gc
import logging
import re

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ir import parse
from tracegrad.runtime.execution.program import machine_code_count
from tracegrad.settings import settings

X = np.ones(3)
RATE = 0.5


@tg.trace(static_argnames="mode")
def f(params, x, mode="a"):
    if x.sum() > 0:
        return np.tanh(x * params["w"]).sum() * RATE
    return x.sum()


def test_explain_shows_every_stage():
    text = str(f.explain({"w": X}, X, mode="b"))
    for part in (
        "f (",
        "test_explain.py:",
        "params['w']: f64[3]",
        "x: f64[3]",
        "mode == 'b' (static)",
        "the global RATE == 0.5",
        "bool() at ",
        "was True",
        "graph, ",
        "graph after the passes",
        "fusion groups:",
        "kernels:",
        "cache:",
        "machine code:",
        "times:",
        "trace: ",
    ):
        assert part in text, part


def test_the_parts_of_an_explanation_can_be_used():
    explained = f.explain({"w": X}, X)
    assert parse(str(explained.graph)) == explained.graph
    assert parse(str(explained.optimized)) == explained.optimized
    assert len(explained.optimized.nodes) <= len(explained.graph.nodes)
    assert explained.entry_guards == ("params['w']: f64[3]", "x: f64[3]")
    assert len(explained.kernels) >= 1
    assert explained.seconds["trace"] > 0


def test_explain_tells_the_bytes_of_each_buffer_and_the_most_that_a_call_needs():
    def g(a, b):
        c = a @ b
        return np.tanh(c) @ b

    explained = tg.trace(g).explain(np.ones((40, 30)), np.ones((30, 30)))
    memory = explained.memory
    assert (memory.inputs, memory.results) == (8 * (40 * 30 + 30 * 30), 8 * 40 * 30)
    kinds = {used.value.partition(" ")[0]: (used.kind, used.bytes) for used in memory.buffers}
    assert kinds["a"] == ("input", 9600)
    assert kinds["b"] == ("input", 7200)
    temporary = [used for used in memory.buffers if used.kind == "temporary"]
    assert all(0 <= used.first <= used.last <= 2 for used in memory.buffers)
    assert max(used.bytes for used in temporary) <= memory.arena <= sum(used.bytes for used in temporary) + 64 * 8
    assert memory.peak == memory.results + memory.arena
    text = str(explained)
    assert f"at most {memory.peak / 1000:.1f} kB: 9.60 kB of results, " in text
    assert re.search(r"b\d+ a f64\[40,30\]: 9.60 kB, input, step 0", text)


def test_temporaries_that_are_not_needed_together_share_memory():
    def g(a):
        for _ in range(6):
            a = np.tanh(a @ a)
        return a

    memory = tg.trace(g).explain(np.ones((40, 40))).memory
    sizes = [used.bytes for used in memory.buffers if used.kind == "temporary"]
    assert memory.arena <= 3 * max(sizes)


def test_explain_shows_a_node_of_several_results_once():
    explained = tg.trace(lambda x: np.linalg.eigh(x @ x.T)).explain(np.eye(3) + 1.0)
    (text,) = [line.strip() for line in str(explained.graph).splitlines() if "eigh" in line]
    assert text == "%4, %5 = eigh(%3) {lower=True} : f64[3], f64[3,3]"
    at = explained.groups.index("2: call of eigh")
    assert explained.groups[at + 1 : at + 3] == (
        "   stores %13 result f64[3]: output",
        "   stores %14 result f64[3,3]: output",
    )


def test_explain_compiles_nothing_that_a_call_has_compiled():
    g = tg.trace(lambda x: x * 2)
    g(X)
    g.explain(X)
    assert g.graph(X) == g.explain(X).graph
    assert g.cache_info().traces == 1


def test_explain_says_where_the_machine_code_of_each_step_came_from(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "cache_dir", str(tmp_path))

    def loss(x, y):
        for _ in range(3):
            x = np.arctan(np.cosh(x @ y + 0.625))
        return np.sum(x, axis=0)

    x, y = np.ones((11, 12)), np.eye(12)
    fun = tg.trace(loss)
    new = fun.explain(x, y).pieces
    assert [line.partition(":")[0] for line in new] == ["1, 3", "5"]
    assert all(line.partition(": ")[2].startswith("new, ") and line.endswith(" ms") for line in new)
    again = tg.trace(lambda x, y: loss(x, y)).explain(x, y)
    assert again.pieces == ("1, 3: from memory", "5: from memory")
    assert "machine code:\n  1, 3: from memory\n" in str(again)
    fun.clear()
    del again
    gc.collect()
    read = tg.trace(lambda x, y: loss(x, y)).explain(x, y).pieces
    for line, steps in zip(read, ("1, 3", "5"), strict=True):
        assert re.fullmatch(steps + r": from disk, \d+\.\d\d ms", line)


def test_explain_names_captured_arrays():
    w = np.ones(3)
    assert any("the closure variable w: f64[3]" in line for line in tg.trace(lambda x: x * w).explain(X).world_guards)


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "tracegrad.retrace")
    caplog.set_level(logging.INFO, "tracegrad.compile")
    return lambda topic: [r.getMessage() for r in caplog.records if r.name == f"tracegrad.{topic}"]


def test_the_log_says_which_argument_caused_a_retrace(log):
    g = tg.trace(f.fun, static_argnames="mode")
    g({"w": X}, X)
    assert log("retrace") == []
    g({"w": X.astype(np.float32)}, X)
    assert log("retrace")[-1] == "f: params['w']: f64[3] -> f32[3]"
    g({"w": X}, np.ones((4, 3)))
    assert log("retrace")[-1] == "f: x: f64[3] -> f64[4,3]"
    g({"w": X}, X, mode="b")
    assert log("retrace")[-1] == "f: the static argument mode: nothing -> 'b'"
    g({"w": X}, X, mode=0.5)
    assert log("retrace")[-1] == "f: the static argument mode: 'b' -> 0.5"
    g({"w": X}, X, mode=(1, (2.0,)))
    assert log("retrace")[-1] == "f: the static argument mode: 0.5 -> (1, (2.0,))"
    g({"w": X, "b": None}, X)
    assert log("retrace")[-1] == "f: the structure of params: {'w': *} -> {'w': *, 'b': None}"
    with pytest.raises(AttributeError):
        g({"w": X}, [X])
    assert log("retrace")[-1] == "f: the structure of x: * -> [*]"
    g({"w": 2.0}, X)
    assert log("retrace")[-1] == "f: params['w']: f32[3] -> float"


def test_the_log_says_which_value_caused_a_retrace(log):
    g = tg.trace(lambda x: x if x.sum() > 0 else -x)
    g(X)
    g(-X)
    (message,) = log("retrace")
    assert "bool() at " in message
    assert message.endswith("True -> False")


def test_the_log_says_which_captured_variable_caused_a_retrace(log):
    global RATE
    g = tg.trace(lambda x: x * RATE)
    g(X)
    RATE, before = 3, RATE
    try:
        g(X)
    finally:
        RATE = before
    (message,) = log("retrace")
    assert message.endswith("the global RATE == 0.5, now 3")


def test_the_log_reports_each_compilation(log):
    g = tg.grad(lambda x: np.sum(x * x))
    g(X)
    g(X)
    (message,) = log("compile")
    assert message.startswith("grad(")
    assert "traced" in message
    assert "ms" in message


class Model:
    def __init__(self) -> None:
        self.scale, self.layers = np.array([1.0, 2.0]), [np.ones(2), np.full(2, 3.0)]

    def __call__(self, x):
        return x * self.scale + self.layers[1]

    def loss(self, params, *rest, rate):
        return np.sum((params["w"] * self.scale - rest[0]) ** 2) * rate


SCALE = np.array([1.0, 2.0])


def test_inputs_are_called_what_the_user_calls_them():
    offset, model, x = np.array([3.0, 4.0]), Model(), np.array([5.0, 6.0])

    def fn(x, params):
        return params["w"] * x + SCALE - offset + params["list"][1]

    arguments = x, {"w": x + 1, "list": [2.0, x + 2]}
    assert tg.trace(fn).graph(*arguments).names == (
        "x",
        "params['list'][0]",
        "params['list'][1]",
        "params['w']",
        "offset",
        "SCALE",
    )
    assert tg.trace(model.__call__).graph(x).names == ("x", "self.scale", "self.layers[1]")
    result = tg.grad(model.loss).explain({"w": x}, x, rate=2.0)
    assert result.graph.names == result.optimized.names == ("params['w']", "rest[0]", "rate", "self.scale")
    for graph in (result.graph, result.optimized):
        assert str(parse(str(graph))) == str(graph)
        assert parse(str(graph)) == graph
    assert "multiply(params['w'], self.scale)" in str(result.optimized)
    assert "self.scale is " in "".join(result.world_guards)
    assert tg.trace(lambda *args: args[0] + args[1]).graph(x, x).names == ("args[0]", "args[1]")


def test_names_are_no_part_of_what_machine_code_is_found_by():
    def one(first, second):
        return np.sqrt(first * first + second) - 0.25 * second

    def other(a, b):
        return np.sqrt(a * a + b) - 0.25 * b

    x, y = np.arange(11.0), np.arange(11.0) + 1
    left = tg.trace(one)
    np.testing.assert_array_equal(left(x, y), one(x, y))
    before = machine_code_count()
    right = tg.trace(other)
    np.testing.assert_array_equal(right(x, y), one(x, y))
    assert machine_code_count() == before
    graphs = left.graph(x, y), right.graph(x, y)
    assert graphs[0] == graphs[1]
    assert str(graphs[0]) != str(graphs[1])


def test_a_call_with_tensors_is_explained_with_what_they_are_on_the_tape():
    w = tg.tensor(np.ones((3, 2)), requires_grad=True)

    @tg.trace
    def step(x, y):
        loss = ((x @ w) ** 2).sum() + y
        loss.backward()
        return loss

    explained = step.explain(tg.tensor(np.ones((4, 3))), w.sum().detach().requires_grad_())
    assert explained.entry_guards == ("x: Tensor f64[4,3]", "y: Tensor f64[] that requires grad")
    assert "matmul(x, w.array)" in str(explained)
    assert w.grad is None  # it was not called


def test_each_kind_of_argument_has_words():
    kinds = tg.trace(lambda *xs: xs[0]).explain(np.ones(2), 1.5, 2**70, 1j, np.float32(1), (w := tg.tensor(1.0)), w * 2)
    assert [text.partition(": ")[2] for text in kinds.entry_guards] == [
        "f64[2]",
        "float",
        str(2**70),
        "1j",
        "f32[]",
        "Tensor f64[]",
        "Tensor f64[]",
    ]


@pytest.mark.parametrize("look", ["explain", "graph", "profile"])
def test_looking_at_a_call_without_its_arguments_is_an_error_that_names_them(look):
    def g(x, y):
        return x + y

    with pytest.raises(TypeError, match=r"g \(.*test_explain.py:\d+\): missing a required argument: 'y'"):
        getattr(tg.trace(g), look)(X)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        getattr(tg.grad(g), look)()
    with pytest.raises(TypeError, match="too many positional arguments"):
        getattr(tg.trace(g), look)(X, X, X)


def test_a_call_that_runs_as_plain_python_is_explained_by_the_reason():
    explained = tg.trace(lambda x: np.linalg.inv(np.zeros((2, 2)))).explain(X)
    assert "Singular matrix" in explained.plain
    assert f"runs as plain Python, uncompiled: {explained.plain}" in str(explained)
    assert not f.explain({"w": X}, X).plain


def test_it_says_how_arguments_are_read_that_are_not_in_row_major_order() -> None:
    scale = np.arange(3000.0)
    f = tg.trace(lambda x, y, n: np.sum(np.sin(x) * scale[0]) + y[0] * n, static_argnums=2)
    x, y = np.arange(20000.0)[::2], np.arange(8.0)[::2]
    entry = ["x: f64[10000], copied into row-major order", "y: f64[4], copied into row-major order", "n == 2 (static)"]
    assert list(f.explain(x, y, 2).entry_guards) == entry
    for _ in range(3):
        f(x, y, 2)
    told = f.explain(x, y, 2)
    assert list(told.entry_guards) == ["x: f64[10000], read where it lies, by strides (16,)", *entry[1:]]
    assert "load b0[2*i0]" in str(told)
    assert list(f.explain(x.copy(), y.copy(), 2).entry_guards) == ["x: f64[10000]", "y: f64[4]", entry[2]]
