"""Declare tuning constants: fields of frozen records, each with its unit, its source and its meaning.

Another value of a tuning constant changes the speed or the memory of a program, and at most the order of a sum, whose
last digits depend on it. Limits of correctness, and facts about formats and ABIs, are no tuning constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

CHOSEN = "chosen, not measured"


class TuningConstant(NamedTuple):
    """A field of a record: its name in the record, as `gemm.block_bytes`, and what its declaration says."""

    name: str
    value: Any
    unit: str
    source: str  # the command that measures what the constant changes, or `CHOSEN`
    meaning: str


def measured(value: T, unit: str, benchmark: str, meaning: str) -> T:
    """A constant whose effect a benchmark measures: `python -m benchmarks` and its name."""
    return _constant(value, unit, f"python -m benchmarks {benchmark}", meaning)


def chosen(value: T, unit: str, meaning: str) -> T:
    """A constant whose effect no benchmark measures: a limit, or an estimate."""
    return _constant(value, unit, CHOSEN, meaning)


def _constant(value: T, unit: str, source: str, meaning: str) -> T:
    return field(default=value, metadata={"unit": unit, "source": source, "meaning": meaning})


def constants(record: Any, prefix: str = "") -> Iterator[TuningConstant]:
    """The constants of a record and of the records in it.

    >>> from tracegrad.target.libraries import GemmBlocking
    >>> next(constants(GemmBlocking(), "gemm."))[:4]
    ('gemm.max_batched_size', 16, 'rows', 'python -m benchmarks products')
    """
    for each in fields(record):
        name, value = f"{prefix}{each.name}", getattr(record, each.name)
        if is_dataclass(value):
            yield from constants(value, f"{name}.")
        elif each.metadata:
            yield TuningConstant(name, value, **each.metadata)
