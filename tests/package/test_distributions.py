"""The sdist and the wheel: what is in them, and that the wheel works with the required dependencies alone.

The wheel is made of the sdist, and installed into an environment of its own, which has links to the distributions that
its metadata requires and nothing else. Nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from paths import ROOT

BACKEND = "import hatchling.build as backend, sys; backend.build_{kind}(sys.argv[1])"
MOST_BYTES = 5_000_000
MOST_UNPACKED = 14_000_000  # half of it the package, a third tests
EXTRAS = ("dask", "hypothesis", "jax", "matplotlib", "mkdocs", "mpmath", "optree", "pytest", "sklearn", "torch")

SMOKE = """
import importlib.util, sys
import numpy as np
import tracegrad as tg

inside, extras = sys.argv[1], sys.argv[2:]
assert tg.__file__.startswith(inside), tg.__file__
assert not [name for name in extras if importlib.util.find_spec(name)]

def loss(p, x):
    return np.mean(np.tanh(x @ p["w"] + p["b"]) ** 2)

rng = np.random.default_rng(0)
p, x, h = {"w": rng.normal(size=3), "b": 0.5}, rng.normal(size=(20, 3)), 1e-6
step = tg.value_and_grad(loss)
for _ in range(3):  # answered by NumPy, then compiled
    value, slope = step(p, x)
assert step.cache_info().traces == 1
np.testing.assert_allclose(value, loss(p, x), rtol=1e-14)
for k in range(3):
    moved = h * np.eye(3)[k]
    difference = loss({**p, "w": p["w"] + moved}, x) - loss({**p, "w": p["w"] - moved}, x)
    np.testing.assert_allclose(slope["w"][k], difference / (2 * h), rtol=1e-7)

np.testing.assert_allclose(tg.scipy.minimize(loss, p, x).fun, 0.0, atol=1e-8)
layer = tg.nn.Linear(3, 1, dtype=tg.float64)
layer(tg.tensor(x)).sum().backward()
np.testing.assert_allclose(layer.weight.grad.numpy(), [x.sum(axis=0)])
print("works")
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def build(kind: str, source: Path, folder: Path) -> Path:
    """What the backend of pyproject.toml makes of a source tree."""
    subprocess.run([sys.executable, "-c", BACKEND.format(kind=kind), str(folder)], cwd=source, check=True)
    (result,) = folder.iterdir()
    return result


def of_package(folder: Path) -> set[str]:
    """The files of the package under a folder."""
    paths = (folder / "tracegrad").rglob("*")
    return {path.relative_to(folder).as_posix() for path in paths if path.is_file() and path.suffix != ".pyc"}


def test_the_sdist_has_the_files_that_belong_to_the_project_and_no_others(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        sizes = {member.name.partition("/")[2]: member.size for member in archive.getmembers()}
    assert of_package(ROOT) <= set(sizes)
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "PKG-INFO", "tests/conftest.py"} <= set(sizes)
    top = {name.partition("/")[0] for name in sizes} - {path.name for path in ROOT.iterdir()}
    assert top == {"PKG-INFO"}
    assert {Path(name).suffix for name in sizes} <= {
        "",
        ".cff",
        ".css",
        ".csv",
        ".js",
        ".json",
        ".ll",
        ".md",
        ".py",
        ".pyi",
        ".svg",
        ".toml",
        ".txt",
        ".typed",
        ".yml",
    }
    assert sum(sizes.values()) < MOST_UNPACKED
    assert sdist.stat().st_size < MOST_BYTES


def test_the_wheel_has_the_package_with_its_stubs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
    assert names == of_package(ROOT)
    assert {
        "tracegrad/py.typed",
        "tracegrad/__init__.pyi",
        "tracegrad/nn/functional.pyi",
        "tracegrad/codegen/entry/prologue.ll",
    } <= names
    assert len(licences) == 1
    assert wheel.name.endswith("-py3-none-any.whl")


def required(name: str) -> set[str]:
    """The distributions that one needs without its extras, and it."""
    result, open_ = set(), [name]
    while open_:
        name = open_.pop()
        if name not in result:
            result.add(name)
            needs = map(Requirement, distribution(name).requires or ())
            open_ += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return result


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what that requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    run = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    answer = subprocess.check_output([run, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    packages = Path(answer.strip())
    for name in sorted(required("tracegrad") - {"tracegrad"}):
        result = distribution(name)
        for top in {path.parts[0] for path in result.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(str(result.locate_file(top))).resolve())
    pip = [sys.executable, "-m", "pip", "--python", str(run), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    subprocess.run([*pip, "check"], check=True)
    return run


def test_the_wheel_works_with_what_it_requires_and_no_more_outside_the_repository(python: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TRACEGRAD"))}
    environment["TRACEGRAD_CACHE_DIR"] = str(tmp_path / "cache")

    def run(*arguments: str) -> str:
        return subprocess.check_output([python, "-W", "error", *arguments], cwd=tmp_path, env=environment, text=True)

    assert run("-c", SMOKE, str(python.parent.parent), *EXTRAS) == "works\n"
    name, version, *_ = run("-m", "tracegrad", "info").split()
    assert (name, version) == ("tracegrad", distribution("tracegrad").version)
