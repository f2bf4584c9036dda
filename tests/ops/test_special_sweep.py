"""Every function of numbers of NumPy, SciPy and its distributions at special points, beside differences.

Each function of the registries is in a table of points, or in a list of functions that are left out, with the reason.
A run of the tests takes one function of sixteen, `--points` takes all.
"""

from __future__ import annotations

import fnmatch
import importlib
import re
import sys
import zlib
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.special as sp
import scipy.stats as st
from differences import Faults, faults, from_side, product, star
from paths import ROOT
from special_functions import FUNCTIONS

import tracegrad as tg
from tracegrad.scipy_api.special import on_carriers
from tracegrad.scipy_api.stats.distributions import _methods
from tracegrad.scipy_api.stats.univariate import CONTINUOUS, DISCRETE

INF = float("inf")
ONE = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 0.37, INF, -INF, 5.0, 20.0]
TWO = [0.0, -0.0, 1.0, 2.0, -1.0, 0.5, 0.37, 1.6, INF]
MORE = [0.0, 1.0, 2.0, -1.0, 0.5, 1.6]
BASES: dict[int, list[tuple[float, ...]]] = {
    3: [(0.7, 1.3, 0.4), (1, 2, 0.4), (2, 1, 0.4), (1, 1, 1.6), (2, 3, 0)],
    4: [(0.7, 1.3, 0.4, 0.6), (1, 2, 1, 0.4), (2, 1, 3, 0.4)],
}
UFUNCS = """
absolute arccos arccosh arcsin arcsinh arctan arctanh cbrt conjugate cos cosh deg2rad exp exp2 expm1 fabs log log10
log1p log2 negative positive rad2deg reciprocal sin sinh sqrt square tan tanh sinc nan_to_num
"""
BINARY = """
add arctan2 copysign divide float_power fmax fmin hypot logaddexp logaddexp2 maximum minimum multiply power subtract
"""
SHAPES: dict[str, list[tuple[float, ...]]] = {
    "t": [(2,), (1,), (3,), (4.5,)],
    "gamma": [(1,), (2,), (3,), (0.5,), (1.5,)],
    "invgamma": [(1,), (2.5,)],
    "beta": [(1, 1), (1, 2), (2, 1), (2, 2), (0.5, 1), (3, 1.5)],
    "lognorm": [(0.7,), (1,)],
    "chi2": [(2,), (4,), (1,), (6,)],
    "f": [(2, 3), (4, 2), (1, 2)],
    "weibull_min": [(1,), (2,), (3,), (1.5,), (0.5,)],
    "pareto": [(1,), (2,), (2.5,)],
    "poisson": [(0,), (1,), (2.5,)],
    "binom": [(3, 0), (3, 1), (3, 0.4), (1, 0), (1, 1)],
    "bernoulli": [(0,), (1,), (0.3,)],
    "nbinom": [(1, 1), (2, 1), (2, 0.4)],
    "geom": [(1,), (0.3,)],
}
METHODS = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
Row = tuple[Any, list[Any], list[int]]


def _universal(name: str, function: Any) -> dict[str, Row]:
    n = getattr(function, "nin", 1)  # sinc and nan_to_num are none
    xs = product(ONE) if n == 1 else product(TWO, TWO) if n == 2 else star(BASES[n], [MORE] * n)
    if not hasattr(function, "nout") or function.nout == 1:
        return {name: (lambda *xs: function(*xs), xs, list(range(n)))}
    parts = {i: (lambda *xs, i=i: function(*xs)[i]) for i in range(function.nout)}
    return {f"{name}[{i}]": (f, xs, list(range(n))) for i, f in parts.items()}


def _of_distribution(name: str, method: str) -> Row:
    function, discrete = getattr(getattr(st, name), method), name in DISCRETE
    values = [0.0, 0.5, 1.0] if method in ("ppf", "isf") else [0.0, 1.0, 0.4, 3.0, INF, -INF, -1.0]
    if discrete:
        values = [0.0, 1.0, 2.0, 3.0]
    columns = np.array([(x, *shape) for x in values for shape in SHAPES.get(name, [()])], float).T
    wanted = [i for i in range(len(columns)) if not (discrete and i == 0) and not (name == "binom" and i == 1)]
    return (lambda *xs: function(*xs)), list(columns.copy()), wanted


