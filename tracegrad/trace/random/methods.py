"""Trace the methods of NumPy's random generators and the functions of `np.random`.

Standard draws (`standard_normal`, numbers in [0, 1), indices) are shifted, scaled and indexed by traced operations.
NumPy computes the same values from the same stream.
"""

from __future__ import annotations

import copy
import functools
import operator
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import GraphValue
from tracegrad.numpy_api.operands import size_of
from tracegrad.ops import Carrier
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.random.draws import CreatedGenerator, GeneratorProxy, is_generator, note
from tracegrad.trace.random.rejected_reads import ClassProxy, draws, refuse
from tracegrad.trace.sources.sources import Fixed
from tracegrad.trace.values.python_arithmetic import holds

_NOT_DRAWN = frozenset({"bit_generator", "get_state", "set_state", "bytes"})

_INSTEAD = {"bytes": "use integers(0, 256, n, dtype=np.uint8)"}


def _traced(*xs: object) -> bool:
    """Whether some of the parameters are traced values; they must then be real numbers."""
    results: list[Any] = [x for x in xs if isinstance(x, Carrier)]
    for x in results:
        if x.dtype.kind == "c" and not x.shape:
            raise UnsupportedError(
                located("a draw by a complex number, of which NumPy takes the real part; take x.real")
            )
        if x.dtype.kind == "c":
            kind = np.dtype(x.dtype)
            cast = f"Cannot cast array data from dtype('{kind}') to dtype('float64') according to the rule 'safe'"
            raise TypeError(located(cast))
    return bool(results)


def _require(condition: Any, error: type[Exception], text: str) -> None:
    """Raise NumPy's own error if a condition on traced values is false."""
    result = np.all(condition)
    if not (holds(result) if isinstance(result, GraphValue) else bool(result)):
        raise error(located(text))


def _require_positive(x: Any, name: str) -> None:
    """Check the sign as NumPy does, which accepts 0.0 and rejects -0.0."""
    _require(np.logical_not(np.signbit(x)), ValueError, f"{name} < 0")


def _shape(size: Any, *xs: Any) -> Any:
    """The shape of the draw: the argument, or the broadcast shape of the parameters; None for a number."""
    if size is not None:
        return tuple(map(operator.index, size)) if isinstance(size, tuple | list) else (operator.index(size),)
    return np.broadcast_shapes(*[np.shape(x) for x in xs]) or None


def _fitting(g: GeneratorProxy, x: Any, shape: Any) -> Any:
    """The result in this shape, or as a Python number."""
    if shape is None and isinstance(x, GraphValue):
        builder = g._world.builder
        return builder.make_number(builder, builder.lift(x).node)
    if shape is not None and tuple(x.shape) != shape:
        raise ValueError(located(f"Output size {shape} is not compatible with broadcast dimensions of inputs."))
    return x


