"""Diagram of a tape: from Tensors through `grad_fn` and `next_functions` to the leaves.

All data come from the public attributes of Tensors and nodes: `grad_fn`, `output_nr`, `next_functions`, `variable`,
`name()`, `_saved_*`. Data that the tape does not hold cannot be drawn: an operand without gradient is known only if its
value was saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tracegrad.visualization.diagram import (
    BoxLine,
    Diagram,
    DiagramBox,
    Panel,
    array_of,
    number_text,
    shape_text,
    shortened,
    value_text,
)

MAX_SAVED = 6

LEGEND = {
    "leaf": "leaf that requires grad",
    "constant": "leaf that does not",
    "op": "operation and its value",
    "result": "result",
    "seed": "where backward starts",
    "backward": "backward node, with what it saved",
    "accumulate": "accumulates into a leaf",
}


def is_tensor(x: object) -> bool:
    """Whether `x` is an array that a tape can lead back from."""
    return hasattr(x, "grad_fn") and hasattr(x, "requires_grad") and hasattr(x, "shape")


def tensors_in(x: object, name: str = "", depth: int = 4) -> Iterator[tuple[str, Any]]:
    """Yield the Tensors in `x` and its containers, with the Python expression that leads to each from `name`."""
    if is_tensor(x):
        yield name, x
    elif depth and isinstance(x, Mapping):
        for key, value in x.items():
            yield from tensors_in(value, f"{name}[{key!r}]", depth - 1)
    elif depth and isinstance(x, list | tuple):
        for i, value in enumerate(x):
            yield from tensors_in(value, f"{name}[{i}]", depth - 1)


class TensorNames:
    """User's names of Tensors: leaves by identity or by their memory, others by their nodes."""

    def __init__(self, named: Iterable[tuple[str, Any]]):
        self.of: dict[Any, str] = {}
        self.keepalive: list[Any] = []
        self.tensors: list[Any] = []
        for name, x in named:
            self.keepalive.append((x, x.grad_fn))
            self.tensors.append(x)
            for key in _identities(x):
                self.of.setdefault(key, name)

    def get(self, x: object) -> str:
        return next((self.of[key] for key in _identities(x) if key in self.of), "")


def _identities(x: object) -> Iterator[object]:
    """Yield keys; Tensors or arrays with a common key are the same."""
    yield id(x)
    node = getattr(x, "grad_fn", None)
    if node is not None:
        yield "made by", id(node), getattr(x, "output_nr", 0)
        return
    array = array_of(x)
    if array is not None and array.size:
        interface = array.__array_interface__
        yield interface["data"][0], array.shape, array.strides, array.dtype.str


class _SavedValue(NamedTuple):
    name: str
    value: Any


