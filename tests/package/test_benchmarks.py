"""The benchmark harness: it refuses to time wrong results, and its figures are what it says they are."""

import gc
import importlib
import json
import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import scipy

from benchmarks import __main__ as command
from benchmarks import functions, harness, peers, speed
from benchmarks.harness import Case, Disagreement, Settings, Skip, Timed, check, run_case
from benchmarks.peers import need
from tracegrad.numpy_api import supported


@pytest.fixture(autouse=True)
def _environment():
    """The command sets variables for its peers, a folder that it removes among them."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


FAST = Settings(rounds=3, rounds_once=3, loop_seconds=1e-5, settle_seconds=0.0)


def case(once=False, **factories):
    factories = {name.replace("_", " "): factory for name, factory in factories.items()}
    return Case("a case", factories, lambda: np.arange(3.0), once=once)


def right():
    return lambda: np.arange(3.0)


def raises(error):
    raise error


WRONG = {
    "value": np.arange(3.0) + 1e-6,
    "not a number": np.full(3, np.nan),
    "shape": np.arange(4.0),
    "dtype": np.arange(3.0, dtype=np.float32),
    "structure": (np.arange(3.0), np.arange(3.0)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_peer_that_disagrees_is_an_error_before_anything_is_timed(kind):
    calls = []

    def counting():
        return lambda: calls.append(1) or np.arange(3.0)

    with pytest.raises(Disagreement, match="a case, peer"):
        run_case(case(tracegrad=counting, peer=lambda: lambda: WRONG[kind]), FAST)
    assert len(calls) == 1


def test_the_tolerance_follows_the_dtype_and_the_greatest_value():
    expected = np.array([1e-3, 1.0], np.float32)
    check("peer", expected + np.float32(1e-4), expected)
    with pytest.raises(Disagreement):
        check("peer", expected + np.float32(1e-3), expected)
    with pytest.raises(Disagreement):
        check("peer", expected.astype(float) + 1e-4, expected.astype(float))
    with pytest.raises(Disagreement):
        check("peer", np.array([1, 2]), np.array([1, 3]))


def test_a_python_number_may_stand_for_a_scalar():
    check("peer", (2.5, [1.0]), (np.float32(2.5), [np.float64(1.0)]))


def test_a_missing_peer_is_a_row_with_the_reason_and_tracegrads_failure_is_a_failure():
    rows = run_case(
        case(
            tracegrad=lambda: raises(ValueError("bad shape")),
            tracegrad_eager=lambda: raises(Skip("tracegrad is not installed")),
            broken=lambda: raises(OSError("no compiler\nfound")),
            numpy=right,
        ),
        FAST,
    ).rows
    assert [(row.peer, row.status, row.reason) for row in rows] == [
        ("tracegrad", "failed", "ValueError: bad shape"),
        ("tracegrad eager", "skipped", "tracegrad is not installed"),
        ("broken", "skipped", "OSError: no compiler"),
        ("numpy", "ok", ""),
    ]


def test_a_package_that_is_not_installed_is_skipped():
    with pytest.raises(Skip, match="no_such_package is not installed"):
        peers.need("no_such_package")


def test_a_case_without_any_peer_that_runs_has_rows_and_no_reference():
    result = run_case(case(peer=lambda: raises(Skip("missing"))), FAST)
    assert result.reference is None
    assert "skipped: missing" in harness.table(result)
    assert "skipped: missing" in harness.brief(result)


def test_statistics_and_ratios_are_those_of_the_samples():
    def clock(*seconds):
        times = iter((9.0, *seconds))
        return lambda: lambda: Timed(next(times), np.arange(3.0))

    result = run_case(case(once=True, peer=clock(3.0, 8.0, 4.0), tracegrad=clock(1.0, 2.0, 8.0)), FAST)
    peer, own = result.rows
    assert result.reference == "tracegrad"
    assert peer.samples == [3.0, 8.0, 4.0]
    assert (peer.first, peer.minimum, peer.quartile1, peer.median, peer.quartile3) == (
        9.0,
        3.0,
        3.5,
        4.0,
        6.0,
    )
    assert peer.ratio == 3.0  # the median of 3, 4 and 0.5, not the ratio of the medians
    assert (own.median, own.ratio) == (2.0, 1.0)


def test_every_round_times_every_peer_and_the_first_of_a_round_changes():
    order = []
    factories = {n: lambda n=n: lambda: order.append(n) or np.arange(3.0) for n in ("tracegrad", "b", "c")}
    run_case(case(once=True, **factories), FAST)
    rounds = [tuple(order[i : i + 3]) for i in range(3, 12, 3)]
    assert rounds == [("tracegrad", "b", "c"), ("b", "c", "tracegrad"), ("c", "tracegrad", "b")]


@pytest.mark.parametrize(("seconds", "slept"), [(0.0, 0.02), (0.2, 0.22), (1.0, harness.MOST_SETTLING)])
def test_a_peer_is_timed_when_the_threads_of_the_one_before_have_come_to_rest(seconds, slept, monkeypatch):
    """By a clock of the test's own: beside other processes, threads that spin may seem to rest."""
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], sleep=lambda rest: now.append(now.pop() + rest))
    monkeypatch.setattr(harness, "time", clock)
    monkeypatch.setattr(harness, "_seconds_of_others", lambda: min(now[0], seconds))
    assert harness.settle(0.02) == pytest.approx(slept)


