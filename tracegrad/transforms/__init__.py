"""Transforms: functions from graph to graph that change what the graph computes."""

from tracegrad.transforms.vjp_graph import vjp

__all__ = ["vjp"]
