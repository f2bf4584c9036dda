"""The examples run as they are, in a reduced form, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest
from paths import ROOT

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

EXAMPLES = ROOT / "examples"
WARNINGS = ("-W", "error::RuntimeWarning", "-W", "error::UserWarning")


def run(cache, name, *arguments):
    environment = {**os.environ, "TRACEGRAD_CACHE_DIR": str(cache), "PYTHONUTF8": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    command = [sys.executable, *WARNINGS, str(EXAMPLES / name), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False, cwd=cache
    )


def drawn(folder, name):
    return (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def digits(folder):
    return run(folder, "digits.py", "--epochs", "4", "--accuracy", "0.94")


def test_digits_learns_prints_progress_and_the_table_and_saves_a_picture(folder, digits):
    done = digits
    assert done.returncode == 0, done.stdout + done.stderr
    assert drawn(folder, "digits")
    assert done.stdout.count("epoch ") == 4 + 2
    for heading in (
        "time per step, eager",
        "time per step, compiled",
        "empty cache",
        "full cache",
        "held-out accuracy",
    ):
        assert heading in done.stdout


def test_digits_learns_the_same_eagerly_and_compiled(digits):
    assert digits.returncode == 0, digits.stdout + digits.stderr
    lines = [line.split() for line in digits.stdout.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 6
    compiled, eager = ([(float(line[3]), line[5]) for line in half[:2]] for half in (lines[:4], lines[4:]))
    for (loss, _), (expected, _) in zip(compiled, eager, strict=True):
        assert loss == pytest.approx(expected, abs=2e-3)


def test_digits_fails_when_the_accuracy_is_not_reached(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    params, *_ = example.initial()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(example, "train", lambda epochs: (params, [2.0, 1.0], 0.9, 1e-3))
    monkeypatch.setattr(example, "first_call_in_new_process", lambda folder, answered_by: 0.1)
    for least, code in (("0.95", 1), ("0.85", 0)):
        monkeypatch.setattr(sys, "argv", ["digits.py", "--accuracy", least])
        assert example.main() == code
        assert "held-out accuracy                        90.0%" in capsys.readouterr().out


def test_the_tour_of_autograd_finds_what_it_asserts(tmp_path):
    done = run(tmp_path, "autograd_tour.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("error:") == 2
    assert [line[0] for line in done.stdout.splitlines() if line[:1].isdigit()] == list("123456789")


@pytest.mark.parametrize(
    ("name", "needs", "progress", "arguments"),
    [
        ("cavity", "numpy", "done", ()),
        ("predators", "scipy", "minimize, BFGS: ", ()),
        ("wave", "scipy", "minimize, L-BFGS-B: ", ()),
        ("logistic_regression", "sklearn", "minimize, L-BFGS-B: ", ()),
        ("gaussian_process", "sklearn", "minimize, L-BFGS-B: ", ()),
        ("bayesian_regression", "sklearn", "1300 of 1300", ()),
        ("epidemic", "pints", "least_squares: ", ()),
        ("bundle_adjustment", "gtsam", "least_squares: ", ()),
        ("cart_pole", "scipy", "minimize, SLSQP: ", ()),
        ("option_greeks", "scipy", "day 31 of 31", ()),
        ("image_registration", "sklearn", "least_squares: ", ()),
        ("cluster", "distributed", "gradient   5", ("--iterations", "4", "--accuracy", "0.8")),
        ("digits_nn", "sklearn", "compiled: epoch 3 of 3", ("--epochs", "3", "--accuracy", "0.8")),
        ("transformer", "matplotlib", "step 40 of 40", ("--steps", "40", "--loss", "3")),
    ],
)
def test_an_example_finds_what_it_checks_tells_how_far_it_is_and_saves_a_picture(
    tmp_path, name, needs, progress, arguments
):
    pytest.importorskip(needs)
    done = run(tmp_path, f"{name}.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert progress in done.stderr
    assert drawn(tmp_path, name)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_described(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 150
    assert f"**`{path.name}`**" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