def test_what_other_threads_run_for_is_counted():
    def spin():
        while time.thread_time() < 0.05:
            pass

    before = harness._seconds_of_others()
    pool = threading.Thread(target=spin)
    pool.start()
    pool.join()
    assert harness._seconds_of_others() - before >= 0.04


def test_a_loop_repeats_a_short_call_and_the_time_is_that_of_one():
    calls = []
    settings = Settings(rounds=3, loop_seconds=0.02, settle_seconds=0.0)
    row = run_case(case(peer=lambda: lambda: calls.append(1) or time.sleep(0.001) or np.arange(3.0)), settings).rows[0]
    assert row.inner > 1
    assert len(calls) >= 3 * row.inner
    assert all(sample >= 0.001 for sample in row.samples)


def test_the_collector_is_off_while_a_clock_runs_and_on_afterwards():
    states = []
    run_case(case(peer=lambda: lambda: states.append(gc.isenabled()) or np.arange(3.0)), FAST)
    assert states
    assert not any(states)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (2.5e-8, "0.03 µs"),
        (9.996e-6, "10.0 µs"),
        (1.5e-3, "1.50 ms"),
        (0.9996, "1.00 s"),
        (61, "61.0 s"),
    ],
)
def test_seconds_are_shown_with_a_unit(seconds, shown):
    assert harness.show_seconds(seconds) == shown


@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_a_benchmark_lists_cases_of_different_names_with_tracegrad_among_the_peers(name):
    before = np.geterr()
    results = list(importlib.import_module(f"benchmarks.bench_{name}").cases(harness.QUICK))
    assert np.geterr() == before
    assert len({case.name for case in results}) == len(results)
    for one in results:
        assert "tracegrad" in one.peers


def directional(function, point, direction, h=1e-6):
    return (function(point + h * direction) - function(point - h * direction)) / (2 * h)


def test_the_gradients_written_by_hand_are_those_of_finite_differences():
    from benchmarks import (
        bench_call_overhead,
        bench_compile,
        bench_elementwise,
        bench_logistic,
        bench_mlp_step,
    )

    rng = np.random.default_rng(1)
    w, x = rng.standard_normal(4), rng.standard_normal((7, 4))
    y = np.array([0.0, 1, 1, 0, 1, 0, 1])
    one_hot, weights = np.eye(3)[[0, 1, 2, 2, 1, 0, 1]], rng.standard_normal((4, 3))
    hands = [
        (bench_call_overhead.by_hand, bench_call_overhead.rosenbrock, (rng.standard_normal(10),)),
        (bench_elementwise.by_hand, bench_elementwise.chain(np), (w, w + 1, w - 1)),
        (bench_logistic.by_hand, bench_logistic.logistic(np), (w, x, y)),
        (bench_compile.softmax_by_hand, bench_compile.softmax_loss(np), (weights, x, one_hot)),
    ]
    for by_hand, function, (point, *rest) in hands:
        direction = rng.standard_normal(point.shape)
        value, gradient = by_hand(point, *rest)
        assert value == pytest.approx(function(point, *rest), rel=1e-12)
        derivative = directional(lambda p: function(p, *rest), point, direction)  # noqa: B023
        assert np.sum(gradient * direction) == pytest.approx(derivative, rel=1e-6)
    matrices, x = bench_compile.layers(3)
    value, gradient = bench_compile.network_by_hand(matrices, x)
    assert value == pytest.approx(bench_compile.network(np)(matrices, x))
    direction = rng.standard_normal(matrices[1].shape)
    derivative = directional(
        lambda w: bench_compile.network(np)([matrices[0], w, matrices[2]], x), matrices[1], direction
    )
    assert np.sum(gradient[1] * direction) == pytest.approx(derivative, rel=1e-6)
    for order in bench_compile.orders():
        function, direction = bench_compile.function(np, order), rng.standard_normal(bench_compile.X.shape)
        value, gradient = bench_compile.by_hand(order)
        assert value == pytest.approx(function(bench_compile.X))
        derivative = directional(function, bench_compile.X, direction)
        assert np.sum(gradient * direction) == pytest.approx(derivative, rel=1e-6)
    parameters, x, labels = bench_mlp_step.data()
    parameters, x = [(w.astype(float), b.astype(float)) for w, b in parameters], x[:9].astype(float)
    value, new = bench_mlp_step.by_hand(parameters, x, labels[:9])
    (w, b), *rest = parameters
    direction = rng.standard_normal(w.shape)
    derivative = directional(lambda w: bench_mlp_step.mlp(np)([(w, b), *rest], x, labels[:9]), w, direction)
    assert np.sum((w - new[0][0]) * direction) == pytest.approx(float(bench_mlp_step.RATE) * derivative, rel=1e-5)


