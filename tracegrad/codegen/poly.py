"""Integer polynomials over named symbols: sizes, strides, indices and addresses.

Symbols are loop variables, sizes that a kernel receives at run time, and integers a kernel loads. Everything that views
do to an index (shift, scale, reverse) is a polynomial of it, so index maps compose by plain arithmetic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

__all__ = ["ONE", "ZERO", "Poly", "poly"]

Terms = frozenset[tuple[tuple[str, ...], int]]
_KEPT = 1 << 12  # results of each operation: kernels ask for the same ones again and again


class Poly:
    """A polynomial with integer coefficients; immutable, hashable, prints canonically.

    `terms` are the coefficients by monomial, in the order of print; `key` is the same as a set.

    >>> i, n = Poly.symbol("i"), Poly.symbol("n")
    >>> (i + 1) * n - i
    -1*i + n + i*n
    """

    __slots__ = ("_text", "key", "terms")

    def __init__(self, terms: dict[tuple[str, ...], int]):
        self.terms = terms if len(terms) < 2 else {m: terms[m] for m in sorted(terms, key=lambda m: (len(m), m))}
        self.key = frozenset(terms.items())
        self._text: str | None = None

    @staticmethod
    @lru_cache(_KEPT)
    def symbol(name: str) -> Poly:
        return Poly({(name,): 1})

    @staticmethod
    @lru_cache(_KEPT)
    def constant(value: int) -> Poly:
        return Poly({(): int(value)} if value else {})

    def __add__(self, other: Any) -> Poly:
        return _sum(self.key, poly(other).key)

    __radd__ = __add__

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Any) -> Poly:
        return self + -poly(other)

    def __rsub__(self, other: int) -> Poly:
        return -self + other

    def __mul__(self, other: Any) -> Poly:
        return _product(self.key, poly(other).key)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.terms == ({(): other} if other else {})
        return isinstance(other, Poly) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        if self._text is None:
            parts = []
            for monomial, c in self.terms.items():
                factors = ([] if c == 1 and monomial else [str(c)]) + list(monomial)
                parts.append("*".join(factors))
            self._text = " + ".join(parts or ["0"])
        return self._text

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
        return _coefficient(self.key, name)

    def without(self, *names: str) -> Poly:
        """The terms that do not contain any of `names`."""
        return _without(self.key, names)

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


def poly(x: Any) -> Poly:
    """`x`, an integer or a polynomial, as a polynomial."""
    return x if isinstance(x, Poly) else Poly.constant(int(x))


@lru_cache(_KEPT)
def _sum(a: Terms, b: Terms) -> Poly:
    terms = dict(a)
    for monomial, c in b:
        terms[monomial] = terms.get(monomial, 0) + c
    return Poly({m: c for m, c in terms.items() if c})


@lru_cache(_KEPT)
def _product(a: Terms, b: Terms) -> Poly:
    terms: dict[tuple[str, ...], int] = {}
    for m, c in a:
        for n, d in b:
            monomial = tuple(sorted(m + n))
            terms[monomial] = terms.get(monomial, 0) + c * d
    return Poly({m: c for m, c in terms.items() if c})


@lru_cache(_KEPT)
def _coefficient(a: Terms, name: str) -> Poly:
    return Poly({tuple([s for s in m if s != name]): c for m, c in a if name in m})


@lru_cache(_KEPT)
def _without(a: Terms, names: tuple[str, ...]) -> Poly:
    return Poly({m: c for m, c in a if not any(n in m for n in names)})


ZERO = Poly.constant(0)
ONE = Poly.constant(1)
