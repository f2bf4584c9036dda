"""Control flow: ops that run regions, and the functions that users call."""

from tracegrad.control import backward as backward
from tracegrad.control import backward_until as backward_until
from tracegrad.control.branch import cond
from tracegrad.control.repeat import scan
from tracegrad.control.until import while_loop

__all__ = ["cond", "scan", "while_loop"]
