"""Define modules and their contents: functions, basic blocks, and global variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from tracegrad.llvmir.types import FunctionType, IntType, IRConstant, IRType, IRValue, PointerType, VectorType
from tracegrad.llvmir.values import Instruction, Phi

_LETTERS = {"half": "f16", "float": "f32", "double": "f64"}
_PLAIN = re.compile(r"[A-Za-z$._][-\w$.]*\Z", re.ASCII)


def _quoted(name: str) -> str:
    """A name as it is written after `@` or `%`, quoted if necessary."""
    if _PLAIN.match(name):
        return name
    return '"{}"'.format("".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02x}" for c in name.encode()))


class Metadata:
    """A numbered metadata node of a module."""

    __slots__ = ("ref",)

    def __init__(self, ref: str) -> None:
        self.ref = ref


class IRModule:
    """A module, whose text is `str(module)`. The compiler sets its triple and data layout.

    >>> module = IRModule("twice")
    >>> function = IRFunction(module, FunctionType(IntType(64), [IntType(64)]), "f")
    >>> print(module)
    ; ModuleID = 'twice'
    declare i64 @f(i64 %.a0)
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.globals: dict[str, Any] = {}
        self._metadata: list[str] = []
        self._nodes: dict[str, Metadata] = {}

    @property
    def functions(self) -> list[IRFunction]:
        """The functions, in the order of their creation."""
        return [x for x in self.globals.values() if isinstance(x, IRFunction)]

    def get_unique_name(self, name: str) -> str:
        """`name`, with a number appended if it is already used."""
        if name not in self.globals:
            return name
        return next(each for k in count(1) if (each := f"{name}.{k}") not in self.globals)

    def add_metadata(self, operands: Sequence[str | Metadata | IRValue]) -> Metadata:
        """The metadata node with the operands `operands`: words, constants, other nodes."""
        text = ", ".join(map(_operand, operands))
        result = self._nodes.get(text)
        if result is None:
            result = self._nodes[text] = self._node(f"!{{ {text} }}")
        return result

    def loop_id(self, hints: Sequence[Sequence[str | Metadata | IRValue]]) -> Metadata:
        """A distinct metadata node for one loop, with one operand per hint; its first operand is itself."""
        others = [self.add_metadata(hint).ref for hint in hints]
        return self._node(f"distinct !{{ {', '.join([f'!{len(self._metadata)}', *others])} }}")

    def _node(self, text: str) -> Metadata:
        ref = f"!{len(self._metadata)}"
        self._metadata.append(f"{ref} = {text}")
        return Metadata(ref)

    def declared(self, name: str, t: FunctionType) -> IRFunction:
        """The function of this name, declared at first use."""
        return self.globals.get(name) or IRFunction(self, t, name)

    def intrinsic(self, name: str, types: Sequence[IRType], result: IRType, args: Sequence[IRType]) -> IRFunction:
        """The intrinsic `llvm.<name>` overloaded for `types`.

        >>> pair = VectorType(IntType(64), 2)
        >>> IRModule().intrinsic("vector.reduce.add", [pair], IntType(64), [pair])
        <ptr @llvm.vector.reduce.add.v2i64>
        """
        return self.declared(".".join([f"llvm.{name}", *map(_mangled, types)]), FunctionType(result, args))

    def __str__(self) -> str:
        lines = [f"; ModuleID = '{self.name}'"]
        for each in self.globals.values():
            lines += each.lines()
        return "\n".join([*lines, *self._metadata])


def _mangled(t: IRType) -> str:
    if isinstance(t, VectorType):
        return f"v{t.count}{_mangled(t.element)}"
    if isinstance(t, PointerType):
        return "p0"
    return f"i{t.width}" if isinstance(t, IntType) else _LETTERS[t.text]


def _operand(x: str | Metadata | IRValue) -> str:
    if isinstance(x, str):
        return f'!"{x}"'
    return x.ref if isinstance(x, Metadata) else x.typed


