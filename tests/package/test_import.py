"""What `import tracegrad` brings, and what comes when it is first asked for."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from paths import ROOT

import tracegrad as tg

PACKAGE = ROOT / "tracegrad"

# PyTorch's face and the modules that work on it, what rolls loops, pictures, and other names of what is there.
LATER = (
    "tracegrad.codegen.plan.memory_report",
    "tracegrad.codegen.plan.work_estimate",
    "tracegrad.cli",
    "tracegrad.dask",
    "tracegrad.utils.svg",
    "tracegrad.func",
    "tracegrad.numba_export",
    "tracegrad.numpy_api.lazy",
    "tracegrad.ops.linalg.eig",
    "tracegrad.ops.signal.lfilter",
    "tracegrad.ops.signal.fft",
    "tracegrad.ops.special.ode_function_derivatives",
    "tracegrad.ops.special.quantile_derivatives",
    "tracegrad.ops.calls.complex_call",
    "tracegrad.ops.lazy",
    "tracegrad.ops.special.incomplete_derivatives",
    "tracegrad.ops.special.lambertw",
    "tracegrad.ops.linalg.matrix_functions",
    "tracegrad.ops.special.shape_parameter_derivatives",
    "tracegrad.ops.special.densities",
    "tracegrad.ops.special.derivatives",
    "tracegrad.ops.linalg.sparse",
    "tracegrad.ops.signal.splines",
    "tracegrad.passes.dtypes.complex_functions",
    "tracegrad.passes.dtypes.complex_pairs",
    "tracegrad.passes.dtypes.lower_complex",
    "tracegrad.visualization",
    "tracegrad.profile",
    "tracegrad.random",
    "tracegrad.reroll.normalize_first",
    "tracegrad.reroll.find_repeats",
    "tracegrad.reroll.reroller",
    "tracegrad.reroll.stack_values",
    "tracegrad.reroll.build_scan",
    "tracegrad.reroll.iterations",
    "tracegrad.runtime.diagnostics.machine_peaks",
    "tracegrad.runtime.dispatch.compiled_backward",
    "tracegrad.runtime.diagnostics.step_timer",
    "tracegrad.scipy_api.stats.univariate",
    "tracegrad.scipy_api.fft",
    "tracegrad.scipy_api.integrate",
    "tracegrad.scipy_api.interpolate.splines",
    "tracegrad.scipy_api.linalg.functions",
    "tracegrad.scipy_api.ndimage.filters",
    "tracegrad.scipy_api.ndimage.interpolation",
    "tracegrad.scipy_api.convolution",
    "tracegrad.scipy_api.interpolate.knot_derivatives",
    "tracegrad.scipy_api.sparse",
    "tracegrad.scipy_api.spatial.distance",
    "tracegrad.scipy_api.special",
    "tracegrad.scipy_api.stats.distributions",
    "tracegrad.scipy_api.stats.multivariate",
    "tracegrad.solvers",
    "tracegrad.torch",
    "tracegrad.trace.ragged.dynamic_slice",
    "tracegrad.trace.ragged.ragged_array",
    "tracegrad.trace.driver.tensors",
    "tracegrad.transforms.custom_rules",
    "tracegrad.utils.formatting",
)
# Which modes are set is asked by every call.
ASKED = {"tracegrad.torch", "tracegrad.torch.modes"}


def in_new_process(program: str) -> Any:
    """What the program prints, as JSON."""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


def below(module: str, parents: Any) -> bool:
    return any(f"{module}.".startswith(f"{parent}.") for parent in parents)


@pytest.fixture(scope="module")
def needed() -> set[str]:
    """The modules of tracegrad that a process has which takes gradients of NumPy functions."""
    program = """
import json, os, sys
os.environ.pop("TRACEGRAD_VERIFY", None)
import numpy as np
import tracegrad as tg
def body(c, x):
    return c * np.tanh(x), c
def f(p, x):
    carry, ys = tg.scan(body, np.sum(p["w"] * x), x)
    return carry + np.sum(ys)
