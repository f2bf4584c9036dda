"""Write LLVM IR as text: types, values, and an instruction builder.

The package has the part of the language that `tracegrad.codegen` emits. Each instruction becomes a line of text when it
is built, and the text of a module is its lines, joined. llvmlite's builder is slower, because it holds mutable objects
and prints them at the end.

LLVM's pointers are opaque. Here a pointer also has the type of its pointee, which loads and address arithmetic use.
"""

from tracegrad.llvmir.builder import IRBuilder
from tracegrad.llvmir.module import BasicBlock, FunctionArgument, GlobalVariable, IRFunction, IRModule
from tracegrad.llvmir.types import (
    ArrayType,
    DoubleType,
    FloatType,
    FunctionType,
    HalfType,
    IntType,
    IRConstant,
    IRType,
    IRValue,
    LiteralStructType,
    PointerType,
    VectorType,
    VoidType,
)
from tracegrad.llvmir.values import Instruction, Phi, TextConstant

__all__ = [
    "ArrayType",
    "BasicBlock",
    "DoubleType",
    "FloatType",
    "FunctionArgument",
    "FunctionType",
    "GlobalVariable",
    "HalfType",
    "IRBuilder",
    "IRConstant",
    "IRFunction",
    "IRModule",
    "IRType",
    "IRValue",
    "Instruction",
    "IntType",
    "LiteralStructType",
    "Phi",
    "PointerType",
    "TextConstant",
    "VectorType",
    "VoidType",
]