class _GlobalValue(IRValue):
    """A named global of a module; its value is its address."""

    __slots__ = ("linkage", "module", "name")

    def __init__(self, module: IRModule, t: IRType, name: str) -> None:
        if name in module.globals:
            raise ValueError(f"the module has a {name!r}")
        super().__init__(t.as_pointer(), f"@{_quoted(name)}")
        self.module, self.name, self.linkage = module, name, ""
        module.globals[name] = self

    def lines(self) -> Iterator[str]:
        """The text lines of the definition or declaration."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines())


class GlobalVariable(_GlobalValue):
    """A global variable; a declaration until it has an `initializer`."""

    __slots__ = ("global_constant", "initializer", "section", "value_type")

    def __init__(self, module: IRModule, t: IRType, name: str) -> None:
        super().__init__(module, t, name)
        self.value_type, self.global_constant, self.section = t, False, ""
        self.initializer: IRConstant | None = None

    def lines(self) -> Iterator[str]:
        """The text lines of the definition or declaration."""
        linkage = self.linkage or ("" if self.initializer else "external")
        kind = "constant" if self.global_constant else "global"
        tokens = [self.ref, "=", linkage, kind, self.value_type.text, self.initializer.ref if self.initializer else ""]
        yield " ".join(filter(None, tokens)) + (f', section "{self.section}"' if self.section else "")


class FunctionArgument(IRValue):
    """An argument of a function."""

    __slots__ = ("attributes",)

    def __init__(self, t: IRType, ref: str) -> None:
        super().__init__(t, ref)
        self.attributes: list[str] = []

    def add_attribute(self, name: str) -> None:
        """Add a parameter attribute, such as `noalias`."""
        self.attributes.append(name)

    def declared(self) -> str:
        """The argument as written in the function header."""
        return " ".join([self.type.text, *self.attributes, self.ref])


class IRFunction(_GlobalValue):
    """A function; a declaration until it has blocks."""

    __slots__ = ("_labels", "args", "attributes", "blocks", "function_type", "names")

    def __init__(self, module: IRModule, t: FunctionType, name: str) -> None:
        super().__init__(module, t, name)
        self.function_type = t
        self.args: tuple[Any, ...] = tuple(FunctionArgument(kind, f"%.a{k}") for k, kind in enumerate(t.args))
        self.attributes: set[str] = set()
        self.blocks: list[BasicBlock] = []
        self.names = count()  # the numbers of values
        self._labels: dict[str, int] = {}  # labels of blocks, and the number of labels derived from each

    @property
    def is_declaration(self) -> bool:
        """Whether the function is defined elsewhere."""
        return not self.blocks

    @property
    def entry_basic_block(self) -> BasicBlock:
        """The entry block."""
        return self.blocks[0]

    def append_basic_block(self, name: str = "block") -> BasicBlock:
        """Append a new block, with a unique name derived from `name`."""
        label = name
        while label in self._labels:
            self._labels[name] += 1
            label = f"{name}.{self._labels[name]}"
        self._labels[label] = 0
        block = BasicBlock(self, label)
        self.blocks.append(block)
        return block

    def lines(self) -> Iterator[str]:
        """The text lines of the definition or declaration."""
        args = ", ".join(each.declared() for each in self.args)
        tokens = ["declare" if self.is_declaration else "define", self.linkage, self.function_type.return_type.text]
        tokens += [f"{self.ref}({args})", *sorted(self.attributes)]
        yield " ".join(filter(None, tokens)) + (" {" if self.blocks else "")
        for block in self.blocks:
            yield f"{block.label}:"
            yield from map(str, block.phis)
            yield from [each.line for each in block.body]
            if block.terminator is not None:
                yield str(block.terminator)
        if self.blocks:
            yield "}"


class BasicBlock:
    """A basic block: instructions and a terminator."""

    __slots__ = ("body", "function", "label", "phis", "ref", "terminator")

    def __init__(self, function: IRFunction, name: str) -> None:
        self.function, self.label = function, _quoted(name)
        self.ref = f"%{self.label}"
        self.phis: list[Phi] = []
        self.body: list[Instruction] = []
        self.terminator: Instruction | None = None

    @property
    def is_terminated(self) -> bool:
        """Whether the block has a terminator."""
        return self.terminator is not None
