"""Emit integer polynomials (`polynomial.py`) as LLVM values (address arithmetic)."""

from __future__ import annotations

from typing import Protocol

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.loopir.polynomial import Poly


class _SymbolValues(Protocol):
    def __getitem__(self, name: str, /) -> ir.IRValue: ...


class PolyEmitter:
    """Emitter of integer polynomials as LLVM values. Products of sizes are computed once, before the loops."""

    def __init__(self, env: _SymbolValues):
        self.env = env

    def emit(self, b: ir.IRBuilder, p: Poly) -> ir.IRValue:
        total: ir.IRValue | None = None
        for monomial, c in sorted(p.terms.items(), key=lambda t: (len(t[0]), t[0])):
            term: ir.IRValue | None = ir.IRConstant(I64, c) if c != 1 or not monomial else None
            for s in sorted(monomial, key=lambda s: ("sk".find(s[0]) < 0, s)):  # loop-invariant factors first
                term = self.env[s] if term is None else b.mul(term, self.env[s])
            total = term if total is None else b.add(total, term)
        return ir.IRConstant(I64, 0) if total is None else total
