"""The graph IR: arrays in single static assignment, its text form, its verifier and its reference meaning."""

from tracegrad.ir.builder import Builder, Value, build, recorder, recording
from tracegrad.ir.graph import Graph, Node
from tracegrad.ir.replay import evaluate, replay, run, turns
from tracegrad.ir.text import parse, to_text
from tracegrad.ir.verify import verify

__all__ = [
    "Builder",
    "Graph",
    "Node",
    "Value",
    "build",
    "evaluate",
    "parse",
    "recorder",
    "recording",
    "replay",
    "run",
    "to_text",
    "turns",
    "verify",
]