def test_the_derivatives_of_the_transforms_are_those_of_finite_differences():
    from scipy.special import logsumexp

    from benchmarks import bench_transforms

    def derivative_of(function, x, direction, h=1e-5):
        return (function(x + h * direction) - function(x - h * direction)) / (2 * h)

    rng = np.random.default_rng(1)
    x, a, direction = rng.standard_normal(5), rng.standard_normal((5, 5)), rng.standard_normal(5)
    f = bench_transforms.ripples(np, logsumexp)
    curvature = derivative_of(lambda y: derivative_of(lambda z: f(z, a), y, direction, 1e-4), x, direction, 1e-4)
    assert direction @ bench_transforms.hessian_by_hand(x, a) @ direction == pytest.approx(curvature, rel=1e-5)

    p, direction = bench_transforms.cameras(3), rng.standard_normal(15)
    jacobian = bench_transforms.jacobians_by_complex_steps(p)[1]
    np.testing.assert_allclose(
        jacobian @ direction, derivative_of(bench_transforms.camera(np), p[1], direction), rtol=1e-6
    )

    order = ("sin", "exp", "sqrt")
    value, gradient = bench_transforms.loop_by_hand(order, 3)
    direction = rng.standard_normal(20)

    def loop(x):
        return bench_transforms.long_loop(np, need("tracegrad").scan, order, 3)(x)

    assert value == pytest.approx(loop(bench_transforms.STATE))
    assert gradient @ direction == pytest.approx(derivative_of(loop, bench_transforms.STATE, direction), rel=1e-7)

    parameters = [rng.standard_normal(s) / 2 for s in ((2, 3), (3, 3), (3,))]
    xs, direction = rng.standard_normal((4, 5, 2)), rng.standard_normal((3, 3))
    value, gradients = bench_transforms.network_by_hand(parameters, xs)
    w, u, b = parameters

    def network(u):
        return bench_transforms.network(np, need("tracegrad").scan)((w, u, b), xs)

    assert value == pytest.approx(network(u))
    assert np.sum(gradients[1] * direction) == pytest.approx(derivative_of(network, u, direction), rel=1e-7)


def test_the_derivatives_of_the_loops_are_those_of_finite_differences():
    from benchmarks import bench_loops

    def derivative_of(function, x, direction, h=1e-6):
        return (function(x + h * direction) - function(x - h * direction)) / (2 * h)

    rng = np.random.default_rng(1)
    direction, order = rng.standard_normal(20), ("sin", "exp", "sqrt")
    value, gradient = bench_loops.relaxed_by_hand(order, 3)
    function = bench_loops.relaxed(np, order, 3)
    assert value == pytest.approx(function(bench_loops.START))
    assert gradient @ direction == pytest.approx(derivative_of(function, bench_loops.START, direction), rel=1e-7)

    w, b, v, start = (rng.standard_normal(s) / 3 for s in ((5, 2), (5,), (2, 5), (2,)))
    value, *gradients = bench_loops.solved_by_hand(w, b, v, start)
    solved = bench_loops.solved(np, bench_loops.in_python)
    assert value == pytest.approx(solved((w, b, v), start))
    for k, p in enumerate((w, b, v)):
        direction = rng.standard_normal(p.shape)
        derivative = derivative_of(lambda p, k=k: solved([*(w, b, v)[:k], p, *(w, b, v)[k + 1 :]], start), p, direction)
        assert np.sum(gradients[k] * direction) == pytest.approx(derivative, rel=1e-6)


