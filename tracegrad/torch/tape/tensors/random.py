"""Random Tensors, with PyTorch's names and arguments, from NumPy's PCG64.

The numbers have no history: draws are not differentiated. In a trace, all functions draw at each call, and parameters
that are values of the trace are not checked.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import supported
from tracegrad.errors import DTypeError, ShapeError, UnsupportedError, located
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.shape.linear import broadcast_to, cast, reduce_sum, stop_gradient
from tracegrad.torch.functions.core.device import check_device
from tracegrad.torch.functions.core.generator import Generator, stream
from tracegrad.torch.functions.core.operands import as_array
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.torch.tape.tensors.dtypes import get_default_dtype
from tracegrad.torch.tape.tensors.factories import like, plain, shape_of, tensor_method, wrap
from tracegrad.typing import Array, DType, NDArray

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import ArrayLike, DeviceLike, DTypeLike, Shape, Sizes


__all__ = [
    "bernoulli",
    "binomial",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
]


# -- draws of arrays -------------------------------------------------------------------------------------------------
def _floating(name: str, dtype: DTypeLike) -> DType:
    kind = supported(get_default_dtype() if dtype is None else dtype, "dtype=")
    if kind.kind not in "fc":
        raise UnsupportedError(located(f"{name} is not implemented for dtype {kind}"))
    return kind


def _uniform(bits: Any, shape: tuple[int, ...], dtype: DType) -> Array:
    if dtype.kind == "c":
        return _complex(bits.random((*shape, 2)), dtype)
    if dtype == HALF:  # multiples of 2**-11: a rounded float32 could be 1
        drawn: Array = as_array(np.floor(np.ldexp(bits.random(shape, np.float32), 11)) / 2048)
        result: Array = drawn.astype(HALF)
        return result
    return as_array(bits.random(shape, dtype.type))


def _gaussian(bits: Any, shape: tuple[int, ...], dtype: DType) -> Array:
    if dtype.kind == "c":  # the real and imaginary parts together have variance 1
        return _complex(bits.standard_normal((*shape, 2)) * np.sqrt(0.5), dtype)
    if dtype == HALF:
        drawn: Array = as_array(bits.standard_normal(shape, np.float32))
        result: Array = drawn.astype(HALF)
        return result
    return as_array(bits.standard_normal(shape, dtype.type))


def _complex(pairs: NDArray, dtype: DType) -> NDArray:
    return np.asarray(pairs[..., 0] + 1j * pairs[..., 1]).astype(dtype)


def _integers(bits: Any, low: int, high: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if low >= high:
        raise RuntimeError(located(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"))
    if dtype.kind in "iu" and not (np.iinfo(dtype).min <= low and high - 1 <= np.iinfo(dtype).max):
        raise RuntimeError(located(f"the range from {low} to {high} is out of bounds for {dtype}"))
    drawn: Any = as_array(bits.integers(low, high, shape, np.uint64 if high > 1 << 63 else np.int64))
    result: Array = drawn.astype(dtype)
    return result


def _parameter(x: object) -> Array:
    """Return a parameter of a distribution as an array through which no derivative passes."""
    array = as_array(plain(x))
    return stop_gradient(array) if isinstance(array, Carrier) else array


def _probabilities(name: str, p: Array | float) -> Array:
    p = _parameter(p)
    if isinstance(p, np.ndarray) and not ((p >= 0) & (p <= 1)).all():
        raise RuntimeError(located(f"{name} expects p to be in [0, 1]"))
    return p


# -- new Tensors -----------------------------------------------------------------------------------------------------
def rand(
    *sizes: Sizes,
    size: Shape | None = None,
    generator: Generator | None = None,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw numbers uniformly from [0, 1).

    >>> rand(2, 3).shape
    torch.Size([2, 3])
    """
    check_device(device)
    kind = _floating("rand", dtype)
    return wrap(_uniform(stream("rand", generator), shape_of("rand", sizes, size), kind), requires_grad)


