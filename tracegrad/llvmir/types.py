"""Define the types and constants of LLVM IR. Equal types are one object (interned), compared by identity."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeAlias

if TYPE_CHECKING:
    ConstantLike: TypeAlias = "float | str | bytes | bytearray | Sequence[float | IRValue] | None"


class IRType:
    """Base class of types, with their text, which is also `str(t)`.

    >>> VectorType(IntType(64), 4)
    <4 x i64>
    >>> VectorType(IntType(64), 4) is VectorType(IntType(64), 4)
    True
    """

    __slots__ = ("_pointer", "text")
    _known: ClassVar[dict[tuple[type[IRType], object], Any]] = {}
    brackets: ClassVar[str] = "[]"  # around the elements of a constant
    text: str
    # Fields that only some kinds of types have.
    width: int
    element: IRType
    count: int
    pointee: IRType
    elements: tuple[IRType, ...]
    return_type: IRType
    args: tuple[IRType, ...]

    @classmethod
    def _one(cls, text: str, key: object = None, **fields: object) -> Self:
        """The type with this key, created at first use (interning)."""
        result: Self | None = IRType._known.get((cls, key))
        if result is None:
            result = object.__new__(cls)
            result.text = text
            for name, value in fields.items():
                setattr(result, name, value)
            result = IRType._known.setdefault((cls, key), result)
        return result

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> NoReturn:
        raise TypeError("types are compared as objects, and are not to be copied")

    def __call__(self, value: ConstantLike) -> IRConstant:
        """The constant `value` of this type."""
        return IRConstant(self, value)

    def as_pointer(self) -> PointerType:
        """The type of a pointer to a value of this type."""
        try:
            return self._pointer
        except AttributeError:
            self._pointer: PointerType = PointerType(self)
            return self._pointer


class VoidType(IRType):
    """The return type of a function without a result."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("void")


class IntType(IRType):
    """An integer of `width` bits; only instructions are signed or unsigned."""

    __slots__ = ("width",)
    width: int

    def __new__(cls, width: int) -> Self:
        return cls._one(f"i{width}", width, width=width)


class HalfType(IRType):
    """A float of 16 bits."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("half")


class FloatType(IRType):
    """A float of 32 bits."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("float")


class DoubleType(IRType):
    """A float of 64 bits."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("double")


class PointerType(IRType):
    """A pointer to a `pointee`."""

    __slots__ = ("pointee",)
    pointee: IRType

    def __new__(cls, pointee: IRType) -> Self:
        return cls._one("ptr", pointee, pointee=pointee)


class _SequentialType(IRType):
    __slots__ = ("count", "element")
    element: IRType
    count: int

    def __new__(cls, element: IRType, count: int) -> Self:
        left, right = tuple(cls.brackets)
        return cls._one(f"{left}{count} x {element.text}{right}", (element, count), element=element, count=count)


class VectorType(_SequentialType):
    """`count` values of type `element`, in a register."""

    __slots__ = ()
    brackets = "<>"


class ArrayType(_SequentialType):
    """`count` values of type `element`, in memory."""

    __slots__ = ()


class LiteralStructType(IRType):
    """An unnamed structure with one member of each of the types `elements`."""

    __slots__ = ("elements",)
    brackets = "{}"
    elements: tuple[IRType, ...]

    def __new__(cls, elements: Sequence[IRType]) -> Self:
        every = tuple(elements)
        return cls._one(f"{{ {', '.join(t.text for t in every)} }}", every, elements=every)


class FunctionType(IRType):
    """A function with parameters `args` and result `return_type`."""

    __slots__ = ("args", "return_type")
    return_type: IRType
    args: tuple[IRType, ...]

    def __new__(cls, return_type: IRType, args: Sequence[IRType]) -> Self:
        every = tuple(args)
        text = f"{return_type.text} ({', '.join(t.text for t in every)})"
        return cls._one(text, (return_type, every), return_type=return_type, args=every)


class IRValue:
    """An operand of instructions: its type, and its text `ref`.

    >>> IRConstant(FloatType(), 0.5).typed
    'float 0x3fe0000000000000'
    """

    __slots__ = ("ref", "type")

    def __init__(self, t: IRType, ref: str) -> None:
        self.type, self.ref = t, ref

    @property
    def typed(self) -> str:
        """The text of the value with its type."""
        return f"{self.type.text} {self.ref}"

    def __repr__(self) -> str:
        return f"<{self.typed}>"


class IRConstant(IRValue):
    """A constant: a number, a list of constants (or numbers) for lanes or elements, the bytes of an array, or None if
    all bits are 0."""

    __slots__ = ("constant",)
    constant: Any

    def __init__(self, t: IRType, constant: ConstantLike) -> None:
        if isinstance(constant, (list, tuple)):
            kinds = t.elements if isinstance(t, LiteralStructType) else [t.element] * len(constant)
            constant = [x if isinstance(x, IRValue) else IRConstant(kind, x) for kind, x in zip(kinds, constant)]
        self.type, self.constant = t, constant
        self.ref = str(constant) if type(constant) is int else _constant_text(t, constant)


_FLOATS = (HalfType(), FloatType(), DoubleType())


def _constant_text(t: IRType, constant: Any) -> str:
    if constant is None:
        return "null" if t.text == "ptr" else "zeroinitializer"
    if t in _FLOATS:
        return _float(t, constant)
    if isinstance(constant, list):
        left, right = tuple(t.brackets)
        return f"{left}{', '.join([x.typed for x in constant])}{right}"
    if isinstance(constant, (bytes, bytearray)):
        return 'c"{}"'.format("".join(f"\\{byte:02x}" for byte in constant))
    return str(int(constant))


def _float(t: IRType, value: float) -> str:
    """A float written by its bits; a shorter format is written as the equal double."""
    if t is not _FLOATS[-1]:
        kind = "<e" if t is _FLOATS[0] else "<f"
        value = struct.unpack(kind, struct.pack(kind, value))[0]
    return f"0x{int.from_bytes(struct.pack('<d', value), 'little'):016x}"