def test_the_derivatives_of_the_programs_are_those_of_finite_differences():
    from benchmarks import bench_programs

    program = bench_programs.PROGRAMS[-1]
    value, gradient = bench_programs.by_complex_steps(program)
    low, high = (program.fun(np, program.argument + h) for h in (-1e-6, 1e-6))
    assert value == pytest.approx((low + high) / 2)
    assert gradient == pytest.approx((high - low) / 2e-6, rel=1e-6)


def test_steps_that_are_chosen_end_before_the_scan_of_them_does(monkeypatch):
    from benchmarks import bench_programs

    errors, step = [], bench_programs.dormand_prince

    def noted(*args):
        errors.append(step(*args)[1])
        return step(*args)

    monkeypatch.setattr(bench_programs, "dormand_prince", noted)
    bench_programs.neural_ode(bench_programs.WEIGHTS)
    assert len(errors) < bench_programs.MOST_STEPS
    assert any(x > 1 for x in errors)


def test_memory_is_shown_where_a_peer_has_measured_it():
    result = run_case(case(once=True, tracegrad=lambda: lambda: Timed(1.0, np.arange(3.0), 12_300_000), b=right), FAST)
    assert result.rows[0].peak == 12_300_000
    lines = harness.table(result).splitlines()
    assert "memory" in lines[1]
    assert "12 MB" in lines[2]


def test_the_json_holds_the_versions_the_machine_and_every_sample(tmp_path, monkeypatch, capsys):
    for variable in ("TRACEGRAD_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    from benchmarks import bench_call_overhead

    monkeypatch.setattr(bench_call_overhead, "PACKAGES", ())
    monkeypatch.setattr(bench_call_overhead, "cases", lambda settings: [case(numpy=right)])
    monkeypatch.setattr(harness, "QUICK", FAST)
    path = tmp_path / "results" / "run.json"
    assert command.main(["call_overhead", "--quick", "--json", str(path)]) == 0
    assert "a case" in capsys.readouterr().out
    report = json.loads(path.read_text())
    assert report["machine"]["versions"]["numpy"] == np.__version__
    assert report["machine"]["cpu"]
    assert report["machine"]["threads"]["cores"] >= 1
    (result,) = report["benchmarks"]["call_overhead"]
    assert len(result["rows"][0]["samples"]) == FAST.rounds


def test_a_disagreement_makes_the_command_fail(monkeypatch, capsys):
    from benchmarks import bench_logistic

    monkeypatch.setattr(bench_logistic, "PACKAGES", ())
    monkeypatch.setattr(bench_logistic, "cases", lambda settings: [case(numpy=lambda: lambda: np.ones(3))])
    monkeypatch.setattr(harness, "QUICK", FAST)
    assert command.main(["logistic", "--quick"]) == 1
    assert "DISAGREEMENT a case, numpy" in capsys.readouterr().err


def test_an_unknown_benchmark_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["no_such"])
    assert "no benchmark named no_such" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["call_overhead", "logistic", "mlp_step"])
def test_tracegrad_agrees_with_numpy_by_hand_in_the_benchmark(name):
    (case,) = importlib.import_module(f"benchmarks.bench_{name}").cases(harness.QUICK)
    chosen = {peer: case.peers[peer] for peer in ("tracegrad", "tracegrad eager", "numpy by hand")}
    result = run_case(Case(case.name, chosen, case.expected), FAST)
    assert [row.status for row in result.rows] == ["ok", "ok", "ok"], harness.table(result)


@pytest.mark.parametrize("method", ["L-BFGS-B", "Newton-CG"])
def test_minimizations_end_at_the_minimum_also_in_a_new_process(method, monkeypatch):
    from benchmarks import bench_minimize

    warm = next(case for case in bench_minimize.cases(harness.QUICK) if case.name.endswith(method))
    monkeypatch.setattr(bench_minimize, "START", np.zeros(20))
    check("tracegrad", warm.peers["tracegrad"]()(), np.ones(20), warm.tolerance)
    measured = bench_minimize.cold(method, "tracegrad")()
    assert measured.seconds > 0
    check("tracegrad", measured.result, np.ones(1000), warm.tolerance)


