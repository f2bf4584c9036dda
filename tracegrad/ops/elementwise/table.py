"""Elementwise ops, one statement each; `tracegrad.ops.core.elementwise_op` documents the format.

In a rule, `t` is the cotangent (or tangent), `ans` the result; rules are linear in `t` and written in ops. To mask an
operand out, a rule uses `where`, never a product with 0, because 0 * inf is nan.
"""

from tracegrad.ops.elementwise.arithmetic import *  # noqa: F403
from tracegrad.ops.elementwise.comparison import *  # noqa: F403
from tracegrad.ops.elementwise.exponential import *  # noqa: F403
from tracegrad.ops.elementwise.trigonometric import *  # noqa: F403