def _moved(method: str, standard: str, args: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """A standard distribution, scaled and shifted."""

    def draw(g: GeneratorProxy, loc: object = 0.0, scale: object = 1.0, size: object = None) -> Any:
        if not _traced(loc, scale):
            return g.draw(method, (loc, scale, size), {})
        _require_positive(scale, "scale")
        shape = _shape(size, loc, scale)
        return _fitting(g, loc + scale * g.draw(standard, (*args, shape), {}, strong=True), shape)

    return draw


def _scaled(method: str, standard: str) -> Callable[..., Any]:
    def draw(g: GeneratorProxy, scale: object = 1.0, size: object = None) -> Any:
        if not _traced(scale):
            return g.draw(method, (scale, size), {})
        _require_positive(scale, "scale")
        shape = _shape(size, scale)
        args = (shape,) if standard != method else (1.0, shape)
        return _fitting(g, scale * g.draw(standard, args, {}, strong=True), shape)

    return draw


def _uniform(g: GeneratorProxy, low: Any = 0.0, high: Any = 1.0, size: object = None) -> Any:
    if not _traced(low, high):
        return g.draw("uniform", (low, high, size), {})
    width = high - low
    _require(np.isfinite(width), OverflowError, "high - low range exceeds valid bounds")
    if not g.is_old:
        _require_positive(width, "high - low")
    shape = _shape(size, low, high)
    return _fitting(
        g, low + width * g.draw("random_sample" if g.is_old else "random", (shape,), {}, strong=True), shape
    )


def _lognormal(g: GeneratorProxy, mean: object = 0.0, sigma: object = 1.0, size: object = None) -> object:
    if not _traced(mean, sigma):
        return g.draw("lognormal", (mean, sigma, size), {})
    _require_positive(sigma, "sigma")
    shape = _shape(size, mean, sigma)
    return _fitting(g, np.exp(mean + sigma * g.draw("standard_normal", (shape,), {}, strong=True)), shape)


def _gamma(g: GeneratorProxy, shape: object, scale: object = 1.0, size: object = None) -> Any:
    if not _traced(scale) and not _differentiated(g, shape):
        return g.draw("gamma", (shape, scale, size), {})
    _require_positive(scale, "scale")
    wanted = _shape(size, shape, scale)
    return _fitting(g, scale * _standard_gamma(g, shape, wanted), wanted)


# -- distributions whose shape has parameters --------------------------------------------------------------------
def _differentiated(g: GeneratorProxy, x: object) -> bool:
    """Whether a derivative being computed flows through an argument."""
    return isinstance(x, GraphValue) and g._world.builder.has_derivative(x.node)


def _implicit(method: str, kind: str, scale: float = 1.0, count: int = 1) -> Callable[..., Any]:
    """A distribution with `count` shape parameters, differentiated as a quantile function (implicit
    reparameterization)."""

    def draw(g: GeneratorProxy, *args: Any, size: Any = None, **kwargs: Any) -> Any:
        shapes, rest = args[:count], args[count:]
        if len(rest) > 1 or kwargs or not any(_differentiated(g, x) for x in shapes):
            return g.draw(method, args, kwargs if size is None else {"size": size, **kwargs})
        from tracegrad.scipy_api.special import call

        wanted = _shape(rest[0] if rest else size, *shapes)
        result = g.draw(method, (*[stop_gradient(x) if _traced(x) else x for x in shapes], wanted), {}, strong=True)
        output = scale * call(f"_drawn_{kind}", *[x / scale for x in shapes], result / scale)
        return output if output.shape else output[()]

    return draw


_standard_gamma = _implicit("standard_gamma", "gamma")


def _dirichlet(g: GeneratorProxy, alpha: Any, size: Any = None) -> Any:
    """NumPy's two methods: stick breaking if all parameters are small, else normalized gamma draws."""
    if isinstance(alpha, list | tuple) and _traced(*alpha):
        alpha = np.stack(alpha)
    if not _differentiated(g, alpha):
        return g.draw("dirichlet", (alpha, size), {})
    wanted = (*(_shape(size) if size is not None else ()), alpha.shape[0])
    small = np.max(alpha) < 0.1
    if g.is_old or not holds(small):
        gammas = _standard_gamma(g, alpha, wanted)
        return gammas / np.sum(gammas, axis=-1, keepdims=True)
    raise UnsupportedError(
        located("dirichlet has no derivative with respect to alpha where no element is 0.1 or more; draw by gamma")
    )


def _multivariate_normal(g: GeneratorProxy, mean: Any, cov: Any, size: Any = None, *args: Any, **kwargs: Any) -> Any:
    if any(np.iscomplexobj(x) for x in (mean, cov)):
        raise TypeError(located("mean and cov must not be complex"))
    mean, method = np.asarray(mean) if not _traced(mean) else mean, kwargs.get("method", "svd")
    factor: Any = cov
    if isinstance(cov, GraphValue) and g._world.builder.has_derivative(cov.node) and method == "cholesky":
        shape = () if size is None else _shape(size)
        z = g.draw("standard_normal", ((*shape, len(mean)),), {})
        return mean + z @ np.linalg.cholesky(factor).T
    if not _traced(mean):
        return g.draw("multivariate_normal", (mean, cov, size, *args), kwargs)
    return mean + g.draw("multivariate_normal", (np.zeros(len(mean)), cov, size, *args), kwargs)


# -- choice --------------------------------------------------------------------------------------------------------
def _number_of(a: object) -> Any:
    """The integer that denotes a range of numbers, or None for an array of elements."""
    if isinstance(a, int | np.integer) or (isinstance(a, GraphValue) and not a.shape):
        return a
    return None


def _lifted(g: GeneratorProxy, x: object) -> Any:
    """A value as a traced array."""
    return x if isinstance(x, Carrier) else g._world.builder.lift(np.asarray(x))


def _choice(
    g: GeneratorProxy, a: Any, size: Any = None, replace: Any = True, p: Any = None, axis: int = 0, shuffle: Any = True
) -> Any:
    number = _number_of(a)
    count = number if number is not None else len(a) if not isinstance(a, GraphValue) else a.shape[axis]
    size = None if size is None else _shape(size)
    options = {} if g.is_old else {"shuffle": shuffle}
    index = g.draw("choice", (count, size, replace, p), options)
    if number is not None:
        return index
    if not isinstance(a, Carrier) and any(isinstance(x, str) or not np.isscalar(x) for x in a) and not np.shape(index):
        return a[int(index)]
    return np.take(_lifted(g, a), index, axis=axis)


def _permutation(g: GeneratorProxy, x: Any, axis: int = 0) -> Any:
    if _number_of(x) is not None:
        return g.draw("permutation", (x,), {})
    x = _lifted(g, x)
    return np.take(x, g.draw("permutation", (x.shape[axis],), {}), axis=axis)


def _permuted(g: GeneratorProxy, x: Any, *, axis: Any = None, out: Any = None) -> Any:
    x = _lifted(g, x)
    positions = np.arange(size_of(x)).reshape(x.shape)
    result = np.take(np.ravel(x), g.draw("permuted", (positions,), {"axis": axis}))
    if out is None:
        return result
    out[...] = result
    return out


def _shuffle(g: GeneratorProxy, x: object, axis: int = 0) -> None:
    array: Any = x
    if not isinstance(x, Carrier):
        raise UnsupportedError(located("shuffle of what is no array of the trace: shuffle an array of indices"))
    array[...] = _permutation(g, x, axis)


_METHODS: dict[str, Callable[..., Any]] = {
    "normal": _moved("normal", "standard_normal"),
    "laplace": _moved("laplace", "laplace", (0.0, 1.0)),
    "logistic": _moved("logistic", "logistic", (0.0, 1.0)),
    "gumbel": _moved("gumbel", "gumbel", (0.0, 1.0)),
    "exponential": _scaled("exponential", "standard_exponential"),
    "rayleigh": _scaled("rayleigh", "rayleigh"),
    "standard_gamma": _standard_gamma,
    "beta": _implicit("beta", "beta", count=2),
    "dirichlet": _dirichlet,
    "chisquare": _implicit("chisquare", "gamma", 2.0),
    "standard_t": _implicit("standard_t", "t"),
    "uniform": _uniform,
    "lognormal": _lognormal,
    "gamma": _gamma,
    "multivariate_normal": _multivariate_normal,
    "choice": _choice,
    "permutation": _permutation,
    "permuted": _permuted,
    "shuffle": _shuffle,
}


def method_of(g: GeneratorProxy, name: str) -> Any:
    """The traced version of a generator method."""
    real = getattr(g._real, name)
    if name in _NOT_DRAWN or not callable(real):
        instead = _INSTEAD.get(name, "call it outside")
        raise UnsupportedError(
            located(f"{name} of a random generator in a traced function is not supported; {instead}")
        )
    traced_version = _METHODS.get(name)
    if traced_version is not None:
        return functools.partial(traced_version, g)
    return lambda *args, **kwargs: g.draw(name, args, kwargs)


HOOKS.generator_method = method_of


# -- np.random -----------------------------------------------------------------------------------------------------
def generator_of(world: Any, real: Any, source: Any) -> GeneratorProxy:
    """The proxy of a generator from outside."""
    known = world.generators.get(id(real))
    if known is None:
        world.assume(source, "type", type(real))
        known = world.generators[id(real)] = real, GeneratorProxy(world, real, source), source
    elif known[2].key != source.key:
        world.assume(source, "same", known[2])
    return known[1]  # type: ignore[no-any-return]


def is_random(x: object) -> bool:
    """Whether `x` draws random numbers, or makes an object that does."""
    return x is np.random.default_rng or x is np.random.seed or draws(x)


def random_of(world: Any, value: Any, source: object) -> Any:
    """The proxy of a random object that traced code has read from a source."""
    if is_generator(value):
        return generator_of(world, value, source)
    if not draws(value):
        return MAKERS[value.__name__]
    if world.once and isinstance(value, random.Random):
        note(value)
        return value
    description = f"{source} draws random numbers, which are others at each call"
    raise world.builder.abort(f"{description}; use a generator of np.random's to have the call compiled")


def method_of_global(value: Any) -> object:
    """The stand-in of a bound generator method, such as a function of `np.random`."""
    trace, real = current_trace(), value.__self__
    if trace is None:
        return value
    return method_of(generator_of(trace.world, real, Fixed(real, "a random generator")), value.__name__)


def _created(function: Callable[..., object], *args: object) -> Any:
    """A generator that traced code creates at each call."""
    trace = current_trace()
    if trace is None or not trace.world.open:
        return function(*args)
    world = trace.world
    shown = [trace.compute(x.node).item() if isinstance(x, GraphValue) else x for x in args]
    try:
        real = function(*shown)
    except Exception:  # other calls with the same seed raise too
        for x in [x for x in args if isinstance(x, GraphValue)]:
            trace.observe(x, "a seed")
        raise
    result = GeneratorProxy(world, real, CreatedGenerator(function))
    world.created_generators[id(real)] = real
    needed = tuple([world.draws.needs(trace, trace.lift(x).node) if isinstance(x, GraphValue) else x for x in args])
    world.draws.origins[-1] = CreatedGenerator(function, needed)
    return result


def default_rng(seed: object = None) -> Any:
    """Traced `np.random.default_rng`."""
    if is_generator(seed) or isinstance(seed, np.random.BitGenerator):
        return seed if is_generator(seed) else _generator(seed)
    return _created(np.random.default_rng, *([] if seed is None else [seed]))


def _random_state(seed: object = None) -> object:
    return _created(np.random.RandomState, *([] if seed is None else [seed]))


def _generator(bit_generator: Any) -> object:
    start = copy.deepcopy(bit_generator)
    return _created(lambda: np.random.Generator(copy.deepcopy(start)))


def _seeded(real: Any) -> Callable[..., object]:
    def call(seed: Any = None) -> Any:
        known: Any = seed
        if seed is None:
            refuse(f"np.random.{real.__name__}()", "seeded", "give it a seed, or make it outside")
        return real(operator.index(known) if isinstance(seed, GraphValue) else seed)

    return call


def _class(real: Any, call: Any) -> Any:
    return ClassProxy(real.__name__, (), {"real": real, "other": {"__call__": call}})


_CLASSES = {
    "Generator": _class(np.random.Generator, _generator),
    "RandomState": _class(np.random.RandomState, _random_state),
    **{
        x.__name__: _class(x, _seeded(x))
        for x in (
            np.random.PCG64,
            np.random.PCG64DXSM,
            np.random.MT19937,
            np.random.Philox,
            np.random.SFC64,
            np.random.SeedSequence,
        )
    },
}


def _seed(seed: Any = None) -> None:
    trace, real = current_trace(), np.random.mtrand._rand
    if trace is None:
        real.seed(seed)
    else:
        generator_of(trace.world, real, Fixed(real, "np.random")).draw("seed", (seed,), {})


# Replacements of functions and classes of `np.random` in traced code.
MAKERS = {**_CLASSES, "default_rng": default_rng, "seed": _seed}


class _NumpyRandomModule(types.ModuleType):
    """Proxy of `np.random`."""

    def __getattr__(self, name: str) -> Any:
        if name in MAKERS:
            return MAKERS[name]
        result = getattr(np.random, name)
        if is_generator(getattr(result, "__self__", None)):
            return method_of_global(result)
        raise UnsupportedError(located(f"np.random.{name} in a traced function is not supported"))


RANDOM = _NumpyRandomModule("numpy.random")
