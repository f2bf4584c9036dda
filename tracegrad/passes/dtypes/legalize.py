"""Legalize dtypes: complex values become pairs of reals, and float16 becomes float32 with rounding.

The other passes and the compiler handle no other dtypes.
"""

from __future__ import annotations

from tracegrad.ir import Graph


def has_complex(graph: Graph) -> bool:
    """Whether any value of the graph or of its regions is complex."""
    return has_dtype(graph, "FD")


def has_dtype(graph: Graph, letters: str) -> bool:
    """Whether any value of the graph or of its regions has a dtype with one of these NumPy characters."""
    for x in graph.inputs:
        if x.aval.dtype.char in letters:
            return True
    for node in graph.nodes:
        if not node.is_multi_result:
            if node.aval.dtype.char in letters:
                return True
        elif any(x.dtype.char in letters for x in node.aval):  # type: ignore[attr-defined]
            return True
        if node.regions and any(has_dtype(g, letters) for g in node.regions):
            return True
    return False


def without_complex(graph: Graph) -> Graph:
    """`graph` over real numbers: complex inputs and outputs have their parts along a last axis.

    >>> from tracegrad.ir import parse
    >>> print(without_complex(parse("graph(%0: c128[5]) {\\n  %1 = conj(%0) : c128[5]\\n  return %1\\n}")))
    graph(%0: f64[5,2]) {
      %1 = slice(%0) {start=(0, 0), step=(1, 1), stop=(5, 1)} : f64[5,1]
      %2 = slice(%0) {start=(0, 1), step=(1, 1), stop=(5, 2)} : f64[5,1]
      %3 = reshape(%1) {shape=(5,)} : f64[5]
      %4 = reshape(%2) {shape=(5,)} : f64[5]
      %5 = negative(%4) : f64[5]
      %6 = stack(%3, %5) {axis=1} : f64[5,2]
      return %6
    }
    """
    if not has_complex(graph):
        return graph
    from tracegrad.passes.dtypes.lower_complex import in_pairs  # most programs do not need it

    return in_pairs(graph)


def without_half(graph: Graph) -> Graph:
    """`graph` without float16, computed in float32 with rounding: float16 inputs and outputs are their bits.

    >>> from tracegrad.ir import parse
    >>> print(without_half(parse("graph(%0: f16[5]) {\\n  %1 = sin(%0) : f16[5]\\n  return %1\\n}")))
    graph(%0: u16[5]) {
      %1 = half_value(%0) : f32[5]
      %2 = sin(%1) : f32[5]
      %3 = round_to_half(%2) : f32[5]
      %4 = half_bits(%3) : u16[5]
      return %4
    }
    """
    if not has_dtype(graph, "e"):
        return graph
    from tracegrad.passes.dtypes.lower_float16 import in_singles  # most programs do not need it

    return in_singles(graph)