def _swept() -> dict[str, Row]:
    table: dict[str, Row] = {}
    for name in f"{UFUNCS} {BINARY}".split():
        table |= _universal(f"np.{name}", getattr(np, name))
    for name in sp.__all__:
        function = getattr(sp, name)
        if name not in UNSWEPT and isinstance(function, np.ufunc) and function.nin <= 4 and on_carriers(function):
            table |= _universal(f"scipy.special.{name}", function)
    for name in (*CONTINUOUS, *DISCRETE):
        for method in METHODS:
            if method in _methods(name) and not (name in DISCRETE and method in ("ppf", "isf")):
                table[f"scipy.stats.{name}.{method}"] = _of_distribution(name, method)
    return table


SLOW = "SciPy computes it too slowly, or with too few digits for differences"
SLOWLY = """
pro_ang1 pro_rad1 pro_rad2 obl_ang1 obl_rad1 obl_rad2 pro_ang1_cv pro_rad1_cv pro_rad2_cv obl_ang1_cv obl_rad1_cv
obl_rad2_cv pro_cv obl_cv mathieu_a mathieu_b mathieu_cem mathieu_sem mathieu_modcem1 mathieu_modcem2 mathieu_modsem1
mathieu_modsem2 ncfdtr ncfdtri ncfdtridfd ncfdtridfn ncfdtrinc nctdtr nctdtridf nctdtrinc nctdtrit chndtr chndtridf
chndtrinc chndtrix bdtrin nbdtrin btdtria btdtrib nrdtrisd fdtridfd gdtria gdtrib stdtridf
"""
WHOLE = "the degree is whole, and is no array here"
UNSWEPT = dict.fromkeys(SLOWLY.split(), SLOW) | dict.fromkeys(
    ["eval_hermite", "eval_hermitenorm", "pbdv", "pbvv"], WHOLE
)
SWEPT = _swept()

# Where a derivative that is finite is none of the limits.
CORNERS = {
    "it jumps in the parameter, and `0**p` has the slope 0 in p by docs/singular_points.md": """
        st.beta.pdf st.chi2.pdf st.f.pdf st.gamma.pdf st.weibull_min.pdf
    """,
    "a corner, of which the second derivative is that of neither side": "sp.huber sp.ive sp.i0e st.laplace.pdf",
    "an infinite number becomes the largest one, which is a constant": "np.nan_to_num",
    "the differences have no digits there": "sp.erfi sp.fresnel[1]",
    "what it inverts is a constant there": "sp.nbdtrik",
}
# Where a derivative is nan, or infinite, though there is a finite limit.
NONE = {
    "at infinity, of a product of what vanishes and what is infinite": """
        np.float_power np.power sp.binom sp.boxcox sp.boxcox1p sp.owens_t sp.pdtr sp.pdtrc sp.powm1 sp.pseudo_huber
        sp.stdtr sp.stdtrit sp.beta sp.poch
    """,
    "it has a limit at infinity, and its slope none": "sp.fresnel[0] sp.fresnel[1]",
    "the slope of a quantile is the reciprocal of a density, which is 0 or infinite": """
        sp.bdtri sp.nbdtri sp.nbdtrik sp.bdtrik sp.betaincinv sp.betainccinv sp.chdtri sp.chdtriv sp.fdtri sp.gdtrix
        sp.gammaincinv sp.gammainccinv st.beta.isf st.beta.ppf st.chi2.isf st.chi2.ppf st.f.isf st.f.ppf st.gamma.isf
        st.gamma.ppf st.invgamma.isf st.invgamma.ppf st.lognorm.isf st.lognorm.ppf
    """,
    "a parameter of the shape is 0, where the distribution is one point": """
        sp.bdtrc sp.betainc sp.betaincc sp.chdtr sp.chdtrc sp.fdtr sp.fdtrc sp.gammainc sp.gammaincc sp.gdtr sp.gdtrc
        sp.nbdtr sp.nbdtrc sp.betaln
    """,
    "the function that is the slope is nan there, or is at a degree or an order below": """
        sp.elliprc sp.ellipeinc sp.ellipkinc sp.eval_chebyc sp.eval_chebyt sp.eval_sh_chebyt sp.lpmv sp.struve
        sp.modstruve
    """,
    "a power of 0 by way of the logarithm": "sp.inv_boxcox sp.inv_boxcox1p",
}