def randn(
    *sizes: Sizes,
    size: Shape | None = None,
    generator: Generator | None = None,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw standard normal numbers.

    >>> randn(2, 3).shape
    torch.Size([2, 3])
    """
    check_device(device)
    kind = _floating("randn", dtype)
    return wrap(_gaussian(stream("randn", generator), shape_of("randn", sizes, size), kind), requires_grad)


def randint(
    low: Tensor | int = 0,
    high: Tensor | int | None = None,
    size: Sizes | None = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike = np.int64,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw integers from `low` to `high - 1`: `randint(high, size)` or `randint(low, high, size)`.

    RuntimeError if the range is empty, or the dtype cannot hold it.

    >>> randint(1, (2,))
    tensor([0, 0])
    """
    check_device(device)
    if isinstance(high, list | tuple):
        high, size = None, high
    if high is None:
        low, high = 0, low
    if size is None:
        raise TypeError(located('randint() missing 1 required positional arguments: "size"'))
    kind, shape = supported(dtype, "dtype="), shape_of("randint", (), size)
    drawn = _integers(stream("randint", generator), operator.index(low), operator.index(high), shape, kind)
    return wrap(drawn, requires_grad)


def rand_like(input: Array, *, dtype: DTypeLike = None, **options: Any) -> Tensor:
    """Draw numbers uniformly from [0, 1), in the shape and dtype of `input`.

    >>> rand_like(np.ones(2)).shape
    torch.Size([2])
    """
    shape, kind = like("rand_like", input, dtype)
    return rand(shape, dtype=kind, **options)


def randn_like(input: Array, *, dtype: DTypeLike = None, **options: Any) -> Tensor:
    """Draw standard normal numbers, in the shape and dtype of `input`.

    >>> randn_like(np.ones(2)).shape
    torch.Size([2])
    """
    shape, kind = like("randn_like", input, dtype)
    return randn(shape, dtype=kind, **options)


def randint_like(
    input: Array, low: Tensor | int, high: Tensor | int | None = None, *, dtype: DTypeLike = None, **options: Any
) -> Tensor:
    """Draw integers from `low` to `high - 1`, in the shape and dtype of `input`.

    >>> randint_like(np.ones(2), 1)
    tensor([0., 0.])
    """
    shape, kind = like("randint_like", input, dtype)
    return randint(low, high, size=shape, dtype=kind, **options)


def normal(
    mean: ArrayLike,
    std: ArrayLike = 1.0,
    size: Sizes | None = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Draw normal numbers with these means and standard deviations, which broadcast.

    RuntimeError for a negative `std`.

    >>> normal(0.0, 1.0, (2, 3)).shape
    torch.Size([2, 3])
    """
    check_device(device)
    bits, means, deviations = stream("normal", generator), plain(mean), plain(std)
    arrays = [x for x in (means, deviations) if isinstance(x, np.ndarray | Carrier)]
    if not arrays and size is None:
        raise TypeError(located("normal() of two numbers needs the argument size"))
    common = np.result_type(*[x.dtype for x in arrays]) if arrays and dtype is None else dtype
    kind = _floating("normal", common)
    shape = _common_shape("normal", means, deviations) if arrays else shape_of("normal", (), size)
    return wrap(_normal(bits, means, deviations, shape, kind), requires_grad)


def _common_shape(name: str, *xs: Array) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*map(np.shape, xs))
    except ValueError:
        raise ShapeError(
            located(f"{name}: shapes cannot be broadcast: {', '.join(str(np.shape(x)) for x in xs)}")
        ) from None


def _normal(bits: Any, mean: object, std: Any, shape: Shape, dtype: DType) -> Array:
    mean, std = (_parameter(x) if isinstance(x, Carrier) else x for x in (mean, std))
    if not isinstance(std, Carrier) and (np.asarray(std) < 0).any():
        raise RuntimeError(located(f"normal expects std >= 0.0, but found std {np.min(std)}"))
    drawn: Any = as_array(_gaussian(bits, shape, dtype) * std + mean)
    result: Array = drawn.astype(dtype)
    return result


@tensor_method("bernoulli")
def bernoulli(input: Array, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Draw ones and zeros; a one has the probability in `input`, or `p`. The dtype is that of `input`.

    >>> bernoulli(np.array([0.0, 1.0]))
    tensor([0., 1.])
    """
    bits, args = stream("bernoulli", generator), plain(input)
    kind = _floating("bernoulli", args.dtype)
    chances = _probabilities("bernoulli", args if p is None else p)
    drawn: Any = as_array(bits.random(args.shape) < chances)
    return wrap(drawn.astype(kind))


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: type = np.int64,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the integers from 0 to `n - 1` in random order.

    >>> randperm(3).sum()
    tensor(3)
    """
    check_device(device)
    (count,) = shape_of("randperm", (n,))
    return wrap(stream("randperm", generator).permutation(count).astype(supported(dtype, "dtype=")), requires_grad)


@tensor_method("multinomial")
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Draw indices with probabilities in proportion to `input`, or to each row of it.

    >>> multinomial(np.array([0.0, 1.0]), 3, replacement=True)
    tensor([1, 1, 1])
    """
    bits = stream("multinomial", generator)
    weights = _weights(plain(input), num_samples, replacement)
    weight_rows = weights.reshape(-1, weights.shape[-1])
    if replacement:
        levels = np.cumsum(weight_rows, axis=1)
        chosen: Any = _levels_below(levels, bits.random((len(weight_rows), num_samples)) * levels[:, -1:])
    else:
        # The smallest of independent exponential times, each divided by its weight, is at i with probability in
        # proportion to weight i. The same holds for the next among the remaining (Efraimidis and Spirakis, 2006).
        with np.errstate(divide="ignore"):
            times = bits.standard_exponential(weight_rows.shape) / weight_rows
        chosen = np.argsort(times, axis=1)[:, :num_samples]
    return wrap(chosen.reshape((*weights.shape[:-1], num_samples)).astype(np.int64))


def _levels_below(levels: Array, numbers: Array) -> Array:
    """Return for each number of a row how many of the increasing levels of that row are at most it."""
    if isinstance(levels, np.ndarray) and isinstance(numbers, np.ndarray):
        return np.stack([np.searchsorted(level, each, side="right") for level, each in zip(levels, numbers)])
    return reduce_sum(cast(levels[:, None, :] <= numbers[:, :, None], dtype="int64"), axes=(2,))


def _weights(weights: Any, count: int, replacement: bool) -> Any:
    if weights.dtype.kind != "f":
        raise DTypeError(located(f"multinomial only supports floating-point dtypes for input, got: {weights.dtype}"))
    if weights.ndim not in (1, 2):
        raise ShapeError(located("prob_dist must be 1 or 2 dim"))
    if count <= 0:
        raise RuntimeError(located("cannot sample n_sample <= 0 samples"))
    if not replacement and count > weights.shape[-1]:
        raise RuntimeError(located("cannot sample n_sample > prob_dist.size(-1) samples without replacement"))
    if isinstance(weights, Carrier):
        return stop_gradient(weights).astype(np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise RuntimeError(located("probability tensor contains either `inf`, `nan` or element < 0"))
    if (weights.sum(axis=-1) <= 0).any():
        raise RuntimeError(located("invalid multinomial distribution (sum of probabilities <= 0)"))
    return np.asarray(weights, np.float64)


# -- distributions with parameters, also in traces --------------------------------------------------------------------
def draw_with(name: str, method: str, xs: Any, dtype: DType, generator: Generator | None = None) -> Tensor:
    """Draw by this method of NumPy's generator with array parameters `xs` of one shape; no derivative passes."""
    args = [stop_gradient(plain(x)) for x in xs]
    numbers = getattr(stream(name, generator), method)(*args, args[0].shape)
    array: Any = as_array(numbers)
    return wrap(array.astype(dtype))


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw counts from Poisson distributions with the rates in `input`, in its dtype.

    >>> poisson(np.array([0.0, 0.0]))
    tensor([0., 0.])
    """
    return draw_with("poisson", "poisson", (input,), _floating("poisson", input.dtype), generator)


def binomial(count: Any, prob: Array, generator: Generator | None = None) -> Tensor:
    """Draw numbers of successes in `count` trials that succeed with the probability `prob`, in the dtype of `count`.

    >>> binomial(np.array([3.0, 3.0]), np.array([0.0, 1.0]))
    tensor([0., 3.])
    """
    kind = _floating("binomial", count.dtype)
    trials, chances = (plain(x) for x in (count, prob))
    shape = _common_shape("binomial", trials, chances)
    parameters = [broadcast_to(x, shape=shape) for x in (trials.astype(np.int64), chances)]
    return draw_with("binomial", "binomial", parameters, kind, generator)


# -- methods that fill a Tensor --------------------------------------------------------------------------------------
def _fill(x: Tensor, node: str, drawn: Array) -> Tensor:
    """Overwrite `x` in place; if it is recorded, the tape node has the name `node`."""
    array: Any = as_array(drawn)
    return x._overwrite(wrap(array.astype(x.dtype)), node)


@tensor_method("uniform_")
def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the uniform distribution on [low, high)."""
    kind = _floating("uniform_", self.dtype)
    if low > high:
        raise RuntimeError(located(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}"))
    return _fill(
        self, "UniformBackward0", low + (high - low) * _uniform(stream("uniform_", generator), self.shape, kind)
    )


@tensor_method("normal_")
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the normal distribution."""
    kind = _floating("normal_", self.dtype)
    return _fill(self, "NormalBackward0", _normal(stream("normal_", generator), mean, std, self.shape, kind))


@tensor_method("bernoulli_")
def bernoulli_(self: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with ones, each with the probability `p` (a number, or an array that broadcasts), and zeros."""
    bits = stream("bernoulli_", generator)
    drawn = bits.random(self.shape) < _probabilities("bernoulli_", p)
    return _fill(self, "BernoulliBackward2" if isinstance(p, float | int) else "BernoulliBackward1", drawn)


@tensor_method("exponential_")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the exponential distribution of rate `lambd`."""
    if lambd <= 0:
        raise RuntimeError(located(f"exponential_ expects lambda > 0.0, but found lambda={lambd}"))
    _require_continuous("Exponential", self.dtype)
    return _fill(
        self, "ExponentialBackward0", stream("exponential_", generator).standard_exponential(self.shape) / lambd
    )


@tensor_method("cauchy_")
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the Cauchy distribution around `median`, of half-width `sigma` at half the density."""
    if sigma <= 0:
        raise RuntimeError(located(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}"))
    _require_continuous("Cauchy", self.dtype)
    angles = (stream("cauchy_", generator).random(self.shape) - 0.5) * np.pi
    return _fill(self, "CauchyBackward0", np.tan(angles) * sigma + median)


@tensor_method("log_normal_")
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponentials of numbers from the normal distribution with this mean and standard deviation."""
    if std <= 0:
        raise RuntimeError(located(f"log_normal_ expects std > 0.0, but found std={std}"))
    _require_floating("log_normal_", self.dtype)
    drawn = stream("log_normal_", generator).standard_normal(self.shape)
    return _fill(self, "LogNormalBackward0", np.exp(drawn * std + mean))


@tensor_method("geometric_")
def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials until the first success, which has the probability `p` in each trial."""
    if not 0 < p < 1:
        raise RuntimeError(located(f"geometric_ expects p to be in (0, 1), but got p={p}"))
    if self.dtype.kind not in "fiu":
        raise UnsupportedError(located(f"geometric_ is not implemented for dtype {self.dtype}"))
    failures = np.log1p(-stream("geometric_", generator).random(self.shape)) / np.log1p(-p)
    return _fill(self, "GeometricBackward0", np.maximum(np.ceil(failures), 1.0))


def _require_floating(name: str, dtype: DType) -> None:
    if dtype.kind != "f":
        raise UnsupportedError(located(f"{name} is not implemented for dtype {dtype}"))


def _require_continuous(name: str, dtype: DType) -> None:
    if dtype.kind != "f":
        text = "distribution is a continuous probability distribution. dtype must be a floating point but you specified"
        raise RuntimeError(located(f"{name} {text} {dtype}"))


@tensor_method("random_")
def random_(self: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """Fill with integers from `low` to `high - 1`; `random_(high)` from 0; `random_()` all that the dtype can hold,
    a floating one without gaps."""
    node = "RandomBackward0"
    if high is None:
        node = "RandomBackward1" if low else "RandomBackward2"
        low, high = 0, low or _integers_of(self.dtype)
    return _fill(self, node, _integers(stream("random_", generator), low, high, self.shape, self.dtype))


def _integers_of(dtype: DType) -> int:
    """Return n + 1 for the largest n such that `dtype` can represent all integers up to n."""
    if dtype.kind == "f":
        return int(2 ** (np.finfo(dtype).nmant + 1)) + 1
    return 2 if dtype.kind == "b" else int(np.iinfo(dtype).max) + 1


TENSOR_DOCS.document(globals(), __all__)
