"""Draw random numbers for examples (`vmap`): the same ones for all, or others for each.

The enclosing trace draws once, for all examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True, slots=True)
class ExampleDraws:
    """The meaning of random draws for a batch of `size` examples.

    They are refused ("error"), or give the `same` or `different` numbers for all examples. With "" an error says how to
    do without.
    """

    randomness: str = ""
    size: int = 1


# The position of the size among the arguments of a method.
_SIZES = {
    "integers": 2,
    "normal": 2,
    "random": 0,
    "random_sample": 0,
    "standard_exponential": 0,
    "standard_normal": 0,
    "uniform": 2,
}


def of_examples(
    method: str, args: Sequence[Any], kwargs: dict[str, Any], sizes: tuple[int, ...]
) -> tuple[str, Sequence[Any], dict[str, Any]]:
    """Return the method and the arguments that draw for examples, which are leading axes of these sizes.

    >>> of_examples("standard_normal", ((2,),), {}, (5,))
    ('standard_normal', ((5, 2),), {})
    """
    if method == "permutation" and len(args) == 1 and type(args[0]) is int:
        return "permuted", (np.tile(np.arange(args[0]), (*sizes, 1)),), {"axis": -1}
    position = _SIZES.get(method, len(args))
    size = kwargs.get("size", args[position] if position < len(args) else None)
    if size is None:
        text = f"{method} in vmap(..., randomness='different') draws other numbers for each example only by its size"
        raise UnsupportedError(located(f"{text}; draw outside of it and pass the array"))
    whole = (*sizes, *size) if isinstance(size, tuple | list) else (*sizes, size)
    if "size" in kwargs:
        return method, args, kwargs | {"size": whole}
    return method, (*args[:position], whole, *args[position + 1 :]), kwargs
