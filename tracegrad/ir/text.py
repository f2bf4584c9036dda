"""The text form of a graph, and its parser.

    graph   = "graph(" [value ": " aval {", " ...}] ") {" newline {"  " node} "  return " [value {", " ...}] newline "}"
    node    = value " = " op "(" [operand {", " ...}] ")" [" {" param {", " ...} "}"] " : " aval newline
    param   = name "=" python-literal
    operand = value | python-literal            value = "%" number            aval = dtype "[" [size {"," size}] "]"

Literals print as Python does, with `inf` and `nan`. `parse(to_text(g)) == g`.
"""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import numpy as np

from tracegrad.avals import Aval, dtype_named
from tracegrad.errors import VerifyError
from tracegrad.ir.graph import Graph, Node
from tracegrad.ir.printing import to_text
from tracegrad.ops.op import TABLE

__all__ = ["parse", "to_text"]


_INPUT = re.compile(r"(%\d+): (\w+)\[([\d,]*)\]")
_NODE = re.compile(r"  (%\d+) = (\w+)\((.*?)\)(?: \{(.*)\})? : (\w+)\[([\d,]*)\](?:  #.*)?")


def parse(text: str) -> Graph:
    """The graph that prints as `text`; `VerifyError` names a line that does not follow the grammar."""
    lines = text.strip().splitlines()
    if len(lines) < 3 or not lines[0].startswith("graph(") or lines[-1] != "}" or not lines[-2].startswith("  return"):
        raise VerifyError("not the text of a graph: it has no head, return line or closing brace")
    env = {name: Node(None, (), (), _aval(d, s)) for name, d, s in _INPUT.findall(lines[0])}
    inputs, nodes = tuple(env.values()), []
    for line in lines[1:-2]:
        found = _NODE.fullmatch(line)
        if found is None or found[2] not in TABLE:
            raise VerifyError(f"not a node: {line!r}")
        name, op, operands, params, dtype, shape = found.groups()
        args = tuple(_operand(x, env, line) for x in operands.split(", ") if x)
        call = ast.parse(f"f({params or ''})", mode="eval").body
        assert isinstance(call, ast.Call)
        items = tuple((str(k.arg), _literal(k.value)) for k in call.keywords)
        env[name] = Node(TABLE[op], args, items, _aval(dtype, shape))
        nodes.append(env[name])
    outputs = [x for x in lines[-2].removeprefix("  return").strip().split(", ") if x]
    return Graph(inputs, tuple(nodes), tuple(_operand(x, env, lines[-2]) for x in outputs))


def _aval(dtype: str, shape: str) -> Aval:
    return Aval(tuple(int(n) for n in shape.split(",") if n), dtype_named(dtype))


def _operand(text: str, env: dict[str, Node], line: str) -> Any:
    if text.startswith("%"):
        if text not in env:
            raise VerifyError(f"{text} is used before it is defined: {line!r}")
        return env[text]
    return _literal(ast.parse(text, mode="eval").body)


_NAMED = {"inf": math.inf, "nan": math.nan}


def _literal(tree: Any) -> Any:
    match tree:
        case ast.Name(id=name) if name in _NAMED:
            return _NAMED[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_literal(operand)
        case ast.Tuple(elts=elements):
            return tuple(_literal(e) for e in elements)
        case ast.Constant(value=value) if np.isscalar(value):
            return value
    raise VerifyError(f"not a literal: {ast.unparse(tree)}")
