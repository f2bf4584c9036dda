"""Write the LLVM IR of a gemm that runs on threads.

    support.ll          functions that the others share
    generated_*.ll      whether the generated GEMM (`codegen.libs.gemm`) computes a product, or OpenBLAS
    tiles.ll            the gemm, which cuts a product into tiles
    syrk.ll             the product of a matrix with its own transpose
    pack_operand.ll     the copy of a first factor that OpenBLAS would read slowly

All decisions depend on the sizes, the layouts and the machine, so bits do not depend on the number of threads. If alpha
is zero the factors must not be read, so OpenBLAS is used, because the generated GEMM reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracegrad.llvmir.template import ir_template
from tracegrad.target.cache_lines import LINE
from tracegrad.target.products import GemmPolicy

_TYPES, _BYTES = {"s": "float", "d": "double"}, {"s": 4, "d": 8}
_NEVER = 1 << 62
PARALLEL_FOR, LIMIT = "tg_blas_parallel_for", "tg_blas_limit"

# The arguments of the functions that compute one tile, one tile of a SYRK, and one part of a copy.
_GEMM = ("transa", "transb", "m", "n", "k", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc")
_TILE = (
    dict.fromkeys(_GEMM, "ptr") | dict.fromkeys(("tile_height", "tile_width", "columns"), "i64") | {"routine": "ptr"}
)
_SYRK_TILE = dict.fromkeys(("transa", "transb", "m", "k", "alpha", "a", "lda", "beta", "c", "ldc"), "ptr") | {
    "edge": "i64"
}
_COPIED_PART = dict.fromkeys(("transa", "m", "k", "a", "lda", "copy", "distance"), "ptr")


def openblas(routine: str) -> str:
    """The symbol of a routine of OpenBLAS."""
    return f"tg_blas_{routine}"


def gemm_source(routine: str, policy: GemmPolicy, generated: str, mirror: str) -> str:
    """The LLVM IR of "sgemm" or "dgemm"; `generated` and `mirror` are the symbols of the generated GEMM and of the
    function of `codegen.libs.block_transpose`."""
    letter = routine[0]
    names: dict[str, str] = {"name": routine, "type": _TYPES[letter]}
    unpacked_work = policy.kernels.unpacked_work
    uses_generated = policy.generated != "none"
    tiles = ir_template(
        "runtime/blas/tiles.ll",
        **names,
        **_struct(f"%call_{routine}", _TILE),
        declare_generated=f"declare void @{generated}({', '.join(['ptr'] * len(_GEMM))})" if uses_generated else "",
        generated=f"@{generated}" if uses_generated else "null",
        openblas=f"@{openblas(routine)}",
        limit=f"@{LIMIT}",
        element_bytes=_BYTES[letter],
        immediate_work=-1 if unpacked_work is None else unpacked_work,
        unpacked_work=_NEVER if unpacked_work is None else unpacked_work,
        max_unpacked_work=policy.max_unpacked_work,
        max_small_a=policy.max_small_a,
        serial_work=policy.serial_work,
        joins_tiles=_bit(policy.kernels.joins_tiles),
        joins_rows=_bit(policy.joins_rows),
        tiles=policy.tiles,
        narrow_columns=policy.narrow_columns,
        min_tile_columns=policy.min_tile_columns,
        column_step=policy.column_step,
    )
    by_generated = policy.generated == "packed_otherwise"
    syrk = ir_template(
        "runtime/blas/syrk.ll",
        **names,
        **_struct(f"%symmetric_{routine}", _SYRK_TILE),
        by_generated=_bit(by_generated),
        routine=f"@{generated if by_generated else openblas(routine)}",
        syrk=f"@{openblas(letter + 'syrk')}",
        mirror=f"@{mirror}",
    )
    pack_operand = ir_template(
        "runtime/blas/pack_operand.ll",
        **names,
        **_struct(f"%copied_{routine}", _COPIED_PART),
        openblas=f"@{openblas(routine)}",
        copy=f"@{openblas(letter + 'omatcopy')}",
        element_bytes=_BYTES[letter],
        line_elements=LINE // _BYTES[letter],
        packed_columns=policy.packed_columns,
    )
    return selection_source(routine, policy) + tiles + syrk + pack_operand


def selection_source(routine: str, policy: GemmPolicy) -> str:
    """The LLVM IR of `support.ll`, and of the function that selects the products of the generated GEMM."""
    fields: dict[str, int | str] = {"name": routine, **policy.selection}
    if policy.generated != "none":
        fields["type"] = _TYPES[routine[0]]
    support = ir_template("runtime/blas/support.ll", parallel_for=f"@{PARALLEL_FOR}", limit=f"@{LIMIT}")
    return support + ir_template(f"runtime/blas/generated_{policy.generated}.ll", **fields)


def _bit(x: bool) -> str:
    return "true" if x else "false"


def _struct(name: str, fields: Mapping[str, str]) -> dict[str, str]:
    """A struct type of arguments, and the code by which a call stores them and by which a task loads them."""
    field_pointer = f"getelementptr {name}, ptr %call, i32 0, i32"
    store, load = [], []
    for index, (field, kind) in enumerate(fields.items()):
        store += [f"  %at_{field} = {field_pointer} {index}", f"  store {kind} %{field}, ptr %at_{field}"]
        load += [f"  %at_{field} = {field_pointer} {index}", f"  %{field} = load {kind}, ptr %at_{field}"]
    return {"types": ", ".join(fields.values()), "store": "\n".join(store), "load": "\n".join(load)}