tg.grad(f)({"w": np.ones(3)}, np.arange(3.0))
tg.hessian(lambda x: np.sum(x ** 3))(np.ones(2))
tg.vmap(np.sin)(np.ones(2))
print(json.dumps([name for name in sys.modules if name.startswith("tracegrad")]))
"""
    in_new_process(program)  # the first process of an interpreter tests itself
    return set(in_new_process(program))


def test_a_gradient_of_a_numpy_function_needs_no_tensor(needed: set[str]) -> None:
    assert {"tracegrad.api", "tracegrad.codegen.plan.planner"} < needed
    assert sorted(module for module in needed if below(module, LATER)) == sorted(ASKED)
    assert "tracegrad.codegen.plan.verify_plan" not in needed


def inside_functions(node: ast.AST, inside: bool = False) -> Iterator[ast.ImportFrom]:
    """The imports below `node`, which are statements, that stand inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and inside:
            yield child
        elif not isinstance(child, ast.expr):
            yield from inside_functions(child, inside or isinstance(child, ast.FunctionDef))


def late_imports() -> list[tuple[str, str]]:
    """The modules of the package that are imported inside functions, with the places."""
    results = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        results += [(node.module or "", f"{path}:{node.lineno}") for node in inside_functions(tree)]
    return [(module, place) for module, place in results if below(module, ["tracegrad"])]


def test_own_modules_are_imported_late_only_where_that_saves_an_import(needed: set[str]) -> None:
    result = late_imports()
    assert "tracegrad.torch.tape.backward.functional" in {module for module, _ in result}
    assert [each for each in result if each[0] in needed] == []


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="this Python makes dataclasses in another way")
def test_the_import_compiles_no_methods_of_dataclasses() -> None:
    program = """
import dataclasses, json
made, create = [], dataclasses._create_fn
dataclasses._create_fn = lambda name, *args, **kwargs: made.append(name) or create(name, *args, **kwargs)
import tracegrad
print(json.dumps(made))
"""
    assert in_new_process(program) == []


def test_the_import_needs_no_garbage_collection_and_leaves_the_collector_as_it_was() -> None:
    program = """
import gc, json
frozen = gc.get_freeze_count()  # Python 3.12 freezes some objects itself
found = []
gc.callbacks.append(lambda phase, info: phase == "stop" and found.append(info))
gc.set_threshold(500, 5, 5)
BEGIN
began = len(found)
import tracegrad
print(json.dumps([len(found) - began, gc.isenabled(), gc.get_freeze_count() > frozen, gc.get_threshold()]))
"""
    few, *state = in_new_process(program.replace("BEGIN", ""))
    assert few < 10
    assert state == [True, False, [500, 5, 5]]
    _, *state = in_new_process(program.replace("BEGIN", "gc.freeze()"))
    assert state == [True, True, [500, 5, 5]]
    result, *state = in_new_process(program.replace("BEGIN", "gc.disable()"))
    assert [result, *state] == [0, False, False, [500, 5, 5]]


def names_for_type_checkers() -> list[tuple[str, str]]:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return [(node.module or "", alias.name) for node in imports for alias in node.names]


@pytest.mark.parametrize(("module", "name"), names_for_type_checkers())
def test_a_name_is_what_type_checkers_are_told(module: str, name: str) -> None:
    try:
        expected = import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        expected = getattr(import_module(module), name)
    assert getattr(tg, name) is expected


def test_all_has_every_public_name() -> None:
    # Importing a module does not put it in the place of a function of the same name.
    names = in_new_process(
        "import json, types; import tracegrad as tg; from tracegrad import *\n"
        "import tracegrad.visualization, tracegrad.func, tracegrad.utils.log\n"
        "print(json.dumps({name: isinstance(getattr(tg, name), types.ModuleType) for name in tg.__all__}))"
    )
    assert {name for name, module in names.items() if module} == {
        "accelerator",
        "amp",
        "array_api",
        "autograd",
        "compiler",
        "cuda",
        "dask",
        "distributions",
        "errors",
        "fft",
        "func",
        "implicit",
        "linalg",
        "masked",
        "multiprocessing",
        "nn",
        "optim",
        "random",
        "scipy",
        "serialization",
        "signal",
        "special",
        "testing",
        "tree",
    }
    assert {"grad", "visualize", "tensor", "no_grad", "float32", "manual_seed", "log", "Size"} < set(names)
    assert len(names) == len(tg.__all__) == len(set(tg.__all__))
    assert set(tg.__all__) <= set(dir(tg))


