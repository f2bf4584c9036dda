"""Control flow: ops that run regions, and the functions that users call."""

from tracegrad.control import scan_vjp as scan_vjp
from tracegrad.control import while_vjp as while_vjp
from tracegrad.control.cond_op import cond
from tracegrad.control.scan_op import scan
from tracegrad.control.while_op import while_loop

__all__ = ["cond", "scan", "while_loop"]
