"""Parse the text form of a graph.

    graph   = "graph" block
    block   = "(" [value ": " aval {", " ...}] ") {" newline {"  " node} "  return " [value {", " ...}] newline "}"
    node    = results " = " op "(" [operand {", " ...}] ")" [" {" param {", " ...} "}"] " : " avals newline {region}
    region  = "    " name ["." number] block, indented by four
    results = value | (value | "_") {", " (value | "_")} [","]     avals = aval {", " aval} [","]
    param   = name "=" python-literal
    operand = value | python-literal            value = "%" number | name     aval = dtype "[" [size {"," size}] "]"

A named input prints as its name: a variable, or a value reached from one, as `params['w']` or `self.scale`. It still
has a number in the numbering. Literals print as in Python, with `inf` and `nan`. An op with several results has one
name and one aval per result, `_` for an unused result, and a comma after a single one. The regions of a node follow it;
values in them are numbered from 0. `parse(to_text(g)) == g`, and prints the same.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

from tracegrad.avals import Aval, dtype_named
from tracegrad.errors import VerifyError
from tracegrad.ir.graph import Graph, GraphNode
from tracegrad.ir.printer import NAME, to_text
from tracegrad.ops.core.op import ResultAvals
from tracegrad.ops.core.result import op_named, result

__all__ = ["parse", "to_text"]


# Patterns, which are compiled when they are first used.
_INPUT = rf"(%\d+|{NAME}): (\w+)\[([\d,]*)\]"
_AVAL = r"(\w+)\[([\d,]*)\]"
_NODE = (
    r"((?:%\d+|_)(?:, (?:%\d+|_))*,?) = (\w+)\((.*?)\)(?: \{(.*)\})? : (\w+\[[\d,]*\](?:, \w+\[[\d,]*\])*,?)(?:  #.*)?"
)
_HEAD = r"([\w.]+)\((.*)\) \{"


def parse(text: str) -> Graph:
    """The graph that prints as `text`; `VerifyError` names a line that does not follow the grammar."""
    lines = _Lines(text.strip().splitlines())
    name, graph = lines.block("")
    if name != "graph" or lines.has_more():
        raise VerifyError("not the text of a graph: it has no head, return line or closing brace")
    return graph


class _Lines:
    """Cursor over the lines of a text."""

    def __init__(self, lines: list[str]):
        self.lines, self.at = lines, 0

    def has_more(self) -> bool:
        return self.at < len(self.lines)

    def next_line(self, indent: str) -> str:
        """The next line, without its indentation."""
        if not self.has_more() or not self.lines[self.at].startswith(indent):
            raise VerifyError("not the text of a graph: it has no head, return line or closing brace")
        self.at += 1
        return self.lines[self.at - 1][len(indent) :]

    def block(self, indent: str) -> tuple[str, Graph]:
        """A name and the graph of the block after it."""
        head = re.fullmatch(_HEAD, self.next_line(indent))
        if head is None:
            raise VerifyError("not the text of a graph: it has no head, return line or closing brace")
        env = {name: GraphNode(None, (), (), _aval(d, s)) for name, d, s in re.findall(_INPUT, head[2])}
        operands, inputs, nodes = tuple(env), tuple(env.values()), list[GraphNode]()
        while not (line := self.next_line(f"{indent}  ")).startswith("return"):
            nodes += self.node(line, indent, env)
        outputs = [_operand(x, env, line) for x in line.removeprefix("return").strip().split(", ") if x]
        if self.next_line(indent) != "}":
            raise VerifyError("not the text of a graph: it has no head, return line or closing brace")
        names = tuple(["" if name.startswith("%") else name for name in operands])
        return head[1], Graph(inputs, tuple(nodes), tuple(outputs), names if any(names) else ())

    def node(self, line: str, indent: str, env: dict[str, GraphNode]) -> list[GraphNode]:
        """The node of a line and the regions below it; with the result nodes of an op with several results."""
        match = re.fullmatch(_NODE, line)
        op = None if match is None else op_named(match[2])
        if match is None or op is None:
            raise VerifyError(f"not a node: {line!r}")
        named, _, operands, params, avals = match.groups()
        args = tuple(_operand(x, env, line) for x in operands.split(", ") if x)
        call = ast.parse(f"f({params or ''})", mode="eval").body
        assert isinstance(call, ast.Call)
        inputs = {str(k.arg): _literal(k.value) for k in call.keywords} | self.regions(f"{indent}    ")
        result_avals = tuple(_aval(*each) for each in re.findall(_AVAL, avals))
        single = len(result_avals) == 1 and not avals.endswith(",")
        names = [name for name in named.split(", ") if name] if single else named.rstrip(",").split(", ")
        if len(names) != len(result_avals):
            raise VerifyError(f"not a node, it has {len(names)} names and {len(result_avals)} results: {line!r}")
        aval: Any = result_avals[0] if single else ResultAvals(result_avals)
        node = GraphNode(op, args, tuple(sorted(inputs.items())), aval)
        if single:
            env[names[0]] = node
            return [node]
        picked = {
            name: GraphNode(result, (node,), (("index", i),), result_avals[i])
            for i, name in enumerate(names)
            if name != "_"
        }
        env.update(picked)
        return [node, *picked.values()]

    def regions(self, indent: str) -> dict[str, Any]:
        """The regions after a node, by the name of the parameter; a tuple if they are numbered."""
        table: dict[str, Any] = {}
        while (
            self.has_more() and self.lines[self.at].startswith(indent) and self.lines[self.at][len(indent)] not in " }"
        ):
            name, graph = self.block(indent)
            base, dot, _ = name.partition(".")
            table[base] = (*table.get(base, ()), graph) if dot else graph
        return table


def _aval(dtype: str, shape: str) -> Aval:
    return Aval(tuple(int(n) for n in shape.split(",") if n), dtype_named(dtype))


def _operand(text: str, env: dict[str, GraphNode], line: str) -> Any:
    if text in env:
        return env[text]
    if text.startswith("%"):
        raise VerifyError(f"{text} is used before it is defined: {line!r}")
    return _literal(ast.parse(text, mode="eval").body)


_NAMED = {"inf": math.inf, "nan": math.nan}


def _literal(tree: Any) -> Any:
    if isinstance(tree, ast.BinOp | ast.UnaryOp | ast.Name) and (text := ast.unparse(tree)).endswith("j"):
        return complex(text.replace(" ", ""))
    match tree:
        case ast.Name(id=name) if name in _NAMED:
            return _NAMED[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_literal(operand)
        case ast.Tuple(elts=elements):
            return tuple(_literal(e) for e in elements)
        case ast.Constant(value=value) if np.isscalar(value) or value is None:
            return value
    raise VerifyError(f"not a literal: {ast.unparse(tree)}")
