"""Write LLVM IR as text: types, values, and an instruction builder.

The package has the part of the language that `tracegrad.codegen` emits. Each instruction becomes a line of text when it
is built, and the text of a module is its lines, joined. llvmlite's builder is slower, because it holds mutable objects
and prints them at the end.

LLVM's pointers are opaque. Here a pointer also has the type of its pointee, which loads and address arithmetic use.
"""

from tracegrad.llvmir.builder import IRBuilder
from tracegrad.llvmir.module import Argument, Block, Function, GlobalVariable, Module
from tracegrad.llvmir.types import (
    ArrayType,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    LiteralStructType,
    PointerType,
    Type,
    VectorType,
    VoidType,
)
from tracegrad.llvmir.values import Constant, Instruction, Phi, Spelled, Value

__all__ = [
    "Argument",
    "ArrayType",
    "Block",
    "Constant",
    "DoubleType",
    "FloatType",
    "Function",
    "FunctionType",
    "GlobalVariable",
    "HalfType",
    "IRBuilder",
    "Instruction",
    "IntType",
    "LiteralStructType",
    "Module",
    "Phi",
    "PointerType",
    "Spelled",
    "Type",
    "Value",
    "VectorType",
    "VoidType",
]