class _TapeReader:
    """Reader of a tape, which gives each node, leaf and constant a position."""

    def __init__(self, roots: Sequence[tuple[str, Any]], names: TensorNames, saved: bool, max_boxes: int):
        self.roots, self.names, self.show_saved, self.max_boxes = roots, names, saved, max_boxes
        self.positions: list[tuple[str, Any]] = []
        self.edges: list[tuple[int, int, int, str]] = []
        self.of: dict[Any, int] = {}
        self.values: dict[tuple[int, int], Any] = {}  # known outputs of nodes
        self.saved: dict[int, list[_SavedValue]] = {}
        self.nodes: dict[int, Any] = {}
        self.multi_output: set[int] = set()

    def read(self) -> None:
        order = self._walk()
        for x in self.names.tensors:
            self._learn(x)
        for node in order:
            position = self.of[id(node)]
            for tail, output in self._operands(node):
                kind = "" if self.positions[tail][0] == "node" else "leaf"
                self.edges.append((tail, position, output, kind))
                if output:
                    self.multi_output.add(tail)
        for name, x in self.roots:
            if x.grad_fn is None:
                self._position_of("leaf" if x.requires_grad else "constant", x, _leaf_key(x))
                continue
            output = getattr(x, "output_nr", 0)
            position = self._position_of("root", (name, x), ("root", id(x)))
            self.edges.append((self.of[id(x.grad_fn)], position, output, "root"))
            if output:
                self.multi_output.add(self.of[id(x.grad_fn)])

    def _position_of(self, kind: str, obj: object, key: object) -> int:
        if key not in self.of:
            self.of[key] = len(self.positions)
            self.positions.append((kind, obj))
            if len(self.positions) > self.max_boxes:
                raise ValueError(
                    f"the graph has more than {self.max_boxes} boxes, too many to read; visualize a part of it, "
                    f"or say how many may be drawn by max_nodes="
                )
        return self.of[key]

    def _walk(self) -> list[object]:
        """Return the backward nodes in topological order; assign their positions, and read their saved values."""
        order = []
        stack = [x.grad_fn for _, x in reversed(self.roots) if x.grad_fn is not None]
        while stack:
            node = stack.pop()
            if id(node) in self.nodes:
                continue
            self.nodes[id(node)] = node
            order.append(node)
            self._position_of("node", node, id(node))
            self.saved[id(node)] = list(_saved_by(node))
            for saved in self.saved[id(node)]:
                if saved.name == "result" and is_tensor(saved.value):
                    self.values.setdefault((id(node), getattr(saved.value, "output_nr", 0)), saved.value)
                self._learn(saved.value)
            stack += [n for n, _ in reversed(node.next_functions) if n is not None and not _ends(n)]
        for _, x in self.roots:
            self._learn(x)
        return order

    def _learn(self, x: Any) -> None:
        if isinstance(x, list | tuple):
            for each in x:
                self._learn(each)
        elif is_tensor(x) and x.grad_fn is not None:
            self.values.setdefault((id(x.grad_fn), getattr(x, "output_nr", 0)), x)

    def _operands(self, node: Any) -> Iterator[tuple[int, int]]:
        """Return the positions of the operands of the operation of `node`, and their output numbers."""
        constants = [s.value for s in self.saved[id(node)] if self._is_constant(node, s)]
        numbers = [s for s in self.saved[id(node)] if _is_setting(s) and not isinstance(s.value, bool | tuple | list)]
        for k, (before, number) in enumerate(node.next_functions):
            if before is None:
                if constants:
                    yield self._constant(constants.pop(0)), 0
                elif not numbers:
                    yield self._position_of("unknown", None, ("unknown", id(node), k)), 0
            elif _ends(before):
                yield self._position_of("leaf", before.variable, _leaf_key(before.variable)), 0
            else:
                yield self.of[id(before)], number
        for value in constants:
            yield self._constant(value), 0

    def _is_constant(self, node: object, saved: _SavedValue) -> bool:
        x = saved.value
        if saved.name.startswith(("result", "output")) or not (is_tensor(x) or array_of(x) is not None):
            return False
        return not is_tensor(x) or (x.grad_fn is None and not x.requires_grad)

    def _constant(self, x: object) -> int:
        return self._position_of("constant", x, _leaf_key(x))

    # -- boxes -------------------------------------------------------------------------------------------------------
    def forward(self) -> dict[int, DiagramBox]:
        return {i: self._forward_box(kind, obj) for i, (kind, obj) in enumerate(self.positions)}

    def _forward_box(self, kind: str, obj: Any) -> DiagramBox:
        if kind == "node":
            return self._operation(obj)
        if kind == "unknown":
            return DiagramBox("constant", "no grad", [], "an operand that needs no gradient and was not saved")
        if kind == "root":
            name, x = obj
            return DiagramBox("result", self.names.get(x) or name or "result", [_tensor_line(x)])
        name = self.names.get(obj)
        line = _tensor_line(obj)
        return DiagramBox(kind, name, [line]) if name else DiagramBox(kind, line.key + line.text, [])

    def _operation(self, node: Any) -> DiagramBox:
        lines = [BoxLine(f"{s.name} = ", shortened(str(s.value), 16)) for s in self.saved[id(node)] if _is_setting(s)][
            :2
        ]
        outputs = sorted(number for key, number in self.values if key == id(node))
        is_numbered = len(outputs) > 1 or any(outputs)
        for number in outputs[:MAX_SAVED]:
            x = self.values[id(node), number]
            name = self.names.get(x)
            value_line = _tensor_line(x)
            lines.append(
                BoxLine(
                    f"{number}: " if is_numbered else "",
                    f"{name + ' ' if name else ''}{value_line.key}{value_line.text}",
                )
            )
        return DiagramBox("op", operation_name(node.name()), lines, node.name())

    def backward(self) -> dict[int, DiagramBox]:
        table = {}
        for i, (kind, obj) in enumerate(self.positions):
            if kind == "node":
                table[i] = self._backward_node(obj)
            elif kind == "leaf":
                table[i] = self._accumulate(obj)
            elif kind == "root":
                table[i] = self._seed(*obj)
        return table

    def _backward_node(self, node: Any) -> DiagramBox:
        saved = [s for s in self.saved[id(node)] if not _is_usual(s)] if self.show_saved else []
        lines = [BoxLine(f"{s.name} ", self._saved_text(s.value)) for s in saved]
        if len(lines) > MAX_SAVED:
            lines[MAX_SAVED - 1 :] = [BoxLine(f"… {len(lines) - MAX_SAVED + 1} more")]
        return DiagramBox("backward", node.name(), lines)

    def _saved_text(self, x: object) -> str:
        if isinstance(x, list | tuple) and any(is_tensor(each) for each in x):
            return shortened(f"[{', '.join(map(self._saved_text, x))}]")
        if is_tensor(x) or array_of(x) is not None:
            name = self.names.get(x)
            return f"{name} {value_text(x)}" if name else value_text(x)
        return number_text(x) if isinstance(x, float) else shortened(str(x), 20)

    def _accumulate(self, x: object) -> DiagramBox:
        name = self.names.get(x)
        grad = getattr(x, "grad", None)
        value = "None" if grad is None else value_text(grad)
        return DiagramBox("accumulate", "AccumulateGrad", [BoxLine(f"{name}.grad " if name else "grad ", value)])

    def _seed(self, name: str, x: Any) -> DiagramBox:
        name = self.names.get(x) or name
        one = not any(n != 1 for n in x.shape)
        seed = "1.0" if one else shape_text(x.shape, _dtype(x))
        return DiagramBox("seed", f"{name}.backward()" if name else "backward()", [BoxLine("gradient ", seed)])


