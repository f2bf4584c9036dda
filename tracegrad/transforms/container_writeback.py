"""Write updates of copied argument containers back to the original containers.

A transform passes copies of containers with other leaves to the function; Python would update the originals.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from tracegrad import tree
from tracegrad.errors import UnsupportedError
from tracegrad.ops.core.dispatch import TapeCarrier, TensorCarrier
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.proxies.function_proxies import unshadowed

if TYPE_CHECKING:
    from tracegrad.typing import Array, Number


class _SharedContainers(threading.local):
    """Ids of containers that the current call on the tape may write to by more than one path."""

    containers: Collection[int] = ()


_SHARED = _SharedContainers()


@contextlib.contextmanager
def shared_by(containers: Collection[int]) -> Iterator[None]:
    """Forbid transforms to replace leaves of the containers with these ids (context manager): their copies would not
    see writes by another path."""
    before, _SHARED.containers = _SHARED.containers, containers
    try:
        yield
    finally:
        _SHARED.containers = before


def value_of(x: Array) -> Any:
    """A tape value, or a container of tape values, as plain arrays and numbers."""
    if isinstance(x, TapeCarrier) and not isinstance(x, TensorCarrier):
        value = np.asarray(x.array)[()]
        return value.item() if getattr(x, "weak", False) else value
    if tree.is_node(x) and any(isinstance(leaf, TapeCarrier) for leaf in tree.leaves(x)):
        return tree.map(value_of, x)
    return x


class _CopiedContainer(NamedTuple):
    """A container, its copy, their original contents, with the children of the copy and of the container."""

    container: Any
    copy: Any
    before: Any
    original: Any
    children: list[tuple[Any, Any]]

    @property
    def is_written(self) -> bool:
        return not _same(_contents(self.copy), self.before)


class ContainerCopies:
    """The containers of some arguments, with their copies that a function receives."""

    def __init__(self, arguments: Iterable[Any], copies: Iterable[Any]):
        self._known = [each for x, copy in zip(arguments, copies) for each in _copies(x, copy)]
        for each in self._known:
            if id(each.container) in _SHARED.containers:
                _refuse(each.container, "written to")
        trace = current_trace()
        if trace is not None:
            trace.world.containers.derived |= {id(each.copy) for each in self._known}

    def write_back(self) -> None:
        """Write changes of the copies back to the containers. Raises UnsupportedError if a container that was written
        to, or compared by identity, is also reachable without its copy."""
        trace: Any = current_trace()
        again = trace.world.containers.again if trace is not None else ()
        for each in self._known if again else ():
            if id(each.container) in again and trace.world.by_identity:
                _refuse(each.container, "compared by identity")
            if id(each.container) in again and (each.is_written or not _same(_contents(each.container), each.original)):
                _refuse(each.container, "written to")
        changed = [each for each in self._known if each.is_written]
        if not changed:
            return
        outside = {id(each.copy): each.container for each in self._known}
        for each in self._known:
            outside |= {id(child): x for x, child in each.children if id(child) not in outside}
        for each in changed:
            if sum(each.container is other.container for other in self._known) > 1:
                _refuse(each.container, "written to")
        value = value_of if trace is None and STATE.depth <= 1 else lambda x: x
        for each in changed:
            held = [(k, outside[id(x)] if id(x) in outside else value(x)) for k, x in _items(_contents(each.copy))]
            _write_contents(each.container, held)


def _refuse(x: object, problem: str) -> NoReturn:
    known = f"a {type(x).__name__} that is differentiated, and has another name or is several arguments,"
    raise UnsupportedError.everywhere(f"{known} is {problem}; pass a copy")


def _copies(x: object, copy: object) -> Iterator[_CopiedContainer]:
    if x is copy or not tree.is_node(x):
        return
    children, held = [*zip(tree.children(x), tree.children(copy))], _contents(copy)
    if held is not None:
        yield _CopiedContainer(x, copy, held, _contents(x), children)
    for child, other in children:
        yield from _copies(child, other)


def _contents(x: object) -> Any:
    """The items of a container as a list, or its items or attributes as a dict; None if it cannot be written to."""
    if isinstance(x, dict):
        return dict(x.items())
    if isinstance(x, list):
        return list(x)
    return dict(vars(x)) if hasattr(x, "__dict__") else None


def _items(held: Any) -> Sequence[tuple[Any, Any]]:
    return [*enumerate(held)] if isinstance(held, list) else [*held.items()]


def _same(now: Any, before: Any) -> bool:
    """Whether these are the same objects in the same order."""
    pairs = zip(_items(now), _items(before))
    return len(now) == len(before) and all(k == other and x is y for (k, x), (other, y) in pairs)


def _write_contents(x: object, held: list[tuple[int | str, Array | Number]]) -> None:
    """Set the contents of a container. Hooks of user classes have already run on the copy; a container proxy notes the
    writes."""
    noted = unshadowed(x) is not x
    if isinstance(x, dict):
        _write_items(x, held, type(x) if noted else OrderedDict if isinstance(x, OrderedDict) else dict)
    elif isinstance(x, list):
        _write_elements(x, held, type(x) if noted else list)
    else:
        _write_attributes(x, held, *((setattr, delattr) if noted else (object.__setattr__, object.__delattr__)))


def _write_items(x: Any, held: Sequence[tuple[Any, Any]], kind: Any) -> None:
    if [k for k, _ in held] != [*x]:
        kind.clear(x)
    for k, value in held:
        if k not in x or x[k] is not value:
            kind.__setitem__(x, k, value)


def _write_elements(x: Any, held: Sequence[tuple[Any, Any]], kind: Any) -> None:
    if len(held) != len(x):
        kind.clear(x)
        kind.extend(x, [value for _, value in held])
    for k, value in held:
        if x[k] is not value:
            kind.__setitem__(x, k, value)


def _write_attributes(x: Any, held: Sequence[tuple[Any, Any]], set_attribute: Any, delete_attribute: Any) -> None:
    for k in vars(x).keys() - dict(held).keys():
        delete_attribute(x, k)
    for k, value in held:
        if getattr(x, k, held) is not value:
            set_attribute(x, k, value)
