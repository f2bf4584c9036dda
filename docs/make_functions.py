"""Makes the table of functions beside this file, `functions.md`: `python docs/make_functions.py`.

What is tried are the calls that the tests know, on their small arrays; nothing is compiled but the plan of the program
is made. `python docs/make_functions.py np.sort scipy.linalg.expm` prints the rows of these functions only.
"""

from __future__ import annotations

import dis
import importlib
import itertools
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
sys.path += [str(TESTS), str(TESTS / "scipy_api")]

from numpy_calls import IN_PLACE, MORE, ROUGH, SMOOTH, calls  # noqa: E402
from numpy_expressions import ARRAYS, CREATION, EXPRESSIONS  # noqa: E402
from random_programs import interpreted  # noqa: E402

import tracegrad as tg  # noqa: E402
from tracegrad import numpy_api, passes, tree  # noqa: E402
from tracegrad.codegen.libs.linear_algebra import is_native  # noqa: E402
from tracegrad.codegen.libs.sorting import is_ordering  # noqa: E402
from tracegrad.codegen.loopir.steps import Matmul  # noqa: E402
from tracegrad.codegen.plan.planner import calls_of, plan, plans_of  # noqa: E402
from tracegrad.errors import TraceError  # noqa: E402
from tracegrad.passes.dtypes.lower_complex import in_pairs  # noqa: E402
from tracegrad.scipy_api import registry as of_scipy  # noqa: E402
from tracegrad.scipy_api.special import on_carriers  # noqa: E402
from tracegrad.scipy_api.stats.distributions import _methods  # noqa: E402
from tracegrad.scipy_api.stats.univariate import CONTINUOUS, DISCRETE  # noqa: E402
from tracegrad.torch.tape import TapeArray  # noqa: E402

PAGE = HERE / "functions.md"
COLUMNS = ("tried", "eager", "compiled", "first", "second", "forward", "batch")
YES, NO, NONE, OTHER = "yes", "no", "\N{EN DASH}", "differs"
MOST = 4  # calls of a function that are tried, of which the best counts


class Case(NamedTuple):
    """A call that is tried: its text, the function, its arguments, and the step of differences, which is larger where
    an answer is rough."""

    text: str
    function: Callable[..., Any]
    arguments: list[Any]
    step: float = 1e-4


# -- which functions there are, and calls of them ------------------------------------------------------------------
def names() -> list[str]:
    """Every function of the registries."""
    special = [
        f"scipy.special.{name}"
        for name in scipy.special.__all__
        if isinstance(f := getattr(scipy.special, name), np.ufunc) and on_carriers(f) is not None
    ]
    stats = [f"scipy.stats.{name}.{method}" for name in [*CONTINUOUS, *DISCRETE] for method in _methods(name)]
    return sorted({*numpy_api.supported(), *of_scipy.shadows(), *special, *stats})


def found(name: str) -> Any:
    """The function of a name."""
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
    """An expression, or a statement that changes `y`, as a function of the arrays that it names."""
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
# For functions of which the tables have no call.
GENERAL = """
a | q | v | a, b | q, v | q, w | b | u | v, v | h | v, h[:4] | p | a, p | b, h[:4] | p, a | p, b | 3 | v, 3
"""
OF_SPECIAL = """
b, b, b | b, b, u * u | u * u, b, b | b, u * u, b | p, 9, u * u | 2, 9, u * u | 2.5, b, 3.0, b | b, b, b, u * u
u * u, b, b, b | 2, b, b, u * u | 2, b, b, b | 1, b, u | 1, 1, b, u | 1, 1, b, 0.2, u | 1, 2, b | 1, 1, b, 0.2, 1 + b
p, u * u | 1, 1, b, 1 + b | 3.0, 2.0, b | b, b, -b
"""


def of_numpy(name: str) -> Iterator[Case]:
    """Calls of a function of NumPy, or of one that NumPy's dispatch finds; those of reals come first."""
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
    """The calls that the function itself takes, of so many arguments where that is known."""
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


# The tables of the tests of SciPy's functions, and the arguments of those that do not say which.
TABLES = {
    "special": ("ONE", None), "slopes": ("ONE", None), "linalg": ("CASES", None), "others": ("CASES", None),
    "distances": ("CASES", None), "equations": ("CASES", None), "filters": ("CASES", None), "splines": ("CASES", None),
    "images": ("CASES", None), "spectra": ("CASES", None), "solvers": ("CASES", "P"), "fits": ("CASES", "P"),
    "samples": ("CASES", "X"), "rotations": ("CASES", None), "ode": ("CASES", "P"), "minima": ("CASES", "P"),
    "constraints": ("CASES", "P"), "sparse": ("CASES", "X"),
}  # fmt: skip


def tables() -> dict[int, list[Case]]:
    """The calls of the tests of SciPy's functions, by the identities of the functions that they call."""
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
    """The objects that a function names, and those it calls by other functions of its module."""
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
    """The globals that code reads, and their attributes."""
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
    """Calls of a function."""
    if name.startswith("scipy.stats.") and name.count(".") == 3:
        yield from of_stats(*name.split(".")[2:])
        return
    if name.startswith("scipy."):
        yield from known.get(id(found(name)), ())
    yield from of_numpy(name)


def of_stats(dist: str, method: str) -> Iterator[Case]:
    """Calls of a method of a distribution, where its answers are finite."""
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