def _ends(node: object) -> bool:
    return hasattr(node, "variable")


def _leaf_key(x: object) -> object:
    return "leaf", list(_identities(x))[-1]


def _saved_by(node: object) -> Iterator[_SavedValue]:
    for attribute in sorted(a for a in dir(node) if a.startswith("_saved_")):
        try:
            value = getattr(node, attribute)
        except AttributeError:
            continue
        except RuntimeError:
            value = "freed"
        if value is not None:
            yield _SavedValue(attribute.removeprefix("_saved_"), value)


def _is_usual(saved: _SavedValue) -> bool:
    """Whether a saved parameter has its usual value: a factor 1, or a false `keepdim`."""
    if isinstance(saved.value, bool | int | float):
        return (saved.name, saved.value) in (("alpha", 1), ("beta", 1), ("keepdim", False))
    return False


def _is_setting(saved: _SavedValue) -> bool:
    """Whether a saved value is a parameter of the operation that belongs into the forward graph."""
    if saved.name.endswith(("sizes", "numel", "options")) or _is_usual(saved):
        return False
    return isinstance(saved.value, bool | int | float) or (
        isinstance(saved.value, tuple | list) and all(isinstance(each, int) for each in saved.value)
    )


def operation_name(node: str) -> str:
    """Return the operation that a backward node belongs to.

    >>> operation_name("LogSoftmaxBackward0"), operation_name("MyExpBackward")
    ('log_softmax', 'MyExp')
    """
    stem, mark, number = node.partition("Backward")
    if not mark or not number:
        return stem
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()


def _dtype(x: Any) -> object:
    array = array_of(x)
    return x.dtype if array is None else array.dtype


def _tensor_line(x: Any) -> BoxLine:
    kind = shape_text(x.shape, _dtype(x))
    return BoxLine(f"{kind} ", f"= {value_text(x)}") if len(x.shape) == 0 else BoxLine(kind)


def tape_diagram(
    roots: Sequence[tuple[str, object]], names: TensorNames, *, title: str, forward: bool, saved: bool, max_boxes: int
) -> Diagram:
    """Make the diagram of the operations that computed `roots`."""
    reader = _TapeReader(roots, names, saved, max_boxes)
    reader.read()
    panels = [Panel("forward", reader.forward())] if forward else []
    panels.append(Panel("backward", reader.backward(), upward=True))
    return Diagram(title, len(reader.positions), reader.edges, panels, LEGEND, reader.multi_output)