def _named(lists: dict[str, str]) -> set[str]:
    names = " ".join(lists.values()).replace("sp.", "scipy.special.").replace("st.", "scipy.stats.")
    return set(names.split())


def _is_run(name: str, request: pytest.FixtureRequest, one_of: int) -> bool:
    return bool(request.config.getoption("--points")) or zlib.crc32(name.encode()) % one_of == 0


def _faults_of(function: Any, xs: list[Any], i: int, order: int) -> Faults:
    """None if there is no derivative in that argument."""
    with np.errstate(all="ignore"):
        try:
            return faults(function, xs, i, order)
        except tg.UnsupportedError as error:
            if "no derivative" not in str(error):
                raise
            return Faults([], [])


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_a_derivative_at_a_special_point_is_a_limit_or_nan(request: pytest.FixtureRequest) -> None:
    corners, none = _named(CORNERS), _named(NONE)
    assert corners | none <= set(SWEPT)
    chosen = [name for name in SWEPT if _is_run(name, request, 16)]
    assert chosen
    for name in chosen:
        function, xs, arguments = SWEPT[name]
        for i in arguments:
            for order in (1, 2):
                result = _faults_of(function, xs, i, order)
                assert not result.wrong or name in corners, (name, i, order, result.wrong)
                assert not result.none or name in none, (name, i, order, result.none)


