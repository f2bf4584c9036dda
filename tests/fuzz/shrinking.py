"""Makes a program that fails smaller while it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

__all__ = ["shrunk"]

Program = TypeVar("Program", bound=Any)  # a dataclass with `lines`


def shrunk(program: Program, failure: Callable[[Program], str | None], **plainest: Any) -> Program:
    """The program with as few lines as fail with the kind of failure that the whole has, and the plainest attributes.

    `failure` says how a program fails, or None. Lines that a later one needs fail otherwise, so they stay.
    """
    wanted = failure(program)
    k = len(program.lines)
    while k:
        k -= 1
        smaller = replace(program, lines=program.lines[:k] + program.lines[k + 1 :])
        if smaller.lines and failure(smaller) == wanted:
            program, k = smaller, min(k, len(smaller.lines))
    plain = replace(program, **plainest)
    return plain if failure(plain) == wanted else program
