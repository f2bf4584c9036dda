"""Leave out one optimization after the other: programs compute the same, and it is really absent."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from optimization_programs import PROGRAMS
from paths import ROOT

import tracegrad as tg
from tracegrad import passes, tree
from tracegrad.codegen.kernels.vectorize import vector_bytes
from tracegrad.codegen.lower import kernel_cache
from tracegrad.codegen.lower.lower import Lowering
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.program.region_function import unit_module
from tracegrad.ir import Graph
from tracegrad.optimizations import CHANGES_KERNELS, OPTIMIZATIONS, REQUIRED, STAGES, names_of, table_lines
from tracegrad.runtime.execution.entry_callable import release_arenas, unsupported_reason
from tracegrad.runtime.execution.program import Program, compile_program, conformed, machine_code_count
from tracegrad.runtime.memory.allocator import idle_bytes, release_idle
from tracegrad.settings import Settings, settings

# Optimizations that change neither the order of a sum nor which products are fused with a sum. The others may round
# differently: they add in another order, compute on other vectors, or with other expressions.
SAME_BITS = {
    "arena-reuse", "arena-sharing", "bound-tightening", "broadcast-sinking", "call-replay", "checkpointing",
    "closure-sharing", "conflict-blocking", "dead-store-elimination", "early-exit", "fast-path", "fused-arg-reduction",
    "in-place-updates", "inline-caches", "input-donation", "interior-splitting", "interleaved-access", "kernel-cache",
    "loop-tiling", "native-draws", "native-entry", "native-guards", "native-sorting", "native-unpacking",
    "output-reuse", "parallel-iterations", "parallel-kernels", "plan-cache", "prefetch", "scalar-replacement",
    "strip-mining", "transpose-tiling", "wavefront-tiling",
}  # fmt: skip
ROUNDED = (
    1e-11  # the largest difference of the others, relative to the largest element: all programs are well conditioned
)
# Each optimization of graphs and plans is left out of these programs too, whether it changes them or not.
OF_ALL_KINDS = ("chain", "softmax", "network", "systems", "heat", "embedding")
# Programs whose loops take many seconds if they are recorded iteration by iteration.
LONG = {"cholesky_by_elements", "listed_rates"}


def of_stages(*stages: str) -> list[str]:
    return [name for name, x in OPTIMIZATIONS.items() if x.stage in stages]


# -- programs --------------------------------------------------------------------------------------------------------
class Outcome(NamedTuple):
    """What a program computes, and all that its machine code and its calls depend on."""

    values: list[np.ndarray[Any, Any]]
    description: Any


class Recorded(NamedTuple):
    """The graph of a program, as it is before all passes, and its inputs."""

    program: Program
    inputs: list[Any]


def value_and_gradient(name: str) -> Any:
    return tg.value_and_grad(PROGRAMS[name].fun)


@cache
def recorded(name: str) -> Recorded:
    fun, args = value_and_gradient(name), PROGRAMS[name].args
    with settings.override(first_call="replay", **PROGRAMS[name].settings):
        call = fun.binder.bind(args, {})
        path, _, captured = fun.find(call)
    return Recorded(path.program, [conformed(x) for x in (*call.leaves, *captured)])


def planned(name: str) -> Program:
    """The program of the recorded graph, planned anew."""
    like = recorded(name).program
    return compile_program(like.graph, like.kinds, like.single, name, like.checked, first_call="replay", optimize=1)


def described(program: Program) -> Any:
    orders = [(spelled(x.function), *map(spelled, x.operands)) for x in program.image.orders]
    return orders, program.image.arena_bytes, [piece.text for piece in program.image.uses]


def spelled(word: Any) -> Any:
    return word if isinstance(word, int | str) else word.text


def run(program: Program, inputs: list[Any]) -> list[np.ndarray[Any, Any]]:
    program.compile()
    program.tier = None
    result = program.run(inputs)
    return [np.asarray(x) for x in (result if isinstance(result, tuple) else (result,))]


@cache
def usual(name: str) -> Outcome:
    """The program with nothing left out."""
    program = planned(name)
    return Outcome(run(program, recorded(name).inputs), described(program))


def without(disabled: str, name: str) -> Outcome:
    """The program without some optimizations of graphs and plans; it only runs if it differs from the usual one."""
    expected = usual(name)
    with settings.override(disable=disabled):
        program = planned(name)
        description = described(program)
        if description == expected.description:
            return expected
        return Outcome(run(program, recorded(name).inputs), description)


@cache
def traced(name: str, disabled: str = "") -> Outcome:
    """The value, the gradient and the graph of a call that is traced without some optimizations."""
    with settings.override(disable=disabled, **PROGRAMS[name].settings):
        fun, args = value_and_gradient(name), PROGRAMS[name].args
        result = fun(*args)
        path, *_ = fun.find(fun.binder.bind(args, {}))
    return Outcome([np.asarray(x) for x in tree.leaves(result)], str(path.trace.graph))


def emitted(program: Program) -> set[str]:
    """The LLVM IR of the units of a program, without the names of kernels."""
    results = set()
    for piece in program.image.uses:
        module = unit_module("unit")
        piece.define(module, "unit")
        results.add(re.sub(r"kernel\.[0-9a-f]{24}", "kernel", str(module)))
    return results


def require_equal(values: list[Any], expected: list[Any], same_bits: bool, what: str) -> None:
    for x, y in zip(values, expected, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype), what
        if same_bits or x.dtype.kind not in "fc":
            assert x.tobytes() == y.tobytes(), what
        else:
            np.testing.assert_allclose(x, y, rtol=ROUNDED, atol=ROUNDED * np.max(np.abs(y), initial=0.0), err_msg=what)


def shown_by(name: str) -> list[str]:
    """The programs that change without this optimization."""
    return [each for each, program in PROGRAMS.items() if name in program.shows]


# -- optimizations of graphs, kernels and plans ----------------------------------------------------------------------
@pytest.mark.parametrize("name", [x for x in of_stages("passes", "lower", "kernels", "plan") if shown_by(x)])
def test_programs_are_other_programs_without_it_and_compute_the_same(name: str) -> None:
    for each in shown_by(name):
        outcome = without(name, each)
        require_equal(outcome.values, usual(each).values, name in SAME_BITS, each)
        if name not in CHANGES_KERNELS:  # the texts of kernels name those in any case
            assert outcome.description != usual(each).description, each
    for each in OF_ALL_KINDS:
        require_equal(without(name, each).values, usual(each).values, name in SAME_BITS, each)


@pytest.mark.skipif(not vector_bytes(), reason="kernels are scalar loops here")
@pytest.mark.parametrize("name", sorted(CHANGES_KERNELS))
def test_the_code_of_kernels_is_other_code_without_it(name: str) -> None:
    for each in shown_by(name):
        before = emitted(planned(each))
        with settings.override(disable=name):
            assert emitted(planned(each)) != before, each


@pytest.mark.parametrize("name", [x for x in of_stages("trace") if shown_by(x)])
def test_traces_are_other_graphs_without_it_and_compute_the_same(name: str) -> None:
    for each in shown_by(name):
        outcome = traced(each, name)
        require_equal(outcome.values, traced(each).values, name in SAME_BITS, each)
        assert outcome.description != traced(each).description, each


@pytest.mark.parametrize("stage", ["passes", "lower", "kernels", "plan"])
def test_programs_compute_the_same_without_a_whole_stage(stage: str) -> None:
    for each in PROGRAMS:
        require_equal(without(",".join(of_stages(stage)), each).values, usual(each).values, False, each)


def test_programs_compute_the_same_without_all_optimizations() -> None:
    for each in PROGRAMS.keys() - LONG:
        require_equal(traced(each, ",".join(OPTIMIZATIONS)).values, traced(each).values, False, each)


# -- other optimizations ---------------------------------------------------------------------------------------------
X = np.linspace(0.5, 1.5, 12)
Observed = tuple[Any, Any]  # what shows the optimization, and what is computed
OTHERS: dict[str, Callable[[], Observed]] = {}


def shows(name: str) -> Callable[[Any], Any]:
    """Enter a function that shows an optimization which no graph or plan shows."""

    def enter(observe: Any) -> Any:
        OTHERS[name] = observe
        return observe

    return enter


def path_of(fun: Any, *args: Any) -> Any:
    return fun.find(fun.binder.bind(args, {}))[0]


def graph_of(fun: Any, *args: Any) -> Graph:
    graph: Graph = tg.trace(fun).graph(*args)
    return graph


@shows("call-replay")
def replayed_call() -> Observed:
    with settings.override(first_call="replay", cache=False):
        fun = tg.trace(lambda x: np.hypot(x * 2.0, 1.0) - np.floor(x) * np.rint(x) + np.copysign(x, -1.0))
        result = fun(X)
        return bool(fun.waiting(fun.binder.bind((X,), {}))), np.rint(result)


@shows("fast-path")
def fast_path() -> Observed:
    fun = tg.trace(lambda x: x * 2.0)
    results = [fun(X) for _ in range(3)]
    return type(fun) is not fun._plain, results


@shows("inline-caches")
def inline_caches() -> Observed:
    fun = tg.trace(lambda x: x * 2.0)
    results = [fun(x) for _ in range(4) for x in (X, X[:5])]
    return bool(fun._inline_caches), results


def fast_path_code(fun: Any, arg: Any) -> Observed:
    results = [fun(arg) for _ in range(3)]
    return type(fun).__call__.__code__.co_code, results


@shows("native-guards")
def native_guards() -> Observed:
    factor = 2.0
    return fast_path_code(tg.trace(lambda x: x * factor), X)


@shows("native-unpacking")
def native_unpacking() -> Observed:
    return fast_path_code(tg.trace(lambda p: p["a"] * p["b"]), {"a": X, "b": X[::-1].copy()})


@shows("native-entry")
def native_entry() -> Observed:
    fun = tg.trace(lambda x: np.sum(x) * 2.0)
    results = [fun(X) for _ in range(3)]
    return type(path_of(fun, X).program.entry).__name__, results


@shows("strided-inputs")
def strided_inputs() -> Observed:
    fun, x = tg.trace(lambda x: np.sin(x)), np.arange(14_400.0).reshape(120, 120).T
    results = [fun(x) for _ in range(4)]
    return len(path_of(fun, x)._strided_programs), results


@shows("output-reuse")
def output_reuse() -> Observed:
    fun, x = tg.trace(lambda x: x * 2.0), np.arange(2.0**16)
    last = fun(x)[-1]
    release_idle()
    fun(x)
    return idle_bytes() > 0, last


@shows("arena-sharing")
def arena_sharing() -> Observed:
    def normalized(x: Any) -> Any:
        y = np.exp(x)
        return y[::-1] / np.sum(y)

    x = np.linspace(0.0, 1.0, 200_000)
    graphs = graph_of(normalized, x), graph_of(lambda x: normalized(x * 2.0), x)
    release_arenas()
    first = compile_program(graphs[0], ("array",), True)
    result = first.run([x])
    second = compile_program(graphs[1], ("array",), True)
    taken = bool(second.entry.__self__.keepalive[1].word[0])
    return taken, (result, second.run([x]))


@shows("closure-sharing")
def closure_sharing() -> Observed:
    def scaled(factors: Any) -> Any:
        return tg.grad(lambda x: np.sum(factors * x * x))

    functions = [scaled(k * X) for k in (2.0, 3.0, 4.0)]
    results = [fun(X) for fun in functions]
    return functions[-1].cache_info().traces, results


@shows("plan-cache")
def plan_cache() -> Observed:
    functions = [tg.trace(lambda x: np.sin(x) + 1.0) for _ in range(2)]
    results = [fun(X) for fun in functions]
    one, two = (path_of(fun, X).program.image for fun in functions)
    return one is two, results


@shows("kernel-cache")
def cached_kernels() -> Observed:
    def layers(x: Any) -> Any:
        for _ in range(3):
            x = x - np.max(np.sin(x), axis=1, keepdims=True)
        return x

    x = np.arange(400.0).reshape(20, 20)
    lowered, step = list[Any](), Lowering.lower_kernel
    kernel_cache.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lowering, "lower_kernel", lambda self, roots: lowered.append(roots) or step(self, roots))
        plan(passes.optimize(graph_of(layers, x)))
    return len(lowered), tg.trace(layers)(x)


@shows("input-donation")
def input_donation() -> Observed:
    x = np.linspace(0.5, 1.5, 100)
    program = compile_program(graph_of(np.sin, x), ("array",), True, donated=(0,))
    return [*program.donors], program.run([x.copy()])


@shows("native-draws")
def native_draws() -> Observed:
    def walk(x: Any, rng: Any) -> Any:
        for _ in range(40):
            if rng.random() < 0.5:
                x = x + 0.1 * np.sin(x)
        return x

    fun = tg.trace(walk)
    results = [fun(X, np.random.default_rng(7)) for _ in range(2)]
    return "Native(" in path_of(fun, X, np.random.default_rng(7)).program.report.plan.text(), results


@pytest.mark.skipif(unsupported_reason() is not None, reason="no native entry point here")
@pytest.mark.parametrize("name", OTHERS)
def test_it_does_not_act_if_it_is_left_out_and_calls_compute_the_same(name: str) -> None:
    observed, values = OTHERS[name]()
    with settings.override(disable=name):
        otherwise, again = OTHERS[name]()
    assert otherwise != observed
    arrays, others = ([np.asarray(x) for x in tree.leaves(each)] for each in (values, again))
    require_equal(others, arrays, name in SAME_BITS, name)


# -- the table -------------------------------------------------------------------------------------------------------
def test_each_optimization_is_shown_by_some_program() -> None:
    shown = {name for program in PROGRAMS.values() for name in program.shows}
    assert shown | OTHERS.keys() == OPTIMIZATIONS.keys()
    assert {x.stage for x in OPTIMIZATIONS.values()} == STAGES.keys()
    assert OPTIMIZATIONS.keys() >= SAME_BITS


def test_the_code_asks_for_each_name_of_the_table_and_for_no_other() -> None:
    text = "\n".join(x.read_text() for x in Path(ROOT, "tracegrad").rglob("*.py") if x.stem != "optimizations")
    asked = {
        *re.findall(r'\bdisabled\("([\w-]+)"\)', text),
        *re.findall(r'"([\w-]+)" (?:not )?in [\w.]*kernel\.disabled', text),
    }
    assert asked <= OPTIMIZATIONS.keys()
    assert [name for name in OPTIMIZATIONS if f'"{name}"' not in text] == []


def test_each_pass_is_in_the_table_or_is_required() -> None:
    for run_pass, _ in passes.PIPELINE:
        optional = passes.OPTIONAL.get(run_pass)
        assert (optional is None) == (run_pass.__name__ in REQUIRED)
        assert optional is None or OPTIMIZATIONS[optional].stage == "passes"


def test_the_table_as_text_has_all_names_and_what_they_do() -> None:
    lines = list(table_lines())
    assert len(lines) == len(OPTIMIZATIONS) + len(STAGES)
    for name, x in OPTIMIZATIONS.items():
        assert any(re.fullmatch(rf"  {name} +{re.escape(x.text)}", line) for line in lines)


def test_names_are_written_with_hyphens_or_underscores() -> None:
    assert names_of(["loop_fusion", " Rerolling", ""]) == {"loop-fusion", "rerolling"}
    with pytest.raises(ValueError, match=r"unknown optimization 'loop-fission'; `python -m tracegrad info"):
        names_of(["rerolling", "loop-fission"])


# -- keys ------------------------------------------------------------------------------------------------------------
def texts(fun: Any, *args: Any) -> str:
    return "\n".join(piece.text for piece in path_of(fun, *args).program.image.uses)


def test_a_change_of_the_setting_selects_another_program_and_back_again() -> None:
    fun = tg.trace(lambda x: np.tanh(x) * 1.5 + x)
    x = np.linspace(0.0, 1.0, 100)
    results = [fun(x) for _ in range(3)]
    assert type(fun) is not fun._plain
    with settings.override(disable="vectorization"):
        assert type(fun) is fun._plain  # the fast path is gone
        results += [fun(x) for _ in range(3)]
        assert fun.cache_info().traces == 2
        assert "without vectorization" in texts(fun, x)
    results += [fun(x) for _ in range(3)]
    assert fun.cache_info().traces == 2
    assert "without" not in texts(fun, x)
    for each in results:
        np.testing.assert_allclose(each, np.tanh(x) * 1.5 + x, rtol=1e-14)


def test_a_function_is_compiled_however_often_the_setting_changes() -> None:
    fun = tg.trace(lambda x: x - 0.5)
    for name in [*OPTIMIZATIONS] * 2:
        with settings.override(disable=name):
            fun(X)
    assert fun.cache_info()[:2] == (len(OPTIMIZATIONS), len(OPTIMIZATIONS) - 1)
    assert fun.cache_info().limited == 0


def test_a_thread_that_has_found_a_program_before_a_change_makes_no_fast_path_after_it() -> None:
    fun = tg.trace(lambda x: x * 2.5)
    fun(X)
    path = path_of(fun, X)
    assert path.ready(())
    with settings.override(disable="prefetch"):
        assert not path.ready(())


def test_a_program_is_planned_as_it_was_made_also_after_a_change() -> None:
    graph = graph_of(lambda x: np.tanh(x) + x, np.linspace(0.0, 1.0, 100))
    with settings.override(disable="vectorization"):
        program = compile_program(graph, ("array",), True)
    assert "without vectorization" in program.report.plan.text()
    t = tg.tensor(np.linspace(0.0, 1.0, 100), requires_grad=True)
    fun = tg.trace(lambda t: (t * t).tanh().sum())
    with settings.override(disable="vectorization"):
        result = fun(t)
        backward = path_of(fun, t).on_tape
    result.backward()
    assert "without vectorization" in backward.backward.report.plan.text()


def test_functions_of_one_family_share_programs_for_each_value_of_the_setting() -> None:
    def scaled(factors: Any) -> Any:
        return tg.grad(lambda x: np.sum(np.sin(factors * x)))

    functions = [scaled(k * X) for k in (2.0, 3.0, 4.0)]
    for disabled in ("", "vectorization", ""):
        with settings.override(disable=disabled):
            for fun in functions:
                fun(X)
    assert [fun.cache_info().traces for fun in functions] == [2, 2, 0]


def test_code_is_compiled_anew_for_optimizations_of_kernels_alone() -> None:
    x = np.linspace(0.0, 1.0, 333)

    def compiled(disabled: str) -> int:
        with settings.override(disable=disabled):
            before = machine_code_count()
            tg.trace(lambda x: np.cosh(x) * np.arctan(x) - np.cbrt(x))(x)
            return machine_code_count() - before

    with settings.override(cache=False):
        held = tg.trace(lambda x: np.cosh(x) * np.arctan(x) - np.cbrt(x))
        held(x)
        assert compiled("") == 0
        assert compiled("rerolling,fast-path,buffer-reuse") == 0
        assert compiled("prefetch") == 1


def test_plans_are_kept_for_each_value_of_the_setting() -> None:
    graph, x = graph_of(lambda x: np.sin(x[::2]) + x[1::2], np.arange(40.0)), np.arange(40.0)

    def image(disabled: str = "") -> Any:
        with settings.override(disable=disabled):
            return compile_program(graph, ("array",), True).image

    first, other = image(), image("loop-interchange")
    assert image() is first
    assert image("loop-interchange") is other is not first
    assert compile_program(graph, ("array",), True).run([x]).shape == (20,)


def test_traces_on_disk_are_used_for_their_value_of_the_setting_alone(tmp_path: Path) -> None:
    fun, x = tg.trace(lambda x: np.exp(x) * np.sin(x) + 0.25), np.linspace(0.0, 1.0, 50)

    def traces(disabled: str = "") -> tuple[int, bool]:
        """How often a new process would trace, and whether the program is that without vectors."""
        fun.clear()
        with settings.override(disable=disabled):
            np.testing.assert_allclose(fun(x), np.exp(x) * np.sin(x) + 0.25, rtol=1e-14)
            return fun.cache_info().traces, "without vectorization" in texts(fun, x)

    with settings.override(cache_dir=str(tmp_path), cache_traces=True):
        assert [traces(), traces()] == [(1, False), (0, False)]
        assert [traces("vectorization"), traces("vectorization")] == [(1, True), (0, True)]
        assert traces() == (0, False)
        assert traces("vectorization") == (0, True)


def test_the_environment_names_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEGRAD_DISABLE", "loop_fusion, prefetch")
    assert Settings().disable == {"loop-fusion", "prefetch"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_a_sum_of_one_negative_zero_is_zero_also_without_rules(dtype: Any) -> None:
    x = -np.zeros((2, 1), dtype)
    with settings.override(disable="shape-rules,simplification"):
        result = tg.trace(lambda x: np.sum(x, axis=1))(x)
    expected = np.sum(x, axis=1)
    np.testing.assert_array_equal(np.signbit([result.real, result.imag]), np.signbit([expected.real, expected.imag]))
    assert not np.signbit(result.real).any()
