"""Try the functions of NumPy and SciPy, and write the table of functions: the page `functions.md` of the site.

The build of the site runs `python docs/make_functions.py --page FILE`. `python docs/make_functions.py np.sort` prints
the row of one function. The calls are those of the tests, on their small arrays. Each program is planned, but not
compiled.
"""

from __future__ import annotations

import argparse
import dis
import importlib
import itertools
import multiprocessing
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
import scipy.special
import scipy.stats

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
sys.path += [str(TESTS / name) for name in ("helpers", "samples", "scipy_api")]

from numpy_calls import IN_PLACE, MORE, ROUGH, SMOOTH, calls  # noqa: E402
from numpy_expressions import ARRAYS, CREATION, EXPRESSIONS  # noqa: E402
from random_programs import interpreted  # noqa: E402

import tracegrad as tg  # noqa: E402
from tracegrad import numpy_api, passes, tree  # noqa: E402
from tracegrad.codegen.libs.linear_algebra import is_native  # noqa: E402
from tracegrad.codegen.libs.sorting import is_ordering  # noqa: E402
from tracegrad.codegen.loopir.steps import Matmul  # noqa: E402
from tracegrad.codegen.plan.planner import plan  # noqa: E402
from tracegrad.codegen.plan.program_plan import calls_of, plans_of  # noqa: E402
from tracegrad.errors import TraceError  # noqa: E402
from tracegrad.passes.dtypes.lower_complex import in_pairs  # noqa: E402
from tracegrad.scipy_api import registry as of_scipy  # noqa: E402
from tracegrad.scipy_api.special import on_carriers  # noqa: E402
from tracegrad.scipy_api.stats.distributions import _methods  # noqa: E402
from tracegrad.scipy_api.stats.univariate import CONTINUOUS, DISCRETE  # noqa: E402
from tracegrad.torch.tape import TapeArray  # noqa: E402

COLUMNS = ("tried", "eager", "compiled", "first", "second", "forward", "batch")
YES, NO, NONE, OTHER = "yes", "no", "\N{EN DASH}", "differs"
MOST = 4  # how many calls of a function are tried; the row shows the best one


class Case(NamedTuple):
    """A call to try: its text, the function, its arguments, and the step of finite differences.

    The step is larger where the function computes with a low accuracy.
    """

    text: str
    function: Callable[..., Any]
    arguments: list[Any]
    step: float = 1e-4


# -- functions, and calls of them ----------------------------------------------------------------------------------
def names() -> list[str]:
    """Return the name of every function in the registries, sorted."""
    special = [
        f"scipy.special.{name}"
        for name in scipy.special.__all__
        if isinstance(f := getattr(scipy.special, name), np.ufunc) and on_carriers(f) is not None
    ]
    stats = [f"scipy.stats.{name}.{method}" for name in [*CONTINUOUS, *DISCRETE] for method in _methods(name)]
    return sorted({*numpy_api.supported(), *of_scipy.shadows(), *special, *stats})


def found(name: str) -> Any:
    """Return the function with this name."""
    path = name.split(".")
    value: Any = np if path[0] == "np" else scipy
    with suppress(ImportError):
        value = importlib.import_module(".".join(path[:-1])) if path[0] == "scipy" else value
        path = path[-2:] if path[0] == "scipy" else path
    for part in path[1:]:
        value = getattr(value, part)
    return value


ALL = ARRAYS | MORE


def of_text(text: str) -> Case:
    """Make a function of an expression, or of a statement that updates `y`; its arguments are the arrays it names."""
    used = [name for name in ALL if re.search(rf'(?<![\w.]){name}(?![\w(="])', text)]
    changes = re.search(r"\by\b", text)
    used = [*used, *["a"] * (bool(changes) and "a" not in used)]
    lines = ["y = a.copy()", text, "return y"] if changes else [f"return ({text})"]
    scope: dict[str, Any] = {"np": np, "sp": scipy.special, "scipy": scipy}
    exec(f"def function({', '.join(used)}):\n    " + "\n    ".join(lines), scope)
    return Case(text, scope["function"], [ALL[name].copy() for name in used])


