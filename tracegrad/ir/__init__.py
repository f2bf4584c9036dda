"""The graph IR: arrays in single static assignment, its text form, its verifier and its reference meaning."""

from tracegrad.ir.builder import Builder, Value, build, recorder, recording
from tracegrad.ir.graph import Graph, Node
from tracegrad.ir.interpreter import evaluate, replay, run, turns
from tracegrad.ir.parser import parse, to_text
from tracegrad.ir.verifier import verify

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
