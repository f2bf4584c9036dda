"""Activation functions with static parameters, each one elementwise op.

An op is declared by its definition in ops, which is its meaning and its decomposition for the compiler, and which is
accurate (no power overflows, no difference cancels); by its rule `rule(t, ans, x, **params)`, linear in `t`; and by
its test parameters. At a kink the derivative is PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.elementwise_op import elementwise, float_loop
from tracegrad.ops.core.half_rounding import in_single
from tracegrad.ops.core.op import Op, Sample, refusing_complex
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    exp,
    expm1,
    gauss_half,
    greater,
    less,
    less_equal,
    log,
    log1p,
    logaddexp,
    maximum,
    multiply,
    negative,
    sigmoid,
    square,
    subtract,
    where,
)
from tracegrad.ops.numerics import accurate_derivatives
from tracegrad.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


Rule = Callable[..., Any]


def activation(
    rule: Rule, impl: Callable[..., object] | None = None, piecewise_linear: bool = False, **sample: float | str
) -> Callable[[Rule], Op]:
    """Declare an op by decorating its definition in ops; `impl` is a faster NumPy implementation."""

    def declare(definition: Rule) -> Op:
        name = definition.__name__
        computed = in_single(refusing_complex(name, impl or definition))
        op = Op(name, ("x",), computed, definition.__doc__ or "", variadic=False)
        op.piecewise_linear, op.pointwise = piecewise_linear, True
        op.def_aval(_same_aval)
        op.def_decompose(definition)
        op.def_vjp("x")(lambda ct, ans, x, **params: rule(ct, ans, x, **params))
        op.def_jvp(lambda tangents, ans, x, **params: rule(tangents[0], ans, x, **params))

        @op.def_samples
        def _() -> Iterator[Sample]:
            yield (uniform((3, 4)),), sample
            yield (uniform((20,), dtype="float32"),), sample

        return op

    return declare


def _same_aval(x: Aval, **params: object) -> Aval:
    return x


# -- rectifiers --------------------------------------------------------------------------------------
@activation(lambda t, ans, x: where(less_equal(ans, 0), 0.0, t), impl=lambda x: np.maximum(x, 0), piecewise_linear=True)
def relu(x: Array) -> Array:
    """max(x, 0)"""
    return maximum(x, 0)


@activation(
    lambda t, ans, x, negative_slope: where(greater(x, 0), t, multiply(t, negative_slope)),
    impl=lambda x, negative_slope: np.where(x > 0, x, x * negative_slope),
    piecewise_linear=True,
    negative_slope=0.1,
)
def leaky_relu(x: Array, *, negative_slope: float) -> Array:
    """x for x > 0, else negative_slope * x"""
    return where(greater(x, 0), x, multiply(x, negative_slope))


def _elu_rule(t: Array, ans: Array, x: Array, *, alpha: float, scale: float, input_scale: float) -> Array:
    derivative = multiply(exp(multiply(where(less(x, 0), x, 0.0), input_scale)), alpha * scale * input_scale)
    return where(greater(x, 0), multiply(t, scale), multiply(t, derivative))


def _numpy_elu(x: Array, *, alpha: float, scale: float, input_scale: float) -> Array:
    return np.where(x > 0, x * scale, np.expm1(np.where(x > 0, 0, x) * input_scale) * (alpha * scale))


@activation(_elu_rule, impl=_numpy_elu, alpha=0.75, scale=1.25, input_scale=1.5)
def elu(x: Array, *, alpha: float, scale: float, input_scale: float) -> Array:
    """scale * x for x > 0, else scale * alpha * (exp(input_scale * x) - 1)"""
    below = multiply(expm1(multiply(where(greater(x, 0), 0.0, x), input_scale)), alpha * scale)
    return where(greater(x, 0), multiply(x, scale), below)


# -- smooth ones -------------------------------------------------------------------------------------
def _silu_bend(x: Array) -> Array:
    gate, rest = sigmoid(x), sigmoid(negative(x))
    return multiply(multiply(gate, rest), add(multiply(x, subtract(rest, gate)), 2))


silu_derivative = elementwise(
    "silu_derivative(x)",
    accurate_derivatives.silu_derivative,
    "silu_derivative(x)",
    lambda t, ans, x: multiply(t, _silu_bend(x)),
    loop=float_loop,
    doc="the slope of silu",
)
silu = elementwise(
    "silu(x)",
    accurate_derivatives.silu,
    "silu(x)",
    lambda t, ans, x: multiply(t, silu_derivative(x)),
    loop=float_loop,
    doc="x * sigmoid(x)",
)


def _softplus_rule(t: Array, ans: Array, x: Array, *, beta: float, threshold: float) -> Array:
    scaled = multiply(x, beta)
    return where(greater(scaled, threshold), t, multiply(t, sigmoid(scaled)))


def _numpy_softplus(x: Array, *, beta: float, threshold: float) -> Array:
    scaled = x * beta
    linear = scaled > threshold
    return np.where(linear, x, np.log1p(np.exp(np.where(linear, 0, scaled))) / beta)


@activation(_softplus_rule, impl=_numpy_softplus, beta=1.5, threshold=20.0)
def softplus(x: Array, *, beta: float, threshold: float) -> Array:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold"""
    scaled = multiply(x, beta)
    linear = greater(scaled, threshold)
    return where(linear, x, divide(log1p(exp(where(linear, 0.0, scaled))), beta))


