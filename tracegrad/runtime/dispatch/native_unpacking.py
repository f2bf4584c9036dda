"""Unpack dicts, lists and tuples of inputs in the entry point instead of in Python.

Checking and reading the keys of a dict of parameters takes Python as long as a small program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracegrad import tree


class UnpackedContainer(NamedTuple):
    """A dict, list or tuple of inputs: its expression, its class, its keys and the numbers of its inputs, in order; and
    the Python checks of its structure, with their position among all checks."""

    text: str
    cls: type
    keys: Sequence[str]
    inputs: Sequence[int]
    check_position: int
    checks: list[str]


def in_order(structure: Any) -> list[Any]:
    """The keys of a dict with this structure, in insertion order."""
    keys, _, order = structure[1]
    return list(order or keys)


def is_flat(structure: Any) -> bool:
    """Whether this is a list, a tuple, or a dict with string keys, that contains only inputs."""
    kind, aux, children = structure
    if kind.cls is dict and not all(type(key) is str for key in aux[0]):
        return False
    flat = all(child[0] is not tree.FIXED_KIND and child[0].cls is object for child in children)
    return kind.cls in (dict, list, tuple) and len(children) > 0 and flat


def container(text: str, structure: Any, first: int, check_position: int, checks: list[str]) -> UnpackedContainer:
    """The container with this flat structure, whose inputs are numbered from `first` on in the order of sorted keys."""
    kind, aux, children = structure
    if kind.cls is not dict:
        return UnpackedContainer(text, kind.cls, (), range(first, first + len(children)), check_position, checks)
    keys = in_order(structure)
    return UnpackedContainer(text, dict, keys, [first + aux[0].index(key) for key in keys], check_position, checks)


def arranged(inputs: Sequence[str], containers: Sequence[UnpackedContainer]) -> tuple[list[str], list[int]]:
    """The expressions of the entry point's arguments, one for each container and one for each input outside; and the
    int64 words that describe the containers (`signature.ContainerLayout`), empty without containers. The words have the
    addresses of the keys."""
    inside = {i for c in containers for i in c.inputs}
    outside = [i for i in range(len(inputs)) if i not in inside]
    layout = [word for i in outside for word in (0, 1, 0, i)]
    for c in containers:
        keys = map(id, c.keys) if c.keys else [0] * len(c.inputs)
        layout += [id(c.cls), len(c.inputs), *(word for pair in zip(keys, c.inputs) for word in pair)]
    texts = [*(inputs[i] for i in outside), *(c.text for c in containers)]
    return texts, [len(texts), *layout] if containers else []