def test_the_encoder_trains_compiled_as_operation_by_operation(monkeypatch):
    from benchmarks import bench_encoder_step as encoder_step

    for name, size in {"LAYERS": 2, "WIDTH": 16, "LENGTH": 5, "BATCH": 3}.items():
        monkeypatch.setattr(encoder_step, name, size)
    (result,) = encoder_step.cases(harness.QUICK)
    check("tracegrad", result.peers["tracegrad"]()(), result.peers["tracegrad eager"]()(), result.tolerance)


@pytest.mark.parametrize(
    "name", ["lu_by_elements", "lu_by_rows", "lu_by_outer_products", "cholesky_by_elements", "cholesky_by_rows"]
)
def test_the_derivatives_of_determinants_are_those_of_finite_differences(name):
    from benchmarks import bench_factorizations

    fun = getattr(bench_factorizations, name)
    right = bench_factorizations.of_determinant if name.startswith("lu") else bench_factorizations.of_lower_half
    a, direction = np.random.default_rng(4).normal(size=(2, 7, 7))
    a = a @ a.T + np.eye(7)
    value, gradient = right(a)
    assert value == pytest.approx(fun(a))
    low, high = (fun(a + h * direction) for h in (-1e-6, 1e-6))
    assert np.sum(gradient * direction) == pytest.approx((high - low) / 2e-6, rel=1e-7)


def test_the_derivative_of_sweeps_is_that_of_finite_differences():
    from benchmarks import bench_factorizations

    u, direction = np.random.default_rng(5).normal(size=(2, 6, 5))
    value, gradient = bench_factorizations.gauss_seidel_by_hand(u)
    assert value == pytest.approx(bench_factorizations.gauss_seidel(u))
    low, high = (bench_factorizations.gauss_seidel(u + h * direction) for h in (-1e-6, 1e-6))
    assert np.sum(gradient * direction) == pytest.approx((high - low) / 2e-6, rel=1e-7)


def test_the_gradients_of_the_workloads_written_by_hand_are_those_of_finite_differences():
    from benchmarks import workloads

    x, mass, direction = (np.random.default_rng(6).normal(size=s) for s in ((5, 3), (5,), (5, 3)))
    value, gradient = workloads.bodies_by_hand(x, mass)
    assert value == pytest.approx(workloads.bodies(np, x, mass))
    derivative = directional(lambda x: workloads.bodies(np, x, mass), x, direction)
    assert np.sum(gradient * direction) == pytest.approx(derivative, rel=1e-6)