# -- what becomes of a call ------------------------------------------------------------------------------------------
OF_NO_POINT = ("mean", "var", "std", "stats", "entropy", "median", "interval")


def of_parameters(dist: str, method: str, shapes: list[Any], discrete: bool) -> Case:
    """The call of a method of a distribution that is given its parameters only."""
    given = [*shapes, np.asarray(0.3), *([] if discrete else [np.asarray(1.4)])]
    text = ", ".join("abcdef"[: len(given)])
    call = f"scipy.stats.{dist}.{method}({'0.9, ' if method == 'interval' else ''}{text})"
    return Case(call, eval(f"lambda {text}: {call}", {"scipy": scipy}), given)


def row(name: str, known: dict[int, list[Case]]) -> dict[str, str]:
    """The cells of a function: those of the call that has the most answers."""
    best = dict.fromkeys(COLUMNS, NONE) | {"tried": "no call"}
    for _, case in zip(range(MOST), filter(_runs, cases(name, known))):
        cells = tried(case)
        if _answers(cells) > _answers(best) or best["compiled"] == NONE:
            best = cells
        if _answers(best) == 5:
            break
    return best


def _runs(case: Case) -> bool:
    """Whether NumPy and SciPy themselves take these arguments."""
    with suppress(Exception):
        case.function(*case.arguments)
        return True
    return False


def _answers(cells: dict[str, str]) -> int:
    return sum((cell == YES) - (cell == OTHER) for cell in cells.values())


def tried(case: Case) -> dict[str, str]:
    """The cells of a call."""
    if isinstance(case.function, types.FunctionType) and not of_scipy.public_name(case.function):
        case = case._replace(function=own_code(case.function))
    with warnings.catch_warnings(), np.errstate(all="ignore"), interpreted():
        warnings.simplefilter("ignore")
        cells = {"tried": case.text, "eager": attempt(eager, case), "compiled": attempt(compiled, case)}
        return cells | derivatives(case) | {"batch": attempt(batch, case)}


def attempt(ask: Callable[[Case], str], case: Case) -> str:
    try:
        return ask(case)
    except Exception:  # of any kind: it is not supported
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
    """Whether Tensors have NumPy's values."""
    if not case.arguments:
        return NONE
    tensors = [TapeArray(x) for x in case.arguments]
    ours, theirs = case.function(*tensors), case.function(*case.arguments)
    if total(theirs) is not None and not any(isinstance(x, TapeArray) for x in tree.flatten(ours)[0]):
        return NO  # the value, without its derivative
    return YES if near(ours, theirs) else OTHER


def compiled(case: Case) -> str:
    """What the program of the call is made of."""
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
    """A number of all floating values, each with a weight of its own; None if there are none."""
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
    """The function with code of its own: traces are counted by code, and there is a limit."""
    code = f.__code__.replace(co_name=f"{f.__name__} {next(_COUNT)}")
    return types.FunctionType(code, f.__globals__, code.co_name, f.__defaults__, f.__closure__)


def derivatives(case: Case) -> dict[str, str]:
    """The cells of the derivatives, beside differences along a direction."""
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
    """The derivative along a direction, by differences of the fourth order."""

    def at(t: float) -> Any:
        return np.asarray(function(*[x + t * v for x, v in zip(point, direction)]))

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def batch(case: Case) -> str:
    """Whether each of a batch of arguments has the answer that it has alone; of reals, where there are any."""
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
HEAD = f"""# The functions of NumPy and SciPy that traced code can call

Written by `python docs/make_functions.py`, from the registries and by trying each of the {{count}} functions: one call
of those that the tests have for it, the one in the second column. Other arguments may have other answers.

- eager: on Tensors, outside of traces. `np.asarray` and other makers of arrays, and functions of SciPy's in
  Python, do not ask what their arguments are: they need a trace (`tg.trace`, `tg.grad`, ...), compiled or not.
- compiled: *fused*: loops of the program; *BLAS*: with products by the BLAS; *native*: with sorting or LAPACK, called
  from machine code; *called*: with a call of the function that NumPy or SciPy has; *nothing*: a view or a constant.
- first, second, forward: the first derivative by `grad`, the second, and that by `jvp`, beside differences.
- batch: `vmap`, beside a loop over examples.

Sparse matrices are constants: they multiply, and solve for, what is traced. Functions that have no call in the tables
of the tests (`no call`) are not tried here.

`{NONE}`: there is none: no derivative as the result is of integers, of booleans or constant in pieces; no batch as
values decide how many elements the result has, or as it is no array; or no argument is an array. `{NO}`: it is refused
by name.
`{OTHER}`: something else than differences or the loop give, at the arrays of the call.
"""


def line(name: str, cells: dict[str, str]) -> str:
    text = cells["tried"].replace("|", "\\|")
    return f"| {name} | {' | '.join([f'`{text}`', *(cells[column] for column in COLUMNS[1:])])} |"


def main(wanted: list[str]) -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    known = tables()
    every = wanted or names()
    lines = [line(name, row(name, known)) for name in every]
    if wanted:
        sys.stdout.write("\n".join(lines) + "\n")
        return
    titles = ["function", "call that is tried", *COLUMNS[1:]]
    text = [HEAD.format(count=len(every)), f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *lines]
    PAGE.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