@activation(lambda t, ans, x: multiply(t, sigmoid(negative(x))), impl=lambda x: -np.logaddexp(-x, 0))
def log_sigmoid(x: Array) -> Array:
    """log(sigmoid(x))"""
    return negative(logaddexp(negative(x), 0.0))


x_ndtr_derivative = elementwise(
    "x_ndtr_derivative(x)",
    accurate_derivatives.x_ndtr_derivative,
    "x_ndtr_derivative(x)",
    lambda t, ans, x: multiply(
        t, multiply(multiply(gauss_half(x), 1 / math.sqrt(2 * math.pi)), subtract(2, square(x)))
    ),
    loop=float_loop,
    doc="the slope of x_ndtr",
)
x_ndtr = elementwise(
    "x_ndtr(x)",
    accurate_derivatives.x_ndtr,
    "x_ndtr(x)",
    lambda t, ans, x: multiply(t, x_ndtr_derivative(x)),
    loop=float_loop,
    doc="x times the probability that a standard normal variable is below x",
)

# gelu_tanh is x * sigmoid(u) with u = LINE * x + CUBE * x**3.
_LINE = 2 * math.sqrt(2 / math.pi)
_CUBE = 0.044715 * _LINE


def _gelu_tanh_bend(x: Array) -> Array:
    exponent = multiply(x, add(multiply(square(x), _CUBE), _LINE))
    derivative, bend = add(multiply(square(x), 3 * _CUBE), _LINE), multiply(x, 6 * _CUBE)
    gate, rest = sigmoid(exponent), sigmoid(negative(exponent))
    steep = add(bend, multiply(square(derivative), subtract(rest, gate)))
    return multiply(multiply(gate, rest), add(multiply(x, steep), multiply(derivative, 2)))


gelu_tanh_derivative = elementwise(
    "gelu_tanh_derivative(x)",
    accurate_derivatives.gelu_tanh_derivative,
    "gelu_tanh_derivative(x)",
    lambda t, ans, x: multiply(t, _gelu_tanh_bend(x)),
    loop=float_loop,
    doc="the slope of gelu_tanh",
)
gelu_tanh = elementwise(
    "gelu_tanh(x)",
    accurate_derivatives.gelu_tanh,
    "gelu_tanh(x)",
    lambda t, ans, x: multiply(t, gelu_tanh_derivative(x)),
    loop=float_loop,
    doc="the approximation of x_ndtr by a hyperbolic tangent",
)


def _gelu_rule(t: Array, ans: Array, x: Array, *, approximate: str) -> Array:
    return multiply(t, gelu_tanh_derivative(x) if approximate == "tanh" else x_ndtr_derivative(x))


@activation(_gelu_rule, approximate="none")
def gelu(x: Array, *, approximate: str) -> Array:
    """x times the probability that a standard normal variable is below x, exactly or by its approximation "tanh" """
    return gelu_tanh(x) if approximate == "tanh" else x_ndtr(x)


# -- the logarithmic loss of a probability -------------------------------------------------------------
# Logarithms are at least -100. The derivative is bounded by its value at a probability of 1e-12 (PyTorch's bounds).
def _loss_of_probability(x: Array, y: Array) -> Array:
    return (y - 1) * np.maximum(np.log1p(-x), -100) - y * np.maximum(np.log(x), -100)


binary_cross_entropy = elementwise(
    "binary_cross_entropy(x, y)",
    _loss_of_probability,
    "(y - 1) * maximum(log1p(-x), -100) - y * maximum(log(x), -100)",
    lambda t, ans, x, y: divide(multiply(t, subtract(x, y)), maximum(multiply(subtract(1, x), x), 1e-12)),
    lambda t, ans, x, y: multiply(t, subtract(log1p(negative(x)), log(x))),
    loop=float_loop,
    domain=(0.1, 0.9),
    doc="-log of the probability of y, 1 or 0, where that of 1 is x",
)
