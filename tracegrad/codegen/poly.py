"""Integer polynomials over named symbols: sizes, strides, indices and addresses.

Symbols are loop variables, sizes that a kernel receives at run time, and integers a kernel loads. Everything that views
do to an index (shift, scale, reverse) is a polynomial of it, so index maps compose by plain arithmetic.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ONE", "ZERO", "Poly", "poly"]


class Poly:
    """A polynomial with integer coefficients; immutable, hashable, prints canonically.

    >>> i, n = Poly.symbol("i"), Poly.symbol("n")
    >>> (i + 1) * n - i
    -1*i + n + i*n
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[tuple[str, ...], int]):
        self.terms = terms
        self._hash: int | None = None

    @staticmethod
    def symbol(name: str) -> Poly:
        return Poly({(name,): 1})

    @staticmethod
    def constant(value: int) -> Poly:
        return Poly({(): value} if value else {})

    def __add__(self, other: Any) -> Poly:
        other = poly(other)
        if not other.terms:
            return self
        terms = dict(self.terms)
        for monomial, c in other.terms.items():
            total = terms.get(monomial, 0) + c
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Poly(terms)

    __radd__ = __add__

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Poly:
        return self + -poly(other)

    def __rsub__(self, other: int) -> Poly:
        return -self + other

    def __mul__(self, other: Any) -> Poly:
        factor = poly(other)
        if factor.terms == {(): 1}:
            return self
        if self.terms == {(): 1}:
            return factor
        terms: dict[tuple[str, ...], int] = {}
        for a, c in self.terms.items():
            for b, d in factor.terms.items():
                monomial = tuple(sorted(a + b))
                terms[monomial] = terms.get(monomial, 0) + c * d
        return Poly({m: c for m, c in terms.items() if c})

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.terms == ({(): other} if other else {})
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        parts = []
        for monomial, c in sorted(self.terms.items(), key=lambda t: (len(t[0]), t[0])):
            factors = ([] if c == 1 and monomial else [str(c)]) + list(monomial)
            parts.append("*".join(factors))
        return " + ".join(parts or ["0"])

    @property
    def symbols(self) -> set[str]:
        return {s for monomial in self.terms for s in monomial}

    @property
    def value(self) -> int | None:
        """The integer that this is, or None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def coefficient(self, name: str) -> Poly:
        """The factor of `name`, which occurs at most linearly."""
        terms = {}
        for monomial, c in self.terms.items():
            if name in monomial:
                terms[tuple([s for s in monomial if s != name])] = c
        return Poly(terms) if terms else ZERO

    def without(self, *names: str) -> Poly:
        """The terms that do not contain any of `names`."""
        return Poly({m: c for m, c in self.terms.items() if not any(n in m for n in names)})

    def substitute(self, values: dict[str, Poly]) -> Poly:
        """This polynomial with symbols replaced."""
        if not any(s in values for m in self.terms for s in m):
            return self
        total = ZERO
        for monomial, c in self.terms.items():
            product = Poly.constant(c)
            for s in monomial:
                product = product * values.get(s, Poly.symbol(s))
            total = total + product
        return total

    def evaluate(self, values: dict[str, int]) -> int:
        """The integer at the given values of all symbols."""
        total = 0
        for monomial, c in self.terms.items():
            for s in monomial:
                c *= values[s]
            total += c
        return total


ZERO = Poly({})
ONE = Poly({(): 1})


def poly(x: Any) -> Poly:
    """`x`, an integer or a polynomial, as a polynomial."""
    return x if isinstance(x, Poly) else Poly.constant(int(x))
