"""The table of ops. Importing this package fills it."""

from tracegrad.ops.calls import custom_call as custom
from tracegrad.ops.calls import random_streams as streams
from tracegrad.ops.core import half
from tracegrad.ops.core.dispatch import TapeCarrier, TensorCarrier
from tracegrad.ops.core.op import TABLE, Carrier, Level, Op, bind
from tracegrad.ops.elementwise import bits, limits, number_parts
from tracegrad.ops.elementwise import complex as complex_numbers
from tracegrad.ops.elementwise import float_representation as representation
from tracegrad.ops.elementwise import power_derivatives as powers
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing import diagonal as diagonals
from tracegrad.ops.indexing import dynamic_slice as windows
from tracegrad.ops.indexing import gather_scatter as indexing
from tracegrad.ops.linalg import contraction, factorizations
from tracegrad.ops.linalg import orthonormal_complement as complements
from tracegrad.ops.linalg import solve as linalg
from tracegrad.ops.nn import activations, correlation, losses
from tracegrad.ops.nn import im2col as patches
from tracegrad.ops.reduce import first_max, scans, sorting
from tracegrad.ops.reduce import partition as selecting
from tracegrad.ops.reduce import reductions as reduction
from tracegrad.ops.shape import linear
from tracegrad.ops.shape import repeat_index as repeats
from tracegrad.ops.shape import stack_split as pieces
from tracegrad.ops.special import scipy_special as special

__all__ = [
    "TABLE",
    "Carrier",
    "Level",
    "Op",
    "TapeCarrier",
    "TensorCarrier",
    "activations",
    "bind",
    "bits",
    "complements",
    "complex_numbers",
    "contraction",
    "correlation",
    "custom",
    "diagonals",
    "elementwise",
    "factorizations",
    "first_max",
    "half",
    "indexing",
    "limits",
    "linalg",
    "linear",
    "losses",
    "number_parts",
    "patches",
    "pieces",
    "powers",
    "reduction",
    "repeats",
    "representation",
    "scans",
    "selecting",
    "sorting",
    "special",
    "streams",
    "windows",
]