TABLE = [*calls(SMOOTH), *EXPRESSIONS, *calls(ROUGH), *calls(CREATION), *calls(IN_PLACE)]
MORE_TEXTS = """
np.add.at(y, [0, 1], b[:2]) | np.subtract.at(y, [0, 1], b[:2]) | np.empty((2, 3)).shape | np.empty_like(a).shape
np.lib.stride_tricks.as_strided(a.copy(), (3, 2), (8, 8)) | np.can_cast(f, np.float64) | np.asfortranarray(a)
np.round(v) | np.rint(v) | np.linalg.cholesky(w4 @ w4.mT) | np.linalg.eigh(q + q.T) | np.linalg.eigvalsh(q + q.T)
np.ix_(p[0], p[1, :2]) | np.require(a, requirements="F")
np.isfortran(a) | np.shares_memory(a, a) | np.may_share_memory(a, a)
"""
OF_SCIPY = """
scipy.fft.fht(b[0], 0.1, 0.5) | scipy.fft.ifht(b[0], 0.1, 0.5) | scipy.signal.oaconvolve(v, h)
scipy.integrate.dblquad(lambda i_, j_: np.exp(h[0] * i_ * j_), 0.0, 1.0, 0.0, 1.0)[0]
scipy.integrate.nquad(lambda i_, j_: np.exp(h[0] * i_ * j_), [[0.0, 1.0], [0.0, 1.0]])[0]
scipy.integrate.tplquad(lambda i_, j_, k_: h[0] * i_ + j_ * k_, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0)[0]
scipy.special.kolmogi(0.4 + 0.1 * u) | scipy.special.ncfdtridfd(3.0, 0.5, 1.5, 1.0 + u * u)
scipy.special.ncfdtrinc(3.0, 4.0, 0.3 + 0.1 * u, 1.5) | scipy.optimize.bracket(lambda i_: (i_ - h[0]) ** 2)[3]
scipy.optimize.check_grad(lambda i_: np.sum(i_ * h[:2]), lambda i_: h[:2], np.ones(2))
scipy.optimize.approx_fprime(np.ones(2), lambda i_: np.sum(i_**2 * h[:2]))
scipy.optimize.fmin_cobyla(lambda i_: np.sum((i_ - h[:2]) ** 2), np.zeros(2), [lambda i_: 9.0 - i_[0]], rhoend=1e-12)
scipy.optimize.milp(h).x | scipy.optimize.quadratic_assignment(q, q)["fun"]
scipy.spatial.KDTree(a).query(a[::-1] * 1.1, k=2)[0] | scipy.spatial.cKDTree(a * 1.1).query(a[0])[0]
scipy.optimize.excitingmixing(lambda i_: h[:2] - i_, np.array([0.5, 0.5]), f_tol=1e-12)
scipy.optimize.diagbroyden(lambda i_: i_**3 + h[:2] * i_ - 1.0, np.array([0.5, 0.5]), f_tol=1e-12)
scipy.optimize.brute(lambda i_: np.sum((i_ - h[:2]) ** 2), [(-1.0, 2.0), (-1.0, 2.0)], Ns=5, finish=None)
scipy.optimize.differential_evolution(lambda i_: np.sum((i_ - h[:2]) ** 2), [(-1.0, 2.0), (-1.0, 2.0)], rng=1).x
scipy.optimize.direct(lambda i_: (i_[0] - h[0]) ** 2, [(-1.0, 2.0)], vol_tol=1e-30, len_tol=1e-13).x
scipy.integrate.solve_bvp(lambda i_, j_: h[:2, None] * j_, lambda j_, k_: j_ - 1.0, np.arange(3.0), np.ones((2, 3))).y
scipy.sparse.random(4, 4, 0.5, rng=1) @ v | scipy.sparse.rand(4, 4, 0.5, rng=1) @ v
scipy.sparse.random_array((4, 4), density=0.5, rng=1) @ v
scipy.integrate.fixed_quad(lambda i_: np.exp(h[0] * i_), 0.0, 1.0)[0]
scipy.integrate.quad_vec(lambda i_: np.exp(h * i_), 0.0, 1.0)[0]
scipy.ndimage.correlate1d(a, [1.0, 2.0, -1.0], mode="nearest")
scipy.optimize.newton_krylov(lambda i_: i_**3 + h[:2] * i_ - 1.0, np.array([0.5, 0.5]), f_tol=1e-12)
scipy.optimize.broyden1(lambda i_: i_**3 + h[:2] * i_ - 1.0, np.array([0.5, 0.5]), f_tol=1e-12)
scipy.optimize.broyden2(lambda i_: i_**3 + h[:2] * i_ - 1.0, np.array([0.5, 0.5]), f_tol=1e-12)
scipy.optimize.anderson(lambda i_: i_**3 + h[:2] * i_ - 1.0, np.array([0.5, 0.5]), f_tol=1e-12)
scipy.optimize.lsq_linear(q, v).x
scipy.sparse.kron(np.eye(2), np.eye(2)) @ v | scipy.sparse.kronsum(np.eye(2), np.eye(2)) @ v
scipy.sparse.tril(np.ones((4, 4))) @ v | scipy.sparse.triu(np.ones((4, 4))) @ v
scipy.sparse.hstack([scipy.sparse.eye_array(4)]) @ v
scipy.sparse.vstack([scipy.sparse.eye_array(4)]) @ v | scipy.sparse.block_diag([np.eye(2), np.eye(2)]) @ v
scipy.sparse.bmat([[scipy.sparse.eye_array(4)]]) @ v | scipy.sparse.block_array([[scipy.sparse.eye_array(4)]]) @ v
scipy.sparse.diags_array([1.0, 2.0, 3.0, 4.0]) @ v | scipy.sparse.spdiags(np.ones((1, 4)), [0], 4, 4) @ v
scipy.sparse.eye(4) @ v | scipy.sparse.eye_array(4) @ v | scipy.sparse.identity(4) @ v
scipy.sparse.issparse(v) | scipy.sparse.isspmatrix(v) | scipy.sparse.find(scipy.sparse.eye_array(4))[2] * v
"""
KINDS = [f"{kind}_{how}" for kind in ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"] for how in ("array", "matrix")]
ITERATIVE = ["bicg", "bicgstab", "cgs", "gcrotmk", "lgmres", "minres", "qmr", "tfqmr"]
GIVEN = [
    *calls(OF_SCIPY),
    *[f"scipy.sparse.{kind}(np.eye(4)) @ v" for kind in KINDS],
    *[f"scipy.sparse.linalg.{solver}(scipy.sparse.eye_array(4) * 3.0, v, rtol=1e-13)[0]" for solver in ITERATIVE],
]
TEXTS = [x for x in [*TABLE, *calls(MORE_TEXTS), *GIVEN] if "ARR[" not in x]
# Arguments for functions that no table calls.
GENERAL = """
a | q | v | a, b | q, v | q, w | b | u | v, v | h | v, h[:4] | p | a, p | b, h[:4] | p, a | p, b | 3 | v, 3
"""
OF_SPECIAL = """
b, b, b | b, b, u * u | u * u, b, b | b, u * u, b | p, 9, u * u | 2, 9, u * u | 2.5, b, 3.0, b | b, b, b, u * u
u * u, b, b, b | 2, b, b, u * u | 2, b, b, b | 1, b, u | 1, 1, b, u | 1, 1, b, 0.2, u | 1, 2, b | 1, 1, b, 0.2, 1 + b
p, u * u | 1, 1, b, 1 + b | 3.0, 2.0, b | b, b, -b
"""


def of_numpy(name: str) -> Iterator[Case]:
    """Return calls of a function that NumPy dispatches; calls with real arguments come first."""
    function = found(name)
    aliases = {name, *(f"np.{n}" for n in dir(np) if getattr(np, n, None) is function)}
    if name.startswith("scipy.special."):
        aliases.add(name.replace("scipy.special", "sp"))
    called = re.compile("|".join(rf"(?<![\w.]){re.escape(alias)}\(" for alias in aliases))
    known = calls(GENERAL) + calls(OF_SPECIAL) * name.startswith("scipy.special.")
    texts = [text for text in TEXTS if called.match(text)] or [text for text in TEXTS if called.search(text)]
    each = [*map(of_text, texts), *general(name, known, getattr(function, "nin", None))]
    yield from sorted(each, key=lambda case: case.text not in MORE_TEXTS and not _of_reals(case))


def general(name: str, arguments: list[str], count: int | None) -> Iterator[Case]:
    """Return the argument lists that the function accepts, with `count` arguments if the count is known."""
    for given in arguments:
        if count is not None and len(given.split(", ")) != count:
            continue
        case = of_text(f"{name}({given})")
        with suppress(Exception):
            if _finite(case.function(*case.arguments)):
                yield case


def _of_reals(case: Case) -> bool:
    given = case.arguments
    return any(x.dtype == np.float64 for x in given) and all(np.isfinite(x).all() for x in given)


def _finite(result: Any) -> bool:
    leaves = [np.asarray(x) for x in tree.flatten(result)[0]]
    return all(x.dtype.kind in "biufc" and np.isfinite(x).all() for x in leaves)


# Test modules of SciPy's functions: the variable with the table, and the variable with the arguments if rows have none.
TABLES = {
    "special": ("ONE", None),
    "slopes": ("ONE", None),
    "linalg": ("CASES", None),
    "others": ("CASES", None),
    "distances": ("CASES", None),
    "equations": ("CASES", None),
    "filters": ("CASES", None),
    "splines": ("CASES", None),
    "images": ("CASES", None),
    "spectra": ("CASES", None),
    "solvers": ("CASES", "P"),
    "fits": ("CASES", "P"),
    "samples": ("CASES", "X"),
    "rotations": ("CASES", None),
    "ode": ("CASES", "P"),
    "minima": ("CASES", "P"),
    "constraints": ("CASES", "P"),
    "sparse": ("CASES", "X"),
}


def tables() -> dict[int, list[Case]]:
    """Return the calls in the tests of SciPy's functions, by the identity of the function that they call."""
    known: dict[int, list[Case]] = {}
    for table, (variable, point) in TABLES.items():
        home = importlib.import_module(f"test_scipy_{table}")
        for key, row in getattr(home, variable).items():
            f, x = (row, getattr(home, point)) if point else row
            for value in {id(value): value for value in named_in(f)}.values():
                for step in {1e-4, getattr(home, "STEP", 1e-4)}:
                    case = Case(f"test_scipy_{table}: {key}", f, [np.asarray(x)], step)
                    known.setdefault(id(value), []).append(case)
    return known


def named_in(f: Any, depth: int = 3) -> Iterator[Any]:
    """Return the objects that a function names, directly or through other functions of its test module."""
    yield f
    if not isinstance(f, types.FunctionType) or not f.__module__.startswith("test_") or depth == 0:
        return
    outside = [cell.cell_contents for cell in f.__closure__ or ()]
    read = [value for code in codes_in(f.__code__) for value in read_by(code, f.__globals__)]
    for value in [*outside, *(f.__defaults__ or ()), *read]:
        yield from named_in(value, depth - 1)


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def read_by(code: types.CodeType, scope: dict[str, Any]) -> Iterator[Any]:
    """Return the globals that code reads, and their attributes."""
    at: Any = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            at = scope.get(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(at, types.ModuleType):
            at = getattr(at, step.argval, None)
        else:
            continue
        yield at


def cases(name: str, known: dict[int, list[Case]]) -> Iterator[Case]:
    """Return calls of a function."""
    if name.startswith("scipy.stats.") and name.count(".") == 3:
        yield from of_stats(*name.split(".")[2:])
        return
    if name.startswith("scipy."):
        yield from known.get(id(found(name)), ())
    yield from of_numpy(name)


def of_stats(dist: str, method: str) -> Iterator[Case]:
    """Return calls of a method of a distribution, at points where the result is finite."""
    tests = importlib.import_module("test_scipy_stats")
    discrete, quantile = dist in DISCRETE, method in ("ppf", "isf")
    shapes = (tests.DISCRETE if discrete else tests.CONTINUOUS).get(dist, ())
    shapes = [np.asarray(int(x) if discrete and x.is_integer() else x) for x in shapes]
    points = [[1, 2], [0, 1], [0]] if discrete else [[0.3, 0.62, 0.95], [1.3, 1.62]]
    if method in OF_NO_POINT:
        case = of_parameters(dist, method, shapes, discrete)
        yield from [case] if _finite(case.function(*case.arguments)) else []
        return
    text = ", ".join(["x", *"abcd"[: len(shapes)]])
    call = f"scipy.stats.{dist}.{method}({text})"
    f = eval(f"lambda {text}: {call}", {"scipy": scipy})
    for x in map(np.array, [[0.1, 0.4, 0.77]] if quantile else points):
        if _finite(f(x, *shapes)):
            yield Case(call, f, [x, *shapes])


# -- the cells of a row ----------------------------------------------------------------------------------------------
OF_NO_POINT = ("mean", "var", "std", "stats", "entropy", "median", "interval")


def of_parameters(dist: str, method: str, shapes: list[Any], discrete: bool) -> Case:
    """Return the call of a method of a distribution that takes the parameters of the distribution only."""
    given = [*shapes, np.asarray(0.3), *([] if discrete else [np.asarray(1.4)])]
    text = ", ".join("abcdef"[: len(given)])
    call = f"scipy.stats.{dist}.{method}({'0.9, ' if method == 'interval' else ''}{text})"
    return Case(call, eval(f"lambda {text}: {call}", {"scipy": scipy}), given)


def row(name: str, known: dict[int, list[Case]]) -> dict[str, str]:
    """Return the cells of a function: those of the call with the most `yes`."""
    best = dict.fromkeys(COLUMNS, NONE) | {"tried": "no call"}
    for _, case in zip(range(MOST), filter(_runs, cases(name, known))):
        cells = tried(case)
        if _answers(cells) > _answers(best) or best["compiled"] == NONE:
            best = cells
        if _answers(best) == 5:
            break
    return best


def _runs(case: Case) -> bool:
    """Whether NumPy and SciPy themselves accept these arguments."""
    with suppress(Exception):
        case.function(*case.arguments)
        return True
    return False


def _answers(cells: dict[str, str]) -> int:
    return sum((cell == YES) - (cell == OTHER) for cell in cells.values())


def tried(case: Case) -> dict[str, str]:
    """Return the cells of a call."""
    if isinstance(case.function, types.FunctionType) and not of_scipy.public_name(case.function):
        case = case._replace(function=own_code(case.function))
    with warnings.catch_warnings(), np.errstate(all="ignore"), interpreted():
        warnings.simplefilter("ignore")
        cells = {"tried": case.text, "eager": attempt(eager, case), "compiled": attempt(compiled, case)}
        return cells | derivatives(case) | {"batch": attempt(batch, case)}


def attempt(ask: Callable[[Case], str], case: Case) -> str:
    try:
        return ask(case)
    except Exception:  # any exception means: not supported
        return NO


def near(ours: Any, theirs: Any, rtol: float = 1e-6) -> bool:
    x, y = tree.flatten(ours)[0], tree.flatten(theirs)[0]
    return len(x) == len(y) and all(map(lambda p, q: _near(p, q, rtol), x, y))


def _near(p: Any, q: Any, rtol: float) -> bool:
    p, q = (np.asarray(v.array if isinstance(v, TapeArray) else v) for v in (p, q))
    if p.dtype.kind not in "biufc":
        return bool(p.dtype == q.dtype)
    return p.shape == q.shape and np.allclose(p, q, rtol=rtol, atol=1e-8, equal_nan=True)


def eager(case: Case) -> str:
    """Compare the values on Tensors with NumPy's."""
    if not case.arguments:
        return NONE
    tensors = [TapeArray(x) for x in case.arguments]
    ours, theirs = case.function(*tensors), case.function(*case.arguments)
    if total(theirs) is not None and not any(isinstance(x, TapeArray) for x in tree.flatten(ours)[0]):
        return NO  # the value, without its derivative
    return YES if near(ours, theirs) else OTHER


def compiled(case: Case) -> str:
    """Return how the program computes the call."""
    made = plan(passes.optimize(in_pairs(tg.trace(case.function).graph(*case.arguments))))
    called = [step.node for step in calls_of(made)]
    if any(not is_native(node) and not is_ordering(node) for node in called):
        return "called"
    if called:
        return "native"
    steps = [step for each in plans_of(made) for step in each.steps]
    if any(isinstance(step, Matmul) for step in steps):
        return "BLAS"
    return "fused" if steps else "nothing"


def total(values: Any) -> Any:
    """Return a weighted sum of all floating values, each with another weight; None if there are none."""
    parts = [part for leaf in tree.flatten(values)[0] for part in _parts(leaf)]
    return sum(parts[1:], parts[0]) if parts else None


def _parts(x: Any) -> Iterator[Any]:
    kind = getattr(getattr(x, "dtype", None), "kind", "f" if isinstance(x, float) else "")
    if kind == "c":
        yield from _parts(x.real)
        yield from _parts(x.imag)
    elif kind == "f":
        yield np.sum(np.arctan(x) * np.cos(np.arange(float(np.size(x)))).reshape(np.shape(x)))


_COUNT = itertools.count()


def own_code(f: Any) -> Any:
    """Copy a function together with its code: the number of traces is limited for each code object."""
    code = f.__code__.replace(co_name=f"{f.__name__} {next(_COUNT)}")
    return types.FunctionType(code, f.__globals__, code.co_name, f.__defaults__, f.__closure__)


def derivatives(case: Case) -> dict[str, str]:
    """Return the cells of the derivatives, which are compared with finite differences along a direction."""
    real = [k for k, x in enumerate(case.arguments) if x.dtype == np.float64]

    @own_code
    def number(*xs: Any) -> Any:
        given = dict(zip(real, xs))
        return total(case.function(*[given.get(k, x) for k, x in enumerate(case.arguments)]))

    point = [case.arguments[k] for k in real]
    rng = np.random.default_rng(3)
    e, d = ([rng.normal(size=x.shape) for x in point] for _ in range(2))
    nothing = dict.fromkeys(("first", "second", "forward"), NONE)
    if not real or attempt(lambda _: YES if number(*point) is not None else NO, case) == NO:
        return nothing
    gradient = tg.grad(number, argnums=tuple(range(len(real))))

    @own_code
    def along(*xs: Any) -> Any:
        return sum(np.sum(g * v) for g, v in zip(gradient(*xs), e))

    def cell(ask: Callable[[], Any], of: Callable[..., Any], v: list[Any], rtol: float) -> str:
        def compare(_: Case) -> str:
            ours, wanted = ask(), slope(of, point, v, case.step)
            return YES if np.isfinite(wanted) and near(ours, wanted, rtol) else OTHER

        return attempt(compare, case)

    cells = {
        "first": cell(lambda: along(*point), number, e, 1e-5),
        "forward": cell(lambda: tg.jvp(number, tuple(point), tuple(e))[1], number, e, 1e-5),
    }
    if cells == {"first": YES, "forward": YES} and slope(number, point, e, case.step) == 0.0:
        return nothing
    second = (
        cell(lambda: tg.jvp(along, tuple(point), tuple(d))[1], along, d, 1e-4)
        if cells["first"] == YES
        else cells["first"]
    )
    return cells | {"second": second}


def slope(function: Callable[..., Any], point: list[Any], direction: list[Any], step: float = 1e-4) -> Any:
    """Return the derivative along a direction, by central differences of fourth order."""

    def at(t: float) -> Any:
        return np.asarray(function(*[x + t * v for x, v in zip(point, direction)]))

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def batch(case: Case) -> str:
    """Compare `vmap` with single calls; real arguments are mapped, or all arguments if none is real."""
    kinds = [x.dtype == np.float64 for x in case.arguments]
    mapped = kinds if any(kinds) else [True] * len(kinds)
    if not mapped:
        return NONE
    stacked = [np.stack([x, x * (1.125 if kind else 1)]) for x, kind in zip(case.arguments, kinds)]
    given = [s if m else x for s, m, x in zip(stacked, mapped, case.arguments)]
    try:
        answers = tree.flatten(tg.vmap(case.function, in_axes=tuple(0 if m else None for m in mapped))(*given))[0]
    except TraceError as error:
        if "a shape would depend on it" in str(error) or "must return arrays" in str(error):
            return NONE
        raise
    for k in range(2):
        wanted = case.function(*[x[k] if m else x for x, m in zip(given, mapped)])
        if not near([x[k] for x in answers], tree.flatten(wanted)[0]):
            return OTHER
    return YES


# -- the page ----------------------------------------------------------------------------------------------------------
HEAD = f"""# Functions of NumPy and SciPy in traced code

The build of this site has tried each of the {{count}} functions that traced code can call. A row shows one call, which
is taken from the tests. Another call of the same function may have other results. This command prints the row of a
function: `python docs/make_functions.py np.sort`.

- **eager**: a call with Tensors outside of a trace. `np.asarray` and other functions that create arrays do not dispatch
  on their arguments, nor do SciPy's functions that are written in Python. They need a trace (`tg.trace`, `tg.grad`,
  ...), compiled or not.
- **compiled**: how the compiled program computes the call. *fused*: in loops of the program. *BLAS*: with matrix
  products of the BLAS. *native*: by a sorting or LAPACK routine that machine code calls. *called*: by a call of NumPy's
  or SciPy's function. *nothing*: the result is a view or a constant.
- **first**, **second**, **forward**: the first derivative by `grad`, the second derivative, and the first derivative by
  `jvp`. They are compared with finite differences.
- **batch**: `vmap`, compared with a loop over the examples.

The cells mean:

- `{YES}`: the call works, and the values agree.
- `{NO}`: the call raises an error that names the function.
- `{OTHER}`: the values differ from finite differences, or from the loop, at the arrays of this call.
- `{NONE}`: the question does not apply. There is no derivative if the result is of integers or booleans, or constant in
  pieces. There is no batch if the number of elements depends on values, or if the result is no array. There is neither
  if no argument is an array.

Sparse matrices are constants: products with them and solutions have derivatives with respect to the other operand.
`no call` means that the tests have no call of the function, so it was not tried.
"""
PARALLEL = 100  # more rows than this are divided among processes


def line(name: str, cells: dict[str, str]) -> str:
    """Return the row of a function as Markdown."""
    text = cells["tried"].replace("|", "\\|")
    return f"| {name} | {' | '.join([f'`{text}`', *(cells[column] for column in COLUMNS[1:])])} |"


def lines(wanted: list[str]) -> list[str]:
    """Try functions, and return their rows."""
    known = tables() if any(name.startswith("scipy.") for name in wanted) else {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [line(name, row(name, known)) for name in wanted]


def all_lines(wanted: list[str]) -> list[str]:
    """Try functions in several processes if they are many, and return their rows."""
    processes = os.cpu_count() or 1
    if len(wanted) <= PARALLEL or processes == 1:
        return lines(wanted)
    parts = [wanted[k : k + PARALLEL // 4] for k in range(0, len(wanted), PARALLEL // 4)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return list(itertools.chain.from_iterable(pool.map(lines, parts, chunksize=1)))


def package(function: str) -> str:
    """Return the package of a function: `np.linalg` of `np.linalg.inv`, `np` of `np.add.reduce`."""
    top, second, *rest = function.split(".")
    return f"{top}.{second}" if rest and (top == "scipy" or second in ("fft", "lib", "linalg")) else top


def page(wanted: list[str]) -> str:
    """Try functions, and return the page: a table for each package, under a heading that the search finds."""
    titles = ["function", "call", *COLUMNS[1:]]
    head = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    sections: dict[str, list[str]] = {}
    for name, text in zip(wanted, all_lines(wanted)):
        sections.setdefault(package(name), []).append(text)
    parts = ["\n".join([f"## {name}", "", *head, *sections[name]]) for name in sorted(sections)]
    return "\n\n".join([HEAD.format(count=len(wanted)).rstrip(), *parts]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="functions to try (default: all)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page to a file instead of printing rows")
    arguments = parser.parse_args()
    wanted = arguments.functions or names()
    if arguments.page:
        arguments.page.write_text(page(wanted), encoding="utf-8")
    else:
        sys.stdout.write("\n".join(all_lines(wanted)) + "\n")


if __name__ == "__main__":
    main()
