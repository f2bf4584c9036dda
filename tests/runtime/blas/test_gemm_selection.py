"""Which matrix products are our own: on each kind of CPU those that are faster, by sizes and layouts."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tracegrad.codegen.libs import gemm
from tracegrad.runtime.blas import parallel_gemm
from tracegrad.runtime.compile import jit
from tracegrad.runtime.threads import pool
from tracegrad.target import cpu, products
from tracegrad.target.products import gemm_policy

AVX2 = {"avx2", "fma"}
AVX512 = {*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("name", "features", "core", "expected"),
    [
        ("znver3", AVX2, "Zen", "small_or_slim"),
        ("haswell", AVX2, "Haswell", "small_or_slim"),
        ("znver4", AVX512, "SkylakeX", "packed_otherwise"),
        ("znver4", AVX512, "Haswell", "none"),  # as the user wanted: kernels that pack whatever there is
        ("sapphirerapids", AVX512, "SkylakeX", "none"),
        ("nehalem", {"sse4.2"}, "Nehalem", "none"),
    ],
)
def test_each_kind_of_cpu_has_its_rule(
    name: str, features: set[str], core: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "features", lambda: features)
    monkeypatch.setattr(cpu, "features", lambda: features)
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: name)
    assert [gemm_policy(single, core).generated for single in (False, True)] == [expected] * 2


@pytest.mark.parametrize(("name", "features"), [("znver3", AVX2), ("znver4", AVX512), ("sapphirerapids", AVX512)])
def test_small_products_in_stacks_are_ours_but_where_openblas_begins_at_once(
    name: str, features: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "features", lambda: features)
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: name)
    layouts = {"".join(letters) for letters in itertools.product("NT", repeat=2)}
    results = {letters for letters in layouts if gemm.is_small_product(16, 3, 16, letters)}
    assert results == ({"TN"} if name == "znver4" else layouts)
    assert not any(gemm.is_small_product(17, 3, 16, letters) for letters in layouts)


KINDS = {"packed_otherwise": ("znver4", AVX512), "small_or_slim": ("haswell", AVX2), "none": ("nehalem", {"sse4.2"})}


def asked(rule: str, single: bool) -> Callable[..., bool]:
    """The rule as a function of m, n, k, two letters, and alpha."""
    name, features = KINDS[rule]
    routine, dtype = ("sgemm", np.float32) if single else ("dgemm", np.float64)
    jit.define_symbol(parallel_gemm.PARALLEL_FOR, pool.parallel_for_address())
    jit.define_symbol(parallel_gemm.LIMIT, pool.limit_address())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "features", lambda: features)
        patch.setattr(cpu, "features", lambda: features)
        patch.delenv("NUMBA_CPU_NAME", raising=False)
        patch.setattr("llvmlite.binding.get_host_cpu_name", lambda: name)
        policy = gemm_policy(single, "SkylakeX")
    assert policy.generated == rule
    source = parallel_gemm.selection_source(routine, policy).replace(
        "define internal i1 @is_generated", "define i1 @is_generated"
    )
    function = ctypes.CFUNCTYPE(ctypes.c_bool, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 3)
    (address,) = jit.compile_forever(source, f"is_generated_{routine}")

    def is_own(m: int, n: int, k: int, letters: str = "NN", alpha: float = 1.0) -> bool:
        places: list[Any] = [np.array(ord(letter), np.uint8) for letter in letters]
        places.append(np.array(alpha, dtype))
        return function(address)(m, n, k, *[x.ctypes.data for x in places])

    return is_own


LARGE = [(200, 200, 200), (1000, 1000, 2), (16, 16, 4096), (64, 200, 2000), (3200, 16, 128), (2000, 2000, 2000)]


@pytest.mark.parametrize("single", [False, True])
def test_by_avx512_products_are_ours_that_openblas_would_pack(single: bool) -> None:
    is_own = asked("packed_otherwise", single)
    for sizes, a, b in itertools.product(LARGE, "NT", "NT"):
        assert is_own(*sizes, a + b)
        assert not is_own(*sizes, a + b, alpha=0.0)
    for sizes, letters in itertools.product([(8, 8, 8), (100, 100, 100), (300, 3, 1000)], ("NN", "NT", "TT")):
        assert not is_own(*sizes, letters)
    # A transposed and B not: C is large or k small.
    assert all(is_own(*sizes, "TN") for sizes in [(35, 35, 100), (8, 8, 8), (256, 256, 1), (10, 44, 3)])
    assert not any(is_own(*sizes, "TN") for sizes in [(34, 34, 100), (256, 4, 256), (1000, 3, 3)])
    # Few columns times what comes from memory, and, of floats, few rows.
    assert is_own(1200, 70, 1200)
    assert not is_own(1200, 10, 1200)
    assert is_own(1200, 10, 1200, "TN")
    assert is_own(2, 1000, 1000) is not single
    assert is_own(2, 1000, 1000, "NT")


@pytest.mark.parametrize("single", [False, True])
def test_by_avx2_small_slim_and_shallow_products_are_ours(single: bool) -> None:
    is_own = asked("small_or_slim", single)
    assert all(is_own(*sizes) for sizes in [(8, 8, 8), (100, 100, 100), (16, 2000, 2000), (1000, 1000, 32)])
    assert not any(is_own(*sizes) for sizes in [(200, 200, 200), (1000, 1000, 33), (33, 2000, 2000)])
    assert is_own(500, 64, 500) is single
    assert is_own(100, 100, 100, "NT") is not single
    assert not is_own(8, 8, 8, alpha=0.0)


def test_none_is_ours_elsewhere() -> None:
    assert not any(asked("none", single)(*sizes) for single in (False, True) for sizes in LARGE)
