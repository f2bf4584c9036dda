"""Visualization of graphs: pictures of a computation, and of its backward pass.

A picture is an SVG, laid out and written here: no other package is necessary to see it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tracegrad import tree
from tracegrad.cpython.frames import frame_at, local_variables
from tracegrad.errors import UnsupportedError, located
from tracegrad.traced_function import Traced
from tracegrad.visualization.diagram import Diagram
from tracegrad.visualization.graph import fusion_groups, graph_diagram
from tracegrad.visualization.svg import render
from tracegrad.visualization.tape import TensorNames, is_tensor, tape_diagram, tensors_in

__all__ = ["Picture", "visualize"]

_DERIVED = ("grad(", "value_and_grad(", "vjp(")


class Picture:
    """SVG picture: `svg` is its text, `width` and `height` are in pixels; notebooks display it."""

    def __init__(self, diagram: Diagram, direction: str):
        self.title = diagram.title
        self.svg, self.width, self.height = render(diagram, direction)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the SVG to a file whose name ends in `.svg`; ValueError otherwise."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ValueError(located(f"a picture is an SVG: save it as {path.stem}.svg, not as {path.name}"))
        path.write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Picture of {self.title}, {self.width:.0f} x {self.height:.0f}; .save('graph.svg') writes it>"


def visualize(
    x: object,
    *args: object,
    names: Mapping[str, object] | None = None,
    forward: bool = True,
    saved: bool = True,
    direction: str = "down",
    title: str = "",
    max_nodes: int = 1000,
    fused: bool = False,
    **kwargs: object,
) -> Picture:
    """Draw the graph of a Tensor, of several Tensors in a tuple, list or dict, or of a function.

    Parameters
    ----------
    x : Tensor, container of Tensors, or callable
        Object to draw.
    *args
        Arguments of the function.
    names : mapping of str to Tensor, optional
        Names of Tensors. The default is the names of the caller's variables.
    forward : bool
        Whether to draw the forward graph. Without it, only the backward graph is drawn.
    saved : bool
        Whether to draw saved values.
    direction : {"down", "right"}
        Direction of the levels.
    title : str
        Title of the picture.
    max_nodes : int
        Largest number of boxes.
    fused : bool
        Whether to draw the graph of a function after the passes, with one colour for each kernel. The legend names the
        steps of `explain`. A loop is one box, and its body is a panel next to it.
    **kwargs
        Keyword arguments of the function.

    Returns
    -------
    Picture
        For Tensors: the operations that computed them, and the backward nodes with their saved values. For a traced
        function of arrays: the graph that the compiler starts from.

    Raises
    ------
    ValueError
        If there are more than `max_nodes` boxes, or the direction is unknown.
    TypeError
        If `x` is neither a Tensor nor a function.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> w = tensor([1.0, 2.0], requires_grad=True)
    >>> picture = visualize((w * w).sum())
    >>> "MulBackward0" in picture.svg, "w.grad" in picture.svg
    (True, True)
    """
    if direction not in ("down", "right"):
        raise ValueError(located(f"direction is 'down' or 'right', got {direction!r}"))
    known = list(tensors_in(dict(names), "")) if names else []
    known = [(name[2:-2], t) for name, t in known]
    if callable(x) and not is_tensor(x):
        if fused:
            return Picture(_of_program(x, args, kwargs, title, max_nodes), direction)
        return Picture(_of_function(x, args, kwargs, known, forward, saved, title, max_nodes), direction)
    if fused:
        raise TypeError(located("fused is for a function, which is compiled"))
    if args or kwargs:
        raise TypeError(located("only a function is drawn with arguments"))
    roots = list(tensors_in(x))
    if not roots:
        raise TypeError(located(f"visualize takes a Tensor, several of them, or a function; got {type(x).__name__}"))
    caller = frame_at(1)
    for space in (local_variables(caller), caller.f_globals):
        for name, value in list(space.items()):
            if not name.startswith("_"):
                known += tensors_in(value, name)
    title = title or ", ".join(filter(None, (TensorNames(known).get(t) for _, t in roots))) or "tape"
    diagram = tape_diagram(roots, TensorNames(known), title=title, forward=forward, saved=saved, max_boxes=max_nodes)
    return Picture(diagram, direction)


def _of_function(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    known: list[tuple[str, object]],
    forward: bool,
    saved: bool,
    title: str,
    max_boxes: int,
) -> Diagram:
    """Make the diagram of a call: the tape of its result if there is one, else the graph of the function."""
    name: str = getattr(function, "name", "") or getattr(function, "__name__", type(function).__name__)
    inputs = _arguments(function, args, kwargs)
    tensors = [pair for key, value in inputs.items() for pair in tensors_in(value, key)]
    known += _read_by(inspect.unwrap(function))
    if tensors or not isinstance(function, Traced):
        roots = [(n, t) for n, t in tensors_in(function(*args, **kwargs)) if t.requires_grad]
        if roots:
            names = TensorNames([*known, *tensors])
            return tape_diagram(roots, names, title=title or name, forward=forward, saved=saved, max_boxes=max_boxes)
    traced = function if isinstance(function, Traced) else Traced(function)
    leaves = [path for key, value in inputs.items() for path in tree.paths(tree.structure(value), key)]
    derived = name.startswith(_DERIVED)
    return graph_diagram(
        traced.graph(*args, **kwargs), leaves, title=title or name, derived=derived, max_boxes=max_boxes
    )


def _of_program(function: Callable[..., object], args: Any, kwargs: Any, title: str, max_boxes: int) -> Diagram:
    """Make the diagram of the compiled program of a call; UnsupportedError if there is no program."""
    traced = function if isinstance(function, Traced) else Traced(function)
    call = traced.binder.bind_checked(args, kwargs)
    path, *_ = traced.find_in_full(call)
    result = getattr(getattr(path.program, "report", None), "plan", None)
    if result is None:
        raise UnsupportedError(located(f"{traced.name}: no program computes this call; `explain` tells why"))
    names = path.trace.input_names(traced.binder.leaf_names(call))
    graph, groups = result.graph.named(names), fusion_groups(result)
    arg_names = names[: len(call.leaves)]
    return graph_diagram(
        graph, arg_names, title=title or traced.name, derived=False, max_boxes=max_boxes, groups=groups
    )


def _read_by(function: object) -> list[tuple[str, object]]:
    """Return the Tensors that a function reads from outside, by their names."""
    if not inspect.isfunction(function):
        return []
    read = inspect.getclosurevars(function)
    spaces = {**read.globals, **read.nonlocals}
    return [pair for key, value in spaces.items() for pair in tensors_in(value, key)]


def _arguments(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments by the names of the parameters."""
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {**{f"argument {i}": value for i, value in enumerate(args)}, **kwargs}
