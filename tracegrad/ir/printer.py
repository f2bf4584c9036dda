"""Print a graph as text; `tracegrad.ir.parser` has the grammar and the parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tracegrad.avals import LITERALS

if TYPE_CHECKING:
    from tracegrad.ir.graph import Graph, GraphNode

# The name of an input: a variable, then attributes, and subscripts by numbers and simple strings.
NAME = r"[^\W\d]\w*(?:\.\w+|\[\d+\]|\['[\w ./-]*'\])*"
_LITERALS = {"inf", "nan", "None", "True", "False"}


def names_of(graph: Graph) -> dict[GraphNode, str]:
    """The names of the values of `graph` in its text."""
    table = {n: f"%{i}" for i, n in enumerate([*graph.inputs, *(n for n in graph.nodes if not n.is_multi_result)])}
    table.update((x, name) for x, name in zip(graph.inputs, graph.names) if name)
    return table


def printable(names: Iterable[str]) -> tuple[str, ...]:
    """The names, with "" for names that cannot be printed or that occur before.

    >>> printable(["x", "params['w']", "x", "args[0].scale", "argument 1", "nan"])
    ('x', "params['w']", '', 'args[0].scale', '', '')
    """
    results: list[str] = []
    for name in names:
        fits = re.fullmatch(NAME, name) and name not in results and name not in _LITERALS
        results.append(name if fits else "")
    return tuple(results)


def to_text(graph: Graph, locations: bool = False) -> str:
    """The text of `graph`; with `locations`, each node ends in a comment naming the user's line."""

    def inside(name: str, region: Graph) -> Iterator[str]:
        return (f"    {line}" for line in _lines(region, name, inside))

    text = "\n".join(_lines(graph, "graph", inside))
    return with_locations(text, graph) if locations else text


def with_locations(text: str, graph: Graph) -> str:
    """The text of this or an equal graph, with the user's lines that `graph` knows."""
    lines = zip(text.split("\n"), _lines_of_user(graph), strict=True)
    return "\n".join([f"{line}  # {location}" if location else line for line, location in lines])


def _lines_of_user(graph: Graph) -> Iterator[str]:
    """The user's line for each line of the text, or ""."""
    yield ""
    for node in graph.nodes:
        if node.result_index is None:
            yield node.location
            if node.regions:
                for _, region in named_regions(node):
                    yield from _lines_of_user(region)
    yield from ("", "")


def digest_of(graph: Graph) -> bytes:
    """A digest of the text, with the regions replaced by their digests."""

    def inside(name: str, region: Graph) -> Iterator[str]:
        yield f"{name} {region.digest.hex()}"

    return blake2b("\n".join(_lines(graph, "graph", inside)).encode(), digest_size=20).digest()


# The lines of a region with this name.
_Inside = Callable[[str, Any], Iterator[str]]


def _lines(graph: Graph, head: str, inside: _Inside) -> Iterator[str]:
    names = names_of(graph)
    picked: dict[GraphNode, dict[int, str]] = {}
    for node in graph.nodes:
        if node.result_index is not None:
            picked.setdefault(node.operands[0], {})[node.result_index] = names[node]
    yield f"{head}({', '.join(f'{names[x]}: {x.aval}' for x in graph.inputs)}) {{"
    avals: dict[Any, str] = {}  # a cache: graphs have few different avals
    for node in graph.nodes:
        if node.result_index is not None:
            continue
        if node.is_multi_result:
            result = picked.get(node, {})
            named = ", ".join(result.get(i, "_") for i in range(len(node.results)))
            named += "," * (len(node.results) == 1)
            aval = str(node.aval)
        else:
            named, kind = names[node], (node.aval.shape, node.aval.dtype)
            aval = avals.get(kind) or avals.setdefault(kind, str(node.aval))
        yield _line(node, named, aval, names)
        if node.regions:
            for name, region in named_regions(node):
                yield from inside(name, region)
    yield f"  return {', '.join(names[x] for x in graph.outputs)}"
    yield "}"


def _line(node: GraphNode, named: str, aval: str, names: dict[GraphNode, str]) -> str:
    params = node.params
    if node.regions:
        hidden = {name.partition(".")[0] for name, _ in named_regions(node)}
        params = tuple([(k, v) for k, v in params if k not in hidden])
    operands = ", ".join([repr(x) if type(x) in LITERALS else names[x] for x in node.inputs])
    shown = f" {{{', '.join([f'{k}={v!r}' for k, v in params])}}}" if params else ""
    return f"  {named} = {node.name}({operands}){shown} : {aval}"


def named_regions(node: GraphNode) -> Iterator[tuple[str, Any]]:
    """The regions of a node with their names: the name of the parameter, and a number if it has several."""
    for name, value in node.params:
        if hasattr(value, "nodes"):
            yield name, value
        elif type(value) is tuple and value and hasattr(value[0], "nodes"):
            yield from ((f"{name}.{k}", g) for k, g in enumerate(value))
