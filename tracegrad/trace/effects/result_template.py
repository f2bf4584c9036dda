"""Templates of results and effects, filled with the outputs of the compiled program.

A template is a tree of pieces. `make(Filling(outputs, tensor))` fills it. `text(code)` is Python code that does the
same; `code.name(x)` names an object and `code.output(k)` names an output. `tensor(array, root)` makes a Tensor from an
output. An object that occurs several times (`SharedTemplate`) is made at its first occurrence; later occurrences use
its name.

Each call makes new containers and new objects of user classes, if the function made them. An object from outside is
returned itself, read from its source again.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tracegrad.ops.core.memory_order import stand_in
from tracegrad.trace.rewriting.call_sites import unmarked
from tracegrad.trace.sources.sources import Source
from tracegrad.tree.registry import NodeKind

Outputs = Sequence[Any]
ToTensor = Callable[[Any, int], Any]


class Filling:
    """The outputs of one call, and the objects made from them so far."""

    __slots__ = ("instances", "outputs", "tensor")

    def __init__(self, outputs: Outputs, tensor: ToTensor):
        self.outputs, self.tensor = outputs, tensor
        self.instances: dict[Any, Any] = {}


class TemplateCode(Protocol):
    """Python code of a call, in which a template is a part."""

    local_names: dict[Any, str]  # of shared templates

    def output(self, position: int) -> str:
        """The expression of an output of the program."""

    def name(self, x: object) -> str:
        """The name of an object."""


class ResultTemplate:
    """A part of a template."""

    __slots__ = ()

    def make(self, filling: Filling) -> Any:
        raise NotImplementedError

    def text(self, code: TemplateCode) -> str:
        raise NotImplementedError


class Output(ResultTemplate):
    """The output of the program at `position`, as a Python number of type `kind` if that is not None; with its `axes`
    in this order if that is not None."""

    __slots__ = ("axes", "kind", "position")

    def __init__(self, position: int, kind: Any = None, axes: tuple[int, ...] | None = None):
        self.position, self.kind, self.axes = position, kind, axes

    def make(self, filling: Filling) -> Any:
        result = filling.outputs[self.position]
        if self.axes is not None:
            return result.transpose(self.axes)
        return result if self.kind is None else self.kind(result)

    def text(self, code: TemplateCode) -> str:
        result = code.output(self.position)
        if self.axes is not None:
            return f"{result}.transpose({self.axes})"
        return result if self.kind is None else f"{self.kind.__name__}({result})"


class EitherOutput(ResultTemplate):
    """The float at `position`: a Python float if the output at `python` is true, else an `np.float64`."""

    __slots__ = ("position", "python")

    def __init__(self, position: int, python: int):
        self.position, self.python = position, python

    def make(self, filling: Filling) -> Any:
        result = filling.outputs[self.position]
        return float(result) if filling.outputs[self.python] else np.float64(result)

    def text(self, code: TemplateCode) -> str:
        result = code.output(self.position)
        return f"(float({result}) if {code.output(self.python)} else {code.name(np.float64)}({result}))"


class TensorOutput(ResultTemplate):
    """A Tensor of the output at `position`; `root` is its number among the Tensors with a derivative, or -1."""

    __slots__ = ("position", "root")

    def __init__(self, position: int, root: int):
        self.position, self.root = position, root

    def make(self, filling: Filling) -> Any:
        return filling.tensor(filling.outputs[self.position], self.root)

    def text(self, code: TemplateCode) -> str:
        return f"tensor({code.output(self.position)}, {self.root}, node)"


class SourceTemplate(ResultTemplate):
    """The object that a source leads to."""

    __slots__ = ("source",)

    def __init__(self, source: Source):
        self.source = source

    def make(self, filling: Filling) -> Any:
        return self.source.read()

    def text(self, code: TemplateCode) -> str:
        return self.source.text(code.name)


class ViewTemplate(ResultTemplate):
    """A view of the array that `base` makes: its shape, dtype, first byte in the base, and strides. `moves` are
    computed positions, each with the number of bytes by which one step moves the view."""

    __slots__ = ("base", "layout", "moves", "writeable")

    def __init__(
        self,
        base: ResultTemplate,
        layout: tuple[Any, ...],
        writeable: bool,
        moves: Sequence[tuple[ResultTemplate, int]] = (),
    ):
        if 0 in layout[0]:  # an empty view may begin anywhere
            layout = (*layout[:2], 0, None)
        self.base, self.layout, self.writeable, self.moves = base, layout, writeable, tuple(moves)

    def make(self, filling: Filling) -> Any:
        return self._of(self.base.make(filling), *[index.make(filling) for index, _ in self.moves])

    def text(self, code: TemplateCode) -> str:
        texts = [self.base.text(code), *(index.text(code) for index, _ in self.moves)]
        return f"{code.name(self._of)}({', '.join(texts)})"

    def _of(self, base: Any, *indices: Any) -> Any:
        shape, dtype, offset, strides = self.layout
        for index, (_, stride) in zip(indices, self.moves):
            offset += int(index) * stride
        if base.flags.forc:
            result = np.ndarray(shape, dtype, base, offset, strides)
        else:
            address = base.__array_interface__["data"][0] + offset
            result = stand_in(shape, dtype, strides, address, base)
        if not self.writeable or not base.flags.writeable:
            result.flags.writeable = False
        return result


class ConstantTemplate(ResultTemplate):
    """An object that is the same in every call."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def make(self, filling: Filling) -> Any:
        return self.value

    def text(self, code: TemplateCode) -> str:
        return "None" if self.value is None else code.name(self.value)