def test_the_gradients_of_recurrences_written_by_hand_are_those_of_finite_differences(monkeypatch):
    from benchmarks import recurrences

    monkeypatch.setattr(recurrences, "ITERATIONS", 3)
    u, direction = np.random.default_rng(1).standard_normal((2, 7, 6))
    value, gradient = recurrences.heat_by_hand(u)
    assert value == pytest.approx(recurrences.heat(np, u))
    low, high = (recurrences.heat(np, u + h * direction) for h in (-1e-6, 1e-6))
    assert np.sum(gradient * direction) == pytest.approx((high - low) / 2e-6, rel=1e-7)

    rng = np.random.default_rng(2)
    parameters, rows = [rng.standard_normal(s) / 2 for s in ((3, 12), (3, 12), (12,))], rng.standard_normal((4, 2, 3))
    value, gradients = recurrences.lstm_by_hand(parameters, rows)
    assert value == pytest.approx(recurrences.lstm(np, parameters, rows))
    for k, p in enumerate(parameters):
        direction = rng.standard_normal(p.shape)
        others = parameters[:k], parameters[k + 1 :]
        derivative = directional(lambda p, o=others: recurrences.lstm(np, [*o[0], p, *o[1]], rows), p, direction)
        assert np.sum(gradients[k] * direction) == pytest.approx(derivative, rel=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of peers where they are imported
@pytest.mark.parametrize("name", ["Hessian, 50 variables", "logistic regression, gradient and Hessian product"])
def test_what_is_right_for_a_workload_is_what_tracegrad_finds(name):
    from benchmarks import bench_workloads, workloads

    (workload,) = [w for w in workloads.workloads(True) if w.name == name]
    check("tracegrad", bench_workloads.tracegrad(workload)(), bench_workloads.right(workload))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of peers where they are imported
def test_a_workload_in_a_new_process_gives_its_time_and_its_memory(tmp_path):
    from benchmarks import bench_first_calls, bench_workloads, workloads

    (workload,) = [w for w in workloads.workloads(True) if w.name == "a function of 3 numbers"]
    timed = bench_first_calls.in_new_process(workload, "tracegrad", str(tmp_path))
    assert timed.seconds > 0
    assert timed.peak >= 0
    value, gradient = bench_workloads.right(workload)
    np.testing.assert_allclose(timed.result, [abs(value), np.sum(abs(gradient))])


def test_the_page_of_results_has_medians_ratios_and_how_often_tracegrad_is_behind(tmp_path, monkeypatch, capsys):
    for variable in ("TRACEGRAD_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    from benchmarks import bench_call_overhead, report

    def clock(seconds):
        return lambda: lambda: Timed(seconds, np.arange(3.0))

    def cases(settings):
        yield case(once=True, tracegrad=clock(2.0), fast=clock(1.0), slow=clock(8.0))
        yield Case("another", {"tracegrad": clock(2.0), "fast": lambda: raises(Skip("a|b"))}, lambda: np.arange(3.0))

    monkeypatch.setattr(bench_call_overhead, "PACKAGES", ())
    monkeypatch.setattr(bench_call_overhead, "cases", cases)
    monkeypatch.setattr(harness, "QUICK", FAST)
    path = tmp_path / "run.json"
    assert command.main(["call_overhead", "--quick", "--json", str(path)]) == 0
    capsys.readouterr()
    report.main([str(path)])
    text = capsys.readouterr().out
    assert "`python -m benchmarks call_overhead --quick`" in text
    assert "| a case | 2.00 s (2.00 s to 2.00 s) | 1.00 s (1.00 s to 1.00 s)<br>0.50 | 8.00 s" in text
    assert "| another | 2.00 s (2.00 s to 2.00 s) | skipped: a\\|b |  |" in text
    assert "fast 0.50 (1, 1 below 0.95), slow 4.00 (1, 0 below 0.95)" in text
    assert "The best of the others: 0.50; behind it in 1 of 1." in text


def test_every_function_that_traced_code_can_call_is_timed():
    rows = " ".join(functions.ROWS)
    missing = []
    for name in supported():
        function = eval(name, {"np": np, "scipy": scipy})
        names = {f"np.{n}" for n in dir(np) if getattr(np, n) is function} | {name}
        if name.removeprefix("np.") not in functions.ASKED and not any(f"{n}(" in rows for n in names):
            missing.append(name)
    assert missing == []
    assert [name for name in functions.WHY if name not in rows] == []


def test_the_page_of_functions_says_why_one_is_behind_and_measures_it_again() -> None:
    calls = []

    def run(case: harness.Case, settings: harness.Settings) -> harness.Result:
        calls.append(case.name)
        seconds = {"np.sin(x)": (1.0, 2.0), "np.fmod(x, p)": (4.0, 3.0)}.get(case.name, (None, 1.0))
        rows = [harness.Row(peer, minimum=s) for peer, s in zip(("tracegrad", "numpy"), seconds)]
        if seconds[0] is None:
            rows[0].status, rows[0].reason = "failed", "TypeError: no"
        return harness.Result(case.name, rows, "tracegrad", case.why)

    rows = [speed.measured(call, harness.QUICK, run) for call in ("np.sin(x)", "np.fmod(x, p)", "np.cos(x)")]
    assert calls == ["np.sin(x)", *["np.fmod(x, p)"] * speed.AGAIN, "np.cos(x)"]
    text = speed.written(rows, peers.machine(), "abc")
    assert "| `np.sin(x)` | 1.00 s | 2.00 s | 2.00 |  |" in text
    assert "| `np.fmod(x, p)` | 4.00 s | 3.00 s | **0.75** | LLVM has one remainder at a time |" in text
    assert "| `np.cos(x)` |  |  |  | TypeError: no |" in text
    assert "2 calls, 1.22 times as fast" in text
    assert "NumPy's in 1 (below" in text


def test_rows_of_functions_are_functions_of_their_operands():
    row = 'z = np.copy(a); np.einsum("ij->i", a); np.put_along_axis(z, l, 1.0, 0); z'
    assert functions.letters(row) == ["a", "l"]
    assert functions.function(row)(np.zeros((2, 3)), np.array([[0, 1, 0]])).sum() == 3.0
    assert functions.why("np.linalg.eigh(d)")
    assert not functions.why("np.sin(x)")
