"""The tuning constants: frozen records with units and sources, and which of them differ between kinds of CPU."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS
from tracegrad.target import cpu
from tracegrad.target.constants import CHOSEN, TuningConstant, chosen, constants, measured
from tracegrad.target.tuning import GENERIC, SAPPHIRE_RAPIDS, TUNING, ZEN, ZEN_AVX512, Tuning, tuning
from tracegrad.utils.lazy_dataclass import record

RECORDS = {name: value for name, value in vars(TUNING).items() if dataclasses.is_dataclass(value)}
AVX2 = {"avx2", "fma"}
AVX512 = {*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl"}


@pytest.mark.parametrize("each", [TUNING, *RECORDS.values()], ids=lambda x: type(x).__name__)
def test_records_are_frozen(each: Any) -> None:
    name = dataclasses.fields(each)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(each, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(each, name)


def test_all_fields_of_a_record_are_constants() -> None:
    count = sum(len(dataclasses.fields(each)) for each in RECORDS.values())
    assert count == len([*constants(TUNING)]) > 200
    assert len(dataclasses.fields(Tuning)) == 1 + len(RECORDS)  # and a name


@pytest.mark.parametrize("constant", [*constants(GENERIC)], ids=lambda x: x.name)
def test_a_constant_has_a_unit_a_source_and_a_meaning(constant: TuningConstant) -> None:
    assert re.fullmatch(r"[a-z][a-z_ -]*", constant.unit)
    assert re.fullmatch(r"\S.{10,}[^.]", constant.meaning)
    assert constant.source in {CHOSEN, *(f"python -m benchmarks {name}" for name in BENCHMARKS)}


@pytest.mark.parametrize("constant", [*constants(GENERIC)], ids=lambda x: x.name)
def test_a_constant_is_a_positive_number_or_a_table_of_such(constant: TuningConstant) -> None:
    value = constant.value
    values = [number for _, number in value] if isinstance(value, tuple) else [value]
    assert all(type(number) in (int, float) and number > 0 for number in values)


def differences(of: Tuning) -> dict[str, Any]:
    return {x.name: x.value for x, y in zip(constants(of), constants(GENERIC), strict=True) if x.value != y.value}


def test_kinds_of_cpu_differ_in_few_constants() -> None:
    products = {"blas.max_unpacked_work": 1 << 62, "blas.serial_work_of_doubles": 1 << 20}
    wide = {"vectorization.vector_bytes": 64, "vectorization.compute_vector_bytes": 64}
    assert differences(ZEN) == products
    assert differences(ZEN_AVX512) == products | wide
    assert differences(SAPPHIRE_RAPIDS) == {"vectorization.compute_vector_bytes": 64}


@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        ("znver3", AVX2, ZEN),
        ("znver4", AVX512, ZEN_AVX512),
        ("znver4", AVX2, ZEN),
        ("haswell", AVX2, GENERIC),
        ("skylake-avx512", AVX512, GENERIC),
        ("sapphirerapids", AVX512, SAPPHIRE_RAPIDS),
        ("emeraldrapids", AVX512, SAPPHIRE_RAPIDS),
        ("graniterapids", AVX2, GENERIC),
        ("apple-m1", {"neon"}, GENERIC),
    ],
)
def test_the_record_follows_from_the_name_and_the_features_of_the_cpu(
    name: str, features: set[str], expected: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", name)
    monkeypatch.setattr(cpu, "features", lambda: features)
    assert tuning() is expected


def test_declarations_are_listed_with_their_names() -> None:
    @record(frozen=True)
    class Inner:
        size: int = measured(4, "rows", "kernels", "rows of a block")
        costs: tuple[tuple[str, int], ...] = chosen((("div", 4),), "cost units", "costs of operations")

    @record(frozen=True)
    class Outer:
        name: str = "outer"
        inner: Inner = dataclasses.field(default=Inner())

    assert [*constants(Outer(inner=dataclasses.replace(Inner(), size=8)))] == [
        TuningConstant("inner.size", 8, "rows", "python -m benchmarks kernels", "rows of a block"),
        TuningConstant("inner.costs", (("div", 4),), "cost units", CHOSEN, "costs of operations"),
    ]
