"""The table of program instructions: for each its name and its operands.

The encoder (`encode.py`), the LLVM IR of the instructions (`instructions.ll`, `fill.ll`, `strip_fusion.py`, `libs`) and
the table in the README follow from it.
"""

from __future__ import annotations

from tracegrad.codegen.instr.operands import OperandLayout, location, rest, word
from tracegrad.codegen.libs.linear_algebra import NATIVE
from tracegrad.codegen.libs.native_call import NATIVE_CALL
from tracegrad.codegen.libs.recursive_factorizations import LAPACK_CALL
from tracegrad.codegen.libs.sorting import ORDERING

STEP = "tg_step."  # the names of the functions begin with it, except that of the loop over instructions

PROGRAM = OperandLayout(
    word("count", "instructions"),
    rest("instructions", "for each its size and its function, then its operands"),
)
INSTRUCTION = OperandLayout(
    word("size", "words of its operands"),
    word("function", "address of its function"),
    rest("operands", "its operands"),
)
FILL = OperandLayout(
    location("target", "the array"),
    word("value", "bits of a number"),
    word("count", "elements"),
)
COPY = OperandLayout(
    location("target", "the copy"),
    location("source", "the original"),
    word("bytes", "bytes"),
)
CHECK = OperandLayout(
    location("condition", "a boolean: the program fails if it is false"),
)
CALL = OperandLayout(
    word("callback", "address of a function of Python"),
    word("number", "number of the call"),
    word("count", "arrays"),
    rest("arrays", "their locations"),
)
MATMUL = OperandLayout(
    word("routine", "address of the gemm"),
    word("count", "products"),
    word("chunk_count", "products of a chunk"),
    word("chunks", "chunks"),
    word("each_chunk", "address of a function of `EACH_CHUNK` if there are several chunks"),
    word("run", "products of a run"),
    location("a", "the first factor, in column-major order"),
    word("a_run_stride", "bytes to the factor of the next run"),
    word("a_stride", "bytes to the factor of the next product"),
    location("b", "the second factor"),
    word("b_run_stride", "as of the first"),
    word("b_stride", "as of the first"),
    location("c", "the result"),
    word("c_run_stride", "as of the first"),
    word("c_stride", "as of the first"),
    word("transa", "letter N or T"),
    word("transb", "letter N or T"),
    word("height", "rows of the result"),
    word("width", "columns of the result"),
    word("depth", "terms"),
    word("lda", "leading dimension of the first factor"),
    word("ldb", "leading dimension of the second factor"),
    word("ldc", "leading dimension of the result"),
    word("alpha", "bits of the factor of the product"),
    word("beta", "bits of the factor of what the result contains"),
)
FORK = OperandLayout(
    word("kernel", "address of the kernel"),
    word("each_chunk", "address of a function of `EACH_CHUNK`"),
    word("chunks", "chunks"),
    word("chunk_rows", "rows of a chunk"),
    word("rows", "rows"),
    word("count", "operands of the kernel"),
    word("num_partials", "partial results"),
    rest("partials", "partial results"),
    rest("operands", "operands of the kernel, the range of rows first"),
)
FORK_PARTIAL = OperandLayout(
    word("position", "number of its location among the operands of the kernel"),
    location("first", "the result of the first chunk"),
    word("chunk_bytes", "bytes to the result of the next chunk"),
)
COMBINE = OperandLayout(
    location("target", "the result"),
    location("partials", "the partial results"),
    word("count", "elements"),
    word("chunks", "chunks"),
    word("combiner", "address of a `tg_combine` function"),
)
STRIP_FUSION = OperandLayout(
    word("each_chunk", "address of a function of `EACH_CHUNK`"),
    word("malloc", "address of the function of the C library"),
    word("free", "address of the function of the C library"),
    word("chunks", "chunks"),
    word("chunk_rows", "rows of a chunk"),
    word("rows", "rows"),
    word("strip_rows", "rows of a strip"),
    word("strip_bytes", "bytes of the memory of a strip"),
    word("num_pointers", "pointers of the program"),
    word("num_kernels", "kernels"),
    word("size", "words of all kernels"),
    rest("kernels", "kernels"),
)
FUSED_KERNEL = OperandLayout(
    word("kernel", "address of the kernel"),
    word("row_iterations", "iterations of its loop per row"),
    word("num_locals", "local buffers"),
    word("num_partials", "partial results"),
    word("count", "operands of the kernel"),
    rest("locals", "local buffers"),
    rest("partials", "partial results"),
    rest("operands", "operands of the kernel, the range of rows first"),
)
FUSED_LOCAL = OperandLayout(
    word("position", "number of its location among the operands of the kernel"),
    word("offset", "bytes from the begin of the memory of a strip"),
    word("row_bytes", "bytes of a row"),
)
FUSED_PARTIAL = OperandLayout(
    word("position", "number of its location among the operands of the kernel"),
    location("first", "the result of the first chunk"),
    word("chunk_bytes", "bytes to the result of the next chunk"),
    word("offset", "bytes from the begin of the memory of a strip"),
    word("count", "elements"),
    word("merger", "address of a `tg_merge` function"),
)

INSTRUCTIONS = {
    f"{STEP}fill": FILL,
    f"{STEP}copy": COPY,
    f"{STEP}check": CHECK,
    f"{STEP}call": CALL,
    f"{STEP}matmul": MATMUL,
    f"{STEP}fork": FORK,
    f"{STEP}combine": COMBINE,
    f"{STEP}strip_fusion": STRIP_FUSION,
    **dict.fromkeys((name.rstrip(".") for name in ORDERING), NATIVE_CALL),
    **dict.fromkeys((name.rstrip(".") for name in NATIVE), LAPACK_CALL),
}
_RECORDS = {
    "tg_walk": PROGRAM,
    "instruction of `tg_walk`": INSTRUCTION,
    "partial result of `fork`": FORK_PARTIAL,
    "kernel of `strip_fusion`": FUSED_KERNEL,
    "local buffer of `strip_fusion`": FUSED_LOCAL,
    "partial result of `strip_fusion`": FUSED_PARTIAL,
}


def instruction_table() -> str:
    """The instructions and their operands as a table in Markdown."""
    names: dict[OperandLayout, list[str]] = {}
    for name, layout in INSTRUCTIONS.items():
        names.setdefault(layout, []).append(f"`{name.removeprefix(STEP)}`")
    rows = [(", ".join(group), layout) for layout, group in names.items()]
    rows += [(name if " " in name else f"`{name}`", layout) for name, layout in _RECORDS.items()]
    lines = [f"| {name} | {'; '.join(f'`{x.name}`: {x.meaning}' for x in layout.operands)} |" for name, layout in rows]
    return "\n".join(["| instruction or record | operands, in order |", "|---|---|", *lines, ""])