def in_iteration(kind: NodeKind, aux: Any, count: int) -> Sequence[int]:
    """The numbers of the children of a container, in its iteration order."""
    if kind.cls is not dict or aux[2] is None:
        return range(count)
    positions = {key: i for i, key in enumerate(aux[0])}
    return [positions[key] for key in aux[2]]


class ContainerTemplate(ResultTemplate):
    """A container with these parts, which are made in its iteration order."""

    __slots__ = ("aux", "children", "kind")

    def __init__(self, kind: NodeKind, aux: Any, children: Sequence[ResultTemplate]):
        self.kind, self.aux, self.children = kind, aux, children

    def make(self, filling: Filling) -> Any:
        results: list[Any] = [None] * len(self.children)
        for i in in_iteration(self.kind, self.aux, len(self.children)):
            results[i] = self.children[i].make(filling)
        return self.kind.unflatten(self.aux, results)

    def text(self, code: TemplateCode) -> str:
        cls, iterations = self.kind.cls, in_iteration(self.kind, self.aux, len(self.children))
        texts = [self.children[i].text(code) for i in iterations]
        if cls is type(None):
            return "None"
        if cls is list:
            return f"[{', '.join(texts)}]"
        tuple_text = f"({''.join(p + ', ' for p in texts)})"
        if cls is tuple:
            return tuple_text
        if cls is dict and all(type(k) in (str, int) for k in self.aux[0]):
            return "{" + ", ".join(f"{self.aux[0][i]!r}: {text}" for i, text in zip(iterations, texts)) + "}"
        if cls is dict:
            keys = tuple([self.aux[0][i] for i in iterations])
            return f"dict(zip({code.name(keys)}, {tuple_text}))"
        return f"{code.name(self.kind.unflatten)}({code.name(self.aux)}, {tuple_text})"


class SharedTemplate(ResultTemplate):
    """The object of `template`, made once per call; `again` says whether the template contains it several times."""

    __slots__ = ("again", "template")

    def __init__(self, template: ResultTemplate):
        self.template, self.again = template, False

    def make(self, filling: Filling) -> Any:
        if self not in filling.instances:
            filling.instances[self] = self.template.make(filling)
        return filling.instances[self]

    def text(self, code: TemplateCode) -> str:
        if not self.again:
            return self.template.text(code)
        known = code.local_names.get(self)
        if known is None:
            text = self.template.text(code)
            result = code.local_names[self] = f"shared_{len(code.local_names)}"
            return f"({result} := {text})"
        return known


class Instance(ResultTemplate):
    """A new object of a user class with these attributes, made without a call of its `__init__`."""

    __slots__ = ("cls", "names", "values")

    def __init__(self, cls: type, names: Sequence[str], values: Sequence[ResultTemplate]):
        self.cls, self.names, self.values = cls, tuple(names), values

    def make(self, filling: Filling) -> Any:
        return self._filled([x.make(filling) for x in self.values])

    def text(self, code: TemplateCode) -> str:
        return f"{code.name(self._filled)}(({''.join(x.text(code) + ', ' for x in self.values)}))"

    def _filled(self, values: Sequence[object]) -> Any:
        result: Any = object.__new__(self.cls)
        for name, value in zip(self.names, values):
            object.__setattr__(result, name, value)
        return result


class Closure(ResultTemplate):
    """A new function with the code of `like` and these globals; the parts are its closure, its defaults, its keyword
    defaults and its attributes."""

    __slots__ = ("code", "fields", "like", "space")

    def __init__(self, like: types.FunctionType, space: dict[str, Any], fields: Sequence[ResultTemplate]):
        self.like, self.space, self.fields = like, space, fields
        self.code = unmarked(like.__code__)

    def make(self, filling: Filling) -> Any:
        return self._filled(*[x.make(filling) for x in self.fields])

    def text(self, code: TemplateCode) -> str:
        return f"{code.name(self._filled)}({', '.join(x.text(code) for x in self.fields)})"

    def _filled(self, held: Any, defaults: Any, keywords: Any, attributes: Any) -> Any:
        like = self.like
        cells = tuple([types.CellType(x) for x in held])
        result = types.FunctionType(self.code, self.space, like.__name__, defaults, cells)
        result.__kwdefaults__, result.__qualname__, result.__doc__ = keywords, like.__qualname__, like.__doc__
        result.__dict__.update(attributes)
        return result


class CallTemplate(ResultTemplate):
    """The result of a function applied to the parts: a bound method, a partial function."""

    __slots__ = ("args", "function")

    def __init__(self, result: Callable[..., Any], args: Sequence[ResultTemplate]):
        self.function, self.args = result, args

    def make(self, filling: Filling) -> Any:
        return self.function(*[x.make(filling) for x in self.args])

    def text(self, code: TemplateCode) -> str:
        return f"{code.name(self.function)}({', '.join(x.text(code) for x in self.args)})"


def attributes(x: object) -> dict[str, Any]:
    """The attributes stored in an object of a user class itself, including slots."""
    table = dict(getattr(x, "__dict__", ()))
    for cls in type(x).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                table[name] = getattr(x, name)
    return table
