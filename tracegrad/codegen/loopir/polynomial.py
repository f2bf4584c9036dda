"""Represent sizes, strides, indices and addresses as integer polynomials over named symbols.

Symbols are loop variables, sizes that a kernel receives at run time, and integers that a kernel loads. Every change of
an index by a view (shift, scale, reverse) is a polynomial of the index, so index maps compose by plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from tracegrad.locks import new_lock
from tracegrad.target.tuning import TUNING

Monomial = tuple[str, ...]
_POLY_CACHE_SIZE = TUNING.caches.polynomials


class Poly:
    """An immutable polynomial with integer coefficients, with a canonical text. Equal polynomials are one object.

    `terms` are the coefficients by monomial, in print order; `symbols` are its symbols; `value` is its integer
    if it is constant, else None.

    >>> i, n = Poly.symbol("i"), Poly.symbol("n")
    >>> (i + 1) * n - i
    -1*i + n + i*n
    >>> n + i * n - i is (i + 1) * n - i
    True
    """

    __slots__ = ("__weakref__", "_text", "symbols", "terms", "value")
    terms: dict[Monomial, int]
    symbols: frozenset[str]
    value: int | None
    _text: str | None

    def __new__(cls, terms: dict[Monomial, int]) -> Poly:
        key = frozenset(terms.items())
        result = _known.get(key)
        if result is not None:
            return result
        self = object.__new__(cls)
        self.terms = terms if len(terms) < 2 else {m: terms[m] for m in sorted(terms, key=lambda m: (len(m), m))}
        self.symbols = frozenset([s for m in terms for s in m])
        self.value = 0 if not terms else terms.get(()) if len(terms) == 1 else None
        self._text = None
        with _lock:  # another thread may have created it meanwhile
            return _known.setdefault(key, self)

    @staticmethod
    @lru_cache(_POLY_CACHE_SIZE)
    def symbol(name: str) -> Poly:
        return Poly({(name,): 1})

    @staticmethod
    @lru_cache(_POLY_CACHE_SIZE)
    def constant(value: int) -> Poly:
        return Poly({(): int(value)} if value else {})

    @lru_cache(_POLY_CACHE_SIZE)  # noqa: B019 (equal instances are one object, and few exist)
    def __add__(self, other: Any) -> Poly:
        terms = dict(self.terms)
        for monomial, c in poly(other).terms.items():
            terms[monomial] = terms.get(monomial, 0) + c
        return Poly({m: c for m, c in terms.items() if c})

    __radd__ = __add__

    def __neg__(self) -> Poly:
        return self * -1

    def __sub__(self, other: Any) -> Poly:
        return self + -poly(other)

    def __rsub__(self, other: int) -> Poly:
        return -self + other

    @lru_cache(_POLY_CACHE_SIZE)  # noqa: B019
    def __mul__(self, other: Any) -> Poly:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in poly(other).terms.items():
                monomial = tuple(sorted(m + n))
                terms[monomial] = terms.get(monomial, 0) + c * d
        return Poly({m: c for m, c in terms.items() if c})

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and self.value == other)

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[object, ...]:
        return Poly, (self.terms,)

    def __repr__(self) -> str:
        if self._text is None:
            parts = []
            for monomial, c in self.terms.items():
                factors = ([] if c == 1 and monomial else [str(c)]) + list(monomial)
                parts.append("*".join(factors))
            self._text = " + ".join(parts or ["0"])
        return self._text

    @lru_cache(_POLY_CACHE_SIZE)  # noqa: B019
    def coefficient(self, name: str) -> Poly:
        """The factor of `name`, which occurs at most linearly."""
        return Poly({tuple([s for s in m if s != name]): c for m, c in self.terms.items() if name in m})

    @lru_cache(_POLY_CACHE_SIZE)  # noqa: B019
    def without(self, *names: str) -> Poly:
        """The terms that do not contain any of `names`."""
        return Poly({m: c for m, c in self.terms.items() if not any(n in m for n in names)})

    def substitute(self, values: Mapping[str, Poly]) -> Poly:
        """This polynomial with symbols replaced."""
        if self.symbols.isdisjoint(values):
            return self
        total = ZERO
        for monomial, c in self.terms.items():
            product = Poly.constant(c)
            for s in monomial:
                product = product * values.get(s, Poly.symbol(s))
            total = total + product
        return total

    def renamed(self, names: Mapping[str, str]) -> Poly:
        """This polynomial with renamed symbols."""
        if self.symbols.isdisjoint(names):
            return self
        return Poly({tuple(sorted([names.get(s, s) for s in m])): c for m, c in self.terms.items()})

    def evaluate(self, values: dict[str, int]) -> int:
        """The integer for the values of all symbols."""
        if self.value is not None:
            return self.value
        total = 0
        for monomial, c in self.terms.items():
            for s in monomial:
                c *= values[s]
            total += c
        return total


_known: WeakValueDictionary[frozenset[tuple[Monomial, int]], Poly] = WeakValueDictionary()
_lock = new_lock()


def poly(x: Poly | int) -> Poly:
    """`x`, an integer or a polynomial, as a polynomial."""
    return x if isinstance(x, Poly) else Poly.constant(int(x))


ZERO = Poly.constant(0)
ONE = Poly.constant(1)
