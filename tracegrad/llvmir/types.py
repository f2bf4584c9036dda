"""Types. One that is asked for again is the same object, so types are compared as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from tracegrad.llvmir.values import Constant

__all__ = [
    "ArrayType", "DoubleType", "FloatType", "FunctionType", "HalfType", "IntType", "LiteralStructType", "PointerType",
    "Type", "VectorType", "VoidType",
]  # fmt: skip


class Type:
    """What all types have: their spelling, which is also `str(t)`.

    >>> VectorType(IntType(64), 4)
    <4 x i64>
    >>> VectorType(IntType(64), 4) is VectorType(IntType(64), 4)
    True
    """

    __slots__ = ("_pointer", "text")
    _known: ClassVar[dict[Any, Any]] = {}
    brackets: ClassVar[str] = "[]"  # around the constants that a constant of the type consists of
    text: str

    @classmethod
    def _one(cls, text: str, key: Any = None, **fields: Any) -> Self:
        """The type that has this key, made with these fields when it is asked for first."""
        found: Self | None = Type._known.get((cls, key))
        if found is None:
            found = object.__new__(cls)
            found.text = text
            for name, value in fields.items():
                setattr(found, name, value)
            found = Type._known.setdefault((cls, key), found)
        return found

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> Any:
        raise TypeError("types are compared as objects, and are not to be copied")

    def __call__(self, value: Any) -> Constant:
        """The constant `value` of this type."""
        made: Constant = self._constant(self, value)
        return made

    _constant: ClassVar[Any]  # the class `Constant`, set where it is defined

    def as_pointer(self) -> PointerType:
        """The type of the address of such a value."""
        try:
            return self._pointer
        except AttributeError:
            self._pointer: PointerType = PointerType(self)
            return self._pointer


class VoidType(Type):
    """What a function gives that gives nothing."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("void")


class IntType(Type):
    """An integer of `width` bits; LLVM knows no signs of types, only of instructions."""

    __slots__ = ("width",)
    width: int

    def __new__(cls, width: int) -> Self:
        return cls._one(f"i{width}", width, width=width)


class HalfType(Type):
    """A float of 16 bits."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("half")


class FloatType(Type):
    """A float of 32 bits."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("float")


class DoubleType(Type):
    """A float of 64 bits."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return cls._one("double")


class PointerType(Type):
    """The address of a `pointee`."""

    __slots__ = ("pointee",)
    pointee: Any

    def __new__(cls, pointee: Type) -> Self:
        return cls._one("ptr", pointee, pointee=pointee)


class _Several(Type):
    __slots__ = ("count", "element")
    element: Any
    count: int

    def __new__(cls, element: Type, count: int) -> Self:
        left, right = tuple(cls.brackets)
        return cls._one(f"{left}{count} x {element.text}{right}", (element, count), element=element, count=count)


class VectorType(_Several):
    """`count` values of type `element`, in a register."""

    __slots__ = ()
    brackets = "<>"


class ArrayType(_Several):
    """`count` values of type `element`, in memory."""

    __slots__ = ()


class LiteralStructType(Type):
    """One value of each of the types in `elements`, without a name of its own."""

    __slots__ = ("elements",)
    brackets = "{}"
    elements: tuple[Any, ...]

    def __new__(cls, elements: Sequence[Type]) -> Self:
        every = tuple(elements)
        return cls._one(f"{{ {', '.join(t.text for t in every)} }}", every, elements=every)


class FunctionType(Type):
    """A function of `args` that gives a `return_type`."""

    __slots__ = ("args", "return_type")
    return_type: Any
    args: tuple[Any, ...]

    def __new__(cls, return_type: Type, args: Sequence[Type]) -> Self:
        every = tuple(args)
        text = f"{return_type.text} ({', '.join(t.text for t in every)})"
        return cls._one(text, (return_type, every), return_type=return_type, args=every)