# Functions of arrays, at equal elements, zeros and sizes of 1.
POINTS = {"ties": [1.0, 1.0, 2.0], "zeros": [0.0, 0.0, 0.0], "one": [2.0], "one zero": [0.0], "a zero": [0.0, 2.0, 3.0]}
OF_ARRAYS = """
np.max(x) | np.min(x) | np.ptp(x) | np.median(x) | np.sort(x) * np.arange(1.0, len(x) + 1) | np.prod(x) | np.std(x)
np.var(x) | np.linalg.norm(x) | np.linalg.norm(x, 1) | np.linalg.norm(x, np.inf) | np.linalg.norm(x, -np.inf)
np.linalg.norm(x, 3) | np.linalg.vector_norm(x) | np.quantile(x, 0.3) | np.quantile(x, 0.0) | np.percentile(x, 50)
np.cumprod(x) | np.cumsum(x) | np.mean(x) | scipy.special.logsumexp(x) | scipy.special.softmax(x) * np.arange(len(x))
scipy.special.log_softmax(x) | np.nanmax(x) | np.nanmin(x) | np.nanmedian(x) | np.nanprod(x) | np.nanstd(x)
np.nanvar(x) | np.diff(x) | np.trapezoid(x) | np.fft.fft(x).real | np.fft.rfft(x).real | np.fft.ifft(x).real
np.average(x, weights=np.ones(len(x))) | np.unwrap(x) | np.maximum.accumulate(x) | scipy.stats.iqr(x)
np.amax(x) | np.amin(x) | np.nanquantile(x, 0.3) | np.nanpercentile(x, 30) | np.maximum.reduce(x)
np.minimum.reduce(x) | np.cumulative_prod(x) | np.cumulative_sum(x) | np.multiply.reduce(x) | np.add.reduce(x)
scipy.stats.median_abs_deviation(x) | np.clip(x, 0.0, 1.0) | np.where(x > 0, x, 2 * x) | np.heaviside(x, 0.5)
np.sign(x) | np.hypot(x, x) | np.interp(x, [0.0, 1.0, 2.0], [1.0, 3.0, 2.0]) | np.nan_to_num(x) | np.partition(x, 0)
scipy.fft.dct(x, norm="ortho") if len(x) > 1 else x | scipy.fft.fft(x).real | np.nanmean(x) | np.nansum(x)
scipy.spatial.distance.euclidean(x, np.zeros(len(x))) | scipy.spatial.distance.cityblock(x, np.zeros(len(x)))
scipy.spatial.distance.chebyshev(x, np.zeros(len(x))) | scipy.spatial.distance.minkowski(x, np.zeros(len(x)), 3)
scipy.interpolate.CubicSpline([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, -1.0, 2.0])(x) | np.vander(x, 3) | np.polyval(x, 0.0)
scipy.interpolate.PchipInterpolator([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, -1.0, 2.0])(x) | np.float_power(x, 3.0)
np.linalg.det(np.diag(x)) | scipy.linalg.expm(np.diag(x)) | np.linalg.eigvalsh(np.diag(x)) ** 2
np.linalg.pinv(np.diag(x + 1.0)) | np.linalg.eigh(np.diag(x))[0] ** 2
np.linalg.svd(np.diag(x) + 1.0, compute_uv=False) ** 2 | np.linalg.cholesky(np.diag(x + 1.0))
np.linalg.svdvals(np.diag(x)) ** 2 | scipy.linalg.sqrtm(np.diag(x + 1.0)) | scipy.linalg.logm(np.diag(x + 1.0))
np.linalg.inv(np.diag(x + 1.0)) | np.linalg.solve(np.diag(x + 1.0), x) | np.linalg.slogdet(np.diag(x + 1.0))[1]
np.linalg.matrix_power(np.diag(x), 3) | np.linalg.qr(np.diag(x + 1.0))[1] | np.linalg.norm(np.diag(x), "fro")
scipy.linalg.sinm(np.diag(x)) | scipy.linalg.cosm(np.diag(x))
"""
# Where elements are equal, sorting is stable, and the slope is that of one order of them.
SORTED = ("median(", "quantile(", "percentile(")
ARRAYS = [text.strip() for text in OF_ARRAYS.replace("\n", " | ").split(" | ") if text.strip()]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", ARRAYS)
def test_a_derivative_of_a_function_of_an_array_is_between_those_of_both_sides(text: str, request: Any) -> None:
    function = eval(f"lambda x: np.sum({text})", {"np": np, "scipy": scipy})
    compiled = _is_run(text, request, 12)
    for where, values in POINTS.items():
        x = np.array(values)
        direction = np.array([0.6, -0.3, 0.8])[: len(x)]

        def along(t: Any, x: Any = x, direction: Any = direction) -> Any:
            return np.array([function(x + s * direction) for s in t])

        with np.errstate(all="ignore"):
            (left, has_left), (right, has_right) = (from_side(along, [np.zeros(1)], 0, side, 1) for side in (-1, 1))
            results = []
            with tg.disable_jit():
                results.append(np.sum(tg.grad(function)(x) * direction))
                results.append(tg.jvp(function, (x,), (direction,))[1])
            if compiled:
                results.append(np.sum(tg.grad(function)(x) * direction))
        np.testing.assert_allclose(results, results[0], rtol=1e-9, atol=1e-12, err_msg=f"{text} at {where}")
        if where in ("ties", "zeros") and any(name in text for name in SORTED):
            continue
        sides = [v[0] for v, known in ((left, has_left), (right, has_right)) if known and not np.isnan(v)]
        if len(sides) == 2 and np.isfinite(sides).all():
            assert min(sides) - 1e-3 <= results[0] <= max(sides) + 1e-3, (text, where, results[0], sides)


