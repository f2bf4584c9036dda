"""The graph IR: SSA over arrays, its text form, verifier and reference interpreter."""

from tracegrad.ir.builder import Builder, GraphValue, Value, build, recorder, recording
from tracegrad.ir.graph import Graph, GraphNode
from tracegrad.ir.interpreter import evaluate, replay, replayer, run
from tracegrad.ir.parser import parse, to_text
from tracegrad.ir.verifier import verify

__all__ = [
    "Builder",
    "Graph",
    "GraphNode",
    "GraphValue",
    "Value",
    "build",
    "evaluate",
    "parse",
    "recorder",
    "recording",
    "replay",
    "replayer",
    "run",
    "to_text",
    "verify",
]
