"""Affine forms of integers: a constant, and symbols with integer factors.

Two integers are equal if their forms are equal. A symbol is any hashable value: a node, the iteration number of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from tracegrad.avals import Literal
from tracegrad.ir import GraphNode
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import add, multiply, negative, subtract
from tracegrad.ops.shape.linear import fresh, full, reshape, stop_gradient

S = TypeVar("S", bound=Hashable)


class AffineForm(Generic[S]):
    """The sum of a constant and of symbols with factors, which are not 0.

    >>> n = AffineForm.symbol("n")
    >>> n.plus(AffineForm(3)).plus(n, -3)
    AffineForm(3, {'n': -2})
    >>> n.plus(AffineForm(3)).plus(n, -1) == AffineForm(3)
    True
    """

    __slots__ = ("constant", "terms")

    def __init__(self, constant: int = 0, terms: dict[S, int] | None = None) -> None:
        self.constant: int = constant
        self.terms: dict[S, int] = terms or {}

    @staticmethod
    def symbol(symbol: S, factor: int = 1, constant: int = 0) -> AffineForm[S]:
        """The form of a multiple of one symbol, and a constant."""
        return AffineForm(constant, {symbol: factor})

    def plus(self, other: AffineForm[S], factor: int = 1) -> AffineForm[S]:
        """The form of the sum of this integer and a multiple of another."""
        terms = dict(self.terms)
        for symbol, k in other.terms.items():
            terms[symbol] = terms.get(symbol, 0) + factor * k
        return AffineForm(self.constant + factor * other.constant, {s: k for s, k in terms.items() if k})

    def renamed(self, names: Mapping[S, S]) -> AffineForm[S]:
        """The form with replaced symbols."""
        form = AffineForm[S](self.constant)
        for symbol, k in self.terms.items():
            form = form.plus(AffineForm.symbol(names.get(symbol, symbol), k))
        return form

    def minus(self, other: AffineForm[S]) -> int | None:
        """The difference, if it is a constant."""
        difference = self.plus(other, -1)
        return None if difference.terms else difference.constant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineForm) and (self.constant, self.terms) == (other.constant, other.terms)

    def __hash__(self) -> int:
        return hash((self.constant, frozenset(self.terms.items())))

    def __repr__(self) -> str:
        return f"AffineForm({self.constant}, {self.terms})"


def combined(op: Op | None, forms: Sequence[AffineForm[S]]) -> AffineForm[S] | None:
    """The form of an op applied to scalars of these forms; None if it is not affine."""
    if op is add or op is subtract:
        return forms[0].plus(forms[1], 1 if op is add else -1)
    if op is negative:
        return AffineForm[S]().plus(forms[0], -1)
    if op is multiply and not all(x.terms for x in forms):
        x, y = forms if not forms[1].terms else (forms[1], forms[0])
        return AffineForm[S]().plus(x, y.constant)
    return forms[0] if op is fresh or op is stop_gradient else None


def affine_of(x: GraphNode | Literal, of_other: Callable[[GraphNode], AffineForm[S] | None]) -> AffineForm[S] | None:
    """The form of an integer of one element; `of_other` returns the forms of nodes that are not affine."""
    if not isinstance(x, GraphNode):
        return AffineForm(x) if type(x) is int else None
    if x.op is full:
        return AffineForm(int(dict(x.params)["value"]))
    if x.op in (fresh, reshape) and not x.aval.shape and not x.operands[0].aval.shape:
        return affine_of(x.inputs[0], of_other)
    if x.op in (add, subtract, multiply):
        forms = [form for y in x.inputs if (form := affine_of(y, of_other)) is not None]
        if len(forms) == len(x.inputs) and (form := combined(x.op, forms)) is not None:
            return form
    return of_other(x)
