"""The op table; importing this package fills it."""

from tracegrad.ops.calls import custom_call, random_streams
from tracegrad.ops.core import half
from tracegrad.ops.core.dispatch import TapeCarrier, TensorCarrier
from tracegrad.ops.core.op import TABLE, Carrier, DispatchLevel, Op, bind
from tracegrad.ops.elementwise import bits, float_representation, limits, number_parts, power_derivatives
from tracegrad.ops.elementwise import complex as complex_numbers
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing import diagonal, dynamic_slice, gather_scatter
from tracegrad.ops.linalg import contraction, factorizations, orthonormal_complement, solve
from tracegrad.ops.nn import activations, correlation, im2col, losses
from tracegrad.ops.reduce import first_max, partition, reductions, scans, sorting
from tracegrad.ops.shape import linear, repeat_index, stack_split
from tracegrad.ops.special import scipy_special

__all__ = [
    "TABLE",
    "Carrier",
    "DispatchLevel",
    "Op",
    "TapeCarrier",
    "TensorCarrier",
    "activations",
    "bind",
    "bits",
    "complex_numbers",
    "contraction",
    "correlation",
    "custom_call",
    "diagonal",
    "dynamic_slice",
    "elementwise",
    "factorizations",
    "first_max",
    "float_representation",
    "gather_scatter",
    "half",
    "im2col",
    "limits",
    "linear",
    "losses",
    "number_parts",
    "orthonormal_complement",
    "partition",
    "power_derivatives",
    "random_streams",
    "reductions",
    "repeat_index",
    "scans",
    "scipy_special",
    "solve",
    "sorting",
    "stack_split",
]
