"""`python -m tracegrad`: what its commands print, and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.__main__ import main
from tracegrad.cli import bench
from tracegrad.cli.errors import UsageError
from tracegrad.cli.explain import argument
from tracegrad.optimizations import table_lines
from tracegrad.runtime.compile.disk_cache import default_cache
from tracegrad.settings import settings
from tracegrad.target.constants import constants
from tracegrad.target.tuning import TUNING


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache folder with some files of compiled code in it."""
    monkeypatch.setattr(settings, "cache_dir", str(tmp_path / "cache"))
    cache = default_cache()
    for k in range(3):
        cache.put(f"key {k}", {"kind": "piece"}, b"code" * 100)
    return tmp_path / "cache"


def told(capsys, *argv):
    """The exit code, and what is printed to stdout and stderr."""
    code = main(argv)
    out, err = capsys.readouterr()
    return code, out, err


# -- info ------------------------------------------------------------------------------------------------------
def test_info_tells_versions_hardware_and_the_cache(capsys, own_cache):
    code, out, _ = told(capsys, "info")
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in out.splitlines())
    assert code == 0
    assert facts["numpy"] == np.__version__
    assert facts["tracegrad"] == tg.__version__
    assert re.fullmatch(re.escape(str(own_cache)) + r": \d+ files, .*B", facts["cache"])  # BLAS may have added some
    assert {"Python", "llvmlite", "CPU", "threads", "BLAS", "calls", "settings"} <= facts.keys()


def test_info_tells_which_optimizations_are_left_out(capsys):
    assert re.search(r"^disabled +no optimization$", told(capsys, "info")[1], re.MULTILINE)
    with settings.override(disable="rerolling,fast_path"):
        assert re.search(r"^disabled +fast-path, rerolling$", told(capsys, "info")[1], re.MULTILINE)


def test_info_lists_the_optimizations(capsys):
    code, out, _ = told(capsys, "info", "--optimizations")
    assert code == 0
    assert out.splitlines() == list(table_lines())


def test_info_measures_when_asked(capsys):
    _, out, _ = told(capsys, "info", "--measure")
    assert re.search(r"^memory +\d+\.\d GB/s$", out, re.MULTILINE)
    assert re.search(r"^peak +\d+ Gflop/s in f32, \d+ Gflop/s in f64$", out, re.MULTILINE)


def test_info_lists_the_tuning_constants_when_asked(capsys):
    _, short, _ = told(capsys, "info")
    _, out, _ = told(capsys, "info", "--tuning")
    assert f"{TUNING.name}, {len([*constants(TUNING)])} constants" in short
    assert "gemm.block_bytes" not in short
    lines = {line.split()[0]: line for line in out.partition("\n\n")[2].splitlines()}
    for each in constants(TUNING):
        line = lines.pop(each.name)
        assert f" {each.unit}: {each.meaning} ({each.source})" in line
        assert isinstance(each.value, tuple) or line.split()[1] == str(each.value)
    assert not lines


# -- cache -----------------------------------------------------------------------------------------------------
def test_cache_ls_lists_files_with_kinds_and_sizes(capsys, own_cache):
    code, out, _ = told(capsys, "cache", "ls")
    assert code == 0
    assert out.startswith(f"{own_cache}: 3 files, ")
    assert "(3 piece)" in out
    assert all(path.name in out for path in own_cache.glob("*.tgc"))


def test_cache_ls_lists_the_newest_unless_it_is_asked_for_all(capsys):
    for k in range(40):
        default_cache().put(f"more {k}", {}, b"code")
    _, out, _ = told(capsys, "cache", "ls")
    assert out.count(".tgc") == 20
    assert "and 23 older ones (--all lists them)" in out
    assert told(capsys, "cache", "ls", "--all")[1].count(".tgc") == 43


def test_cache_verify_is_content_with_what_was_written(capsys):
    code, out, _ = told(capsys, "cache", "verify")
    assert (code, out.splitlines()[-1]) == (0, "all are sound")


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)