sys.path.insert(0, str(ROOT / "docs"))
make_functions = importlib.import_module("make_functions")
# Functions that are not swept, by the reason.
LEFT_OUT = {
    "it moves elements, or copies them": """
        np.append np.array* np.asanyarray np.asarray np.ascontiguousarray np.asfortranarray np.astype
        np.atleast_* np.block np.broadcast_* np.choose np.column_stack np.compress np.concat* np.copy np.copyto
        np.delete np.diag* np.*split np.*stack np.expand_dims np.extract np.fill_diagonal np.flip* np.full*
        np.insert np.intersect1d np.matrix_transpose np.meshgrid np.moveaxis np.pad np.permute_dims np.place
        np.put* np.ravel np.real* np.repeat np.require np.reshape np.resize np.roll* np.rot90 np.select
        np.piecewise np.setdiff1d np.setxor1d np.squeeze np.swapaxes np.take* np.tile np.transpose np.trim_zeros
        np.tri* np.union1d np.unique* np.unstack np.sort* np.lib.stride_tricks.* np.conj np.linalg.diagonal
        np.linalg.matrix_transpose np.fft.*shift scipy.fft.*shift scipy.linalg.block_diag scipy.linalg.circulant
        scipy.linalg.hankel scipy.linalg.toeplitz scipy.sparse.* scipy.spatial.distance.squareform
    """,
    "it is linear, or a product": """
        np.sum np.trace np.einsum np.inner np.kron np.dot np.matmul np.matvec np.outer np.tensordot np.vdot
        np.vec* np.cross np.convolve np.correlate np.ediff1d np.gradient np.nancum* np.add.* np.subtract.*
        np.bincount np.histogram* np.linspace np.apply_* np.poly* np.linalg.matmul np.linalg.multi_dot
        np.linalg.outer np.linalg.cross np.linalg.tensordot np.linalg.trace np.linalg.vecdot np.fft.*
        scipy.fft.* scipy.ndimage.* scipy.signal.* scipy.integrate.cumulative_* scipy.integrate.romb
        scipy.integrate.simpson scipy.integrate.trapezoid scipy.linalg.matmul_toeplitz scipy.interpolate.*
        np.multiply.reduce
    """,
    "it is written in functions that are here": """
        np.lib.scimath.* np.logspace np.geomspace np.positive np.degrees np.radians np.i0 np.cov np.corrcoef
        np.roots np.divmod np.fmod np.remainder np.modf np.frexp np.ldexp np.nextafter np.spacing np.percentile
        scipy.stats.*.mean scipy.stats.*.var scipy.stats.*.std scipy.stats.*.stats scipy.stats.*.entropy
        scipy.stats.*.median scipy.stats.*.interval scipy.special.comb scipy.special.perm
        scipy.special.factorial scipy.special.polygamma scipy.special.multigammaln scipy.special.softplus
        scipy.special.lambertw scipy.special.zeta scipy.special.spherical_* scipy.spatial.distance.*
        scipy.stats.energy_distance scipy.stats.entropy scipy.stats.*mean scipy.stats.gstd scipy.stats.*zscore
        scipy.stats.zmap scipy.stats.kurtosis scipy.stats.skew scipy.stats.linregress scipy.stats.moment
        scipy.stats.pearsonr scipy.stats.sem scipy.stats.ttest_* scipy.stats.variation
        scipy.stats.wasserstein_distance scipy.optimize.rosen*
    """,
    "what it solves has one solution, or it raises; test_singular_points has equal eigenvalues": """
        np.linalg.* scipy.linalg.* scipy.optimize.* scipy.integrate.* scipy.spatial.*
    """,
    SLOW: " ".join(f"scipy.special.{name}" for name in SLOWLY.split()),
    WHOLE: "scipy.special.eval_hermite* scipy.special.pbdv scipy.special.pbvv",
    "its result is of integers, booleans or indices": """
        np.all np.allclose np.any np.arg* np.nanarg* np.bitwise_* np.can_cast np.common_type np.count_nonzero
        np.digitize np.einsum_path np.equal np.flatnonzero np.gcd np.greater* np.invert np.is* np.ix_ np.lcm
        np.left_shift np.less* np.lexsort np.logical_* np.may_share_memory np.ndim np.nonzero np.not_equal
        np.packbits np.ravel_multi_index np.result_type np.right_shift np.searchsorted np.shape np.shares_memory
        np.signbit np.size np.unpackbits np.unravel_index
    """,
    "it is constant, or constant in pieces": """
        np.angle np.around np.ceil np.empty* np.eye np.fix np.floor np.floor_divide np.identity np.imag np.ones_like
        np.rint np.round np.trunc np.zeros_like scipy.stats.binom.isf scipy.stats.binom.ppf scipy.stats.nbinom.isf
        scipy.stats.nbinom.ppf scipy.stats.poisson.isf scipy.stats.poisson.ppf
    """,
    "differences of a discrete distribution are in test_special_points": "scipy.stats.bernoulli.* scipy.stats.geom.*",
}


def test_every_function_is_swept_or_left_out_for_a_reason() -> None:
    names = set(make_functions.names())
    texts = " ".join([*FUNCTIONS, *ARRAYS]).replace("sp.", "scipy.special.").replace("st.", "scipy.stats.")
    swept = {name.split("[")[0] for name in SWEPT} | set(re.findall(r"(?:np|scipy)\.[\w.]+", texts))
    patterns = " ".join(LEFT_OUT.values()).split()
    left = [name for name in names - swept if not any(fnmatch.fnmatch(name, p) for p in patterns)]
    assert not left, f"neither swept nor left out for a reason: {sorted(left)}"