@pytest.mark.parametrize(
    "program",
    [
        "import tracegrad.nn.functional as x",
        "import tracegrad.nn.functional; x = tracegrad.nn.functional",
        "from tracegrad.nn import functional as x",
        "from tracegrad.nn.functional import relu; from tracegrad.torch.nn import functional as x",
        "import tracegrad; x = tracegrad.nn.functional",
        "import tracegrad.torch.nn.functional as x; import tracegrad.nn.functional",
    ],
)
def test_a_namespace_of_pytorch_is_one_module_under_both_names(program: str) -> None:
    result = in_new_process(
        f"{program}\n"
        "import importlib, json, sys\n"
        "names = [x.__name__, x.__spec__.name]\n"
        "same = [importlib.import_module(f'tracegrad.{path}nn.functional') is x for path in ('', 'torch.')]\n"
        "copies = [m for m in sys.modules.values() if getattr(m, '__file__', 0) == x.__file__ and m is not x]\n"
        "print(json.dumps([names, same, len(copies)]))"
    )
    assert result == [["tracegrad.torch.nn.functional"] * 2, [True, True], 0]


@pytest.mark.parametrize("name", ["nn.missing", "missing", "cuda.missing"])
def test_a_module_that_is_not_there_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="missing"):
        import_module(f"tracegrad.{name}")


def test_an_unknown_name_says_which_are_similar() -> None:
    with pytest.raises(AttributeError, match=r"tracegrad has no 'gradd'; similar names are .*grad"):
        tg.gradd  # noqa: B018
    assert not hasattr(tg, "__wrapped__")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("backends", "`tracegrad.settings`"),
        ("distributed", "`tracegrad.dask`"),
        ("fx", "`tracegrad.trace(f).graph(*args)`"),
        ("jit", "`tracegrad.trace(f)` compiles"),
    ],
)
def test_modules_that_pytorch_has_say_what_is_here_instead(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=rf"^tracegrad has no '{name}': .*{re.escape(instead)}"):
        getattr(tg, name)
    with pytest.raises(ModuleNotFoundError, match=re.escape(instead)):
        import_module(f"tracegrad.{name}")


def test_looking_for_a_special_name_imports_nothing() -> None:
    program = "import json, sys, tracegrad; hasattr(tracegrad, '__wrapped__'); print(json.dumps(sorted(sys.modules)))"
    assert "tracegrad.torch.exports" not in in_new_process(program)


def test_a_name_first_asked_for_while_tracing_is_found() -> None:
    program = """
import json
import numpy as np
import tracegrad as tg
def f(x):
    return tg.sum(tg.exp(x) * tg.stack([x, x])[0])
def eager(x):
    with tg.disable_jit():
        return tg.grad(lambda x: np.sum(x * np.exp(x)))(x)
x = np.array([0.0, 1.0])
print(json.dumps([tg.grad(f)(x).tolist(), eager(x).tolist()]))
"""
    traced, eager = in_new_process(program)
    assert traced == eager == [1.0, pytest.approx(5.43656365691809)]


def test_a_tensor_can_be_the_first_thing_that_a_trace_meets() -> None:
    program = """
import json
import tracegrad as tg
t = tg.tensor([1.0, 2.0], requires_grad=True)
@tg.trace
def f(x):
    return (x * t).sum()
f(t).backward()
print(json.dumps(t.grad.tolist()))
"""
    assert in_new_process(program) == [2.0, 4.0]


def test_a_function_that_has_the_name_of_its_module_stays_a_function() -> None:
    code = "import tracegrad as tg; tg.autograd; import tracegrad.autograd.gradcheck; tg.autograd.gradcheck.__code__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_imported_late_is_there_in_a_new_process() -> None:
    """Rules of complex numbers are in a module that only the pass imports: without them, imaginary parts were lost."""
    program = """
import numpy as np
import tracegrad as tg

x = np.linspace(0.5, 1.5, 6).reshape(2, 3)
for f in (lambda x: 1j * x + 0.5, lambda x: np.exp(1j * x), lambda x: x + 1j * np.sqrt(x)):
    for _ in range(2):
        np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-14)
    np.testing.assert_allclose(tg.vmap(f)(np.stack([x, x]))[1], f(x), rtol=1e-14)
    np.testing.assert_allclose(tg.grad(lambda x: np.abs(f(x)).sum())(x).shape, x.shape)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