def exchanged(path: Path) -> None:
    other = next(p for p in path.parent.glob("*.tgc") if p != path)
    path.write_bytes(other.read_bytes())


BREAKS = {
    "damaged": (damaged, "its checksum is not that of its contents"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:100]), "damaged"),
    "empty": (lambda path: path.write_bytes(b""), "damaged"),
    "exchanged": (exchanged, "it has the name of another key"),
    "open to others": (lambda path: path.chmod(0o666), "nobody else can write to"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_cache_verify_names_what_is_broken_and_leaves_it(capsys, own_cache, how):
    path = sorted(own_cache.glob("*.tgc"))[0]
    break_it, why = BREAKS[how]
    break_it(path)
    code, out, _ = told(capsys, "cache", "verify")
    assert code == 1
    (line,) = [line for line in out.splitlines() if line.startswith(str(path))]
    assert why in line
    assert "1 broken" in out
    assert path.exists()
    code, out, _ = told(capsys, "cache", "verify", "--remove")
    assert code == 1
    assert not path.exists()
    assert told(capsys, "cache", "verify")[0] == 0


def test_cache_clear_empties_it(capsys, own_cache):
    code, out, _ = told(capsys, "cache", "clear")
    assert code == 0
    assert out.startswith("removed 3 files, ")
    assert list(own_cache.glob("*.tgc")) == []


def test_the_commands_say_that_the_cache_is_off(capsys, monkeypatch):
    monkeypatch.setattr(settings, "cache", False)
    assert told(capsys, "cache", "ls")[:2] == (0, "the disk cache is off\n")
    assert told(capsys, "cache", "clear")[:2] == (0, "the disk cache is off\n")
    assert "cache" in told(capsys, "info")[1]


# -- functions -------------------------------------------------------------------------------------------------
MODEL = """
import numpy as np
import tracegrad as tg


def loss(w, x, rate=0.5):
    return rate * np.sum((x @ w) ** 2)


@tg.trace
def traced(params):
    return params["w"] * 2


def example():
    return np.ones(3), np.ones((4, 3))


numbers = (np.ones(3), np.ones((4, 3)))


def refused(x):
    return np.busday_count(x, x)
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "some_model.py"
    path.write_text(MODEL, encoding="utf-8")
    return str(path)


def test_explain_takes_a_file_and_shapes(capsys, model):
    code, out, _ = told(capsys, "explain", f"{model}:loss", "f64[3]", "f64[4,3]")
    assert code == 0
    assert out.startswith(f"loss ({model}:")
    assert "w: f64[3]" in out
    assert "graph after the passes" in out


def test_arguments_may_have_names_and_follow_args(capsys, model):
    target = f"{model}:loss"
    code, out, _ = told(capsys, "explain", target, "rate=2.0", "--args", "f32[3]", "f32[4,3]")
    assert code == 0
    assert "rate: float" in out
    assert "w: f32[3]" in out


@pytest.mark.parametrize("name", ["example", "numbers"])
def test_arguments_may_come_from_the_module(capsys, model, name):
    code, out, _ = told(capsys, "explain", f"{model}:loss", "--args-from", f"{model}:{name}", "--transform", "grad")
    assert code == 0
    assert out.startswith("grad(loss) (")
    assert "x: f64[4,3]" in out


def test_a_traced_function_is_taken_as_it_is(capsys, model):
    code, out, _ = told(capsys, "explain", f"{model}:traced", "{'w': f64[5]}")
    assert code == 0
    assert "params['w']: f64[5]" in out


def test_profile_prints_a_table_and_writes_a_picture(capsys, model, tmp_path):
    svg = tmp_path / "profile.svg"
    code, out, _ = told(
        capsys, "profile", f"{model}:loss", "f64[3]", "f64[4,3]", "--seconds", "0.01", "--svg", str(svg)
    )
    assert code == 0
    assert "of it" in out
    assert "some_model.py:" in out
    assert ET.fromstring(svg.read_text(encoding="utf-8")).tag.endswith("svg")


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["explain", "no_such_module:f"], "there is no module no_such_module"),
        (["explain", "no_such_file.py:f"], "there is no file no_such_file.py"),
        (["explain", "numpy.tanh"], "'numpy.tanh' is no target; write module:function"),
        (["explain", "numpy:tanhh", "1.0"], "numpy has no tanhh; there is tanh"),
        (["explain", "math:pi"], "math:pi is no function, but float"),
        (["explain", "MODEL:loss", "f64[3]"], "missing a required argument: 'x'"),
        (["explain", "MODEL:loss", "f63[3]"], "there is no dtype f63"),
        (["explain", "MODEL:loss", "f64[-1]"], "(-1,) is no shape"),
        (["explain", "MODEL:loss", "f64"], "f64[()] is one without axes"),
        (["explain", "MODEL:loss", "open('x')"], "cannot read the argument"),
        (["explain", "MODEL:loss", "[1, "], "cannot read the argument"),
    ],
)
def test_a_command_that_cannot_be_meant_ends_with_2_and_says_why(capsys, model, argv, why):
    code, out, err = told(capsys, *(x.replace("MODEL", model) for x in argv))
    assert (code, out) == (2, "")
    assert why in err
    assert err.startswith("tracegrad: ")


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["cache"], ["explain"]])
def test_an_unknown_command_ends_with_2(capsys, argv):
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert "usage: python -m tracegrad" in capsys.readouterr().err


def test_what_tracegrad_refuses_ends_with_1(capsys, model):
    code, _, err = told(capsys, "explain", f"{model}:refused", "f64[3]")
    assert code == 1
    assert "UnsupportedError" in err


def test_arguments_are_read_as_python_is():
    assert argument("-0.5") == ("", -0.5)
    assert argument("mode='a=b'") == ("mode", "a=b")
    assert argument("'a=b'") == ("", "a=b")
    name, value = argument("p=(f32[2], [i64[3], bool[()]], {'a': None})")
    assert (name, value[0].dtype, value[1][0].tolist(), value[1][1].shape) == ("p", np.float32, [0, 0, 0], ())
    assert np.array_equal(argument("f64[9]")[1], argument("f64[9]")[1])
    with pytest.raises(UsageError):
        argument("f64[n]")


# -- bench -----------------------------------------------------------------------------------------------------
def test_bench_times_every_workload(capsys, monkeypatch):
    small = [
        bench.Workload("chain", bench._chain, (np.linspace(-1, 1, 50),)),
        bench.Workload("heat", bench._heat, (np.linspace(-1, 1, 20),)),
    ]
    monkeypatch.setattr(bench, "_workloads", lambda: iter(small))
    code, out, _ = told(capsys, "bench", "--seconds", "0.001")
    assert code == 0
    rows = [re.split(r"  +", line) for line in out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["chain", "heat"]
    assert all(row[-1].endswith(" x") and float(row[-1][:-2]) > 0 for row in rows)


@pytest.mark.parametrize("workload", list(bench._workloads()), ids=lambda workload: workload.name)
def test_bench_compares_before_it_measures(workload):
    value, derivatives = tg.value_and_grad(workload.function)(*workload.args)
    bench._check(workload, (value, derivatives))
    wrong = {k: v + 1 for k, v in derivatives.items()} if isinstance(derivatives, dict) else derivatives + 1
    with pytest.raises(AssertionError, match="by differences"):
        bench._check(workload, (value, wrong))


# -- the process -----------------------------------------------------------------------------------------------
def test_it_runs_as_a_module_in_any_folder(tmp_path):
    (tmp_path / "mine.py").write_text("def f(x):\n    return x * 2\n", encoding="utf-8")
    root = str(Path(tg.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, "TRACEGRAD_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tracegrad", "explain", "mine:f", "f64[3]"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("f (")
    assert run.stderr == ""
