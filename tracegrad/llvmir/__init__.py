"""LLVM's language: types, values, and a builder that writes a module's text instruction by instruction.

It has of the language what `tracegrad.codegen` writes. Each instruction is a line of text as soon as it is built, and
the text of a module is its lines, joined; llvmlite's builder, which keeps objects that can be changed, and writes them
at the end, takes three times as long.

Pointers are opaque to LLVM. Here each says what it points to, which is what loads, and the steps from an element to the
next, go by.
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
