"""Substitution in statements of the loop IR: of scalars, symbols, buffers, and the loops of reductions."""

from __future__ import annotations

from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Statement,
    Store,
    Substitution,
    ValueRenaming,
    verify_kernel,
)
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly

ROW, N, K, POSITION = (Poly.symbol(name) for name in ("i0", "s0", "k0", "v1"))
LOADED, CHECKED, GUARDED, TOTAL = (Operand(f"v{k}", dtype) for k, dtype in enumerate(("i64", "i64", "f64", "f64")))
INSIDE, COUNT, CONSTANT = Operand("v4", "f64"), Operand("v5", "i64"), Operand("c0", "f64")


def statements() -> list[Statement]:
    """One statement of each kind."""
    guarded: list[Statement] = [Load(INSIDE, "b1", POSITION + K)]
    return [
        Load(LOADED, "b0", ROW),
        BoundsCheck(CHECKED, LOADED, N),
        GuardBlock(GUARDED, ((ZERO, ROW + K, N, ONE),), guarded, INSIDE, Operand("", "f64", "0.0")),
        Compute(TOTAL, "add", (GUARDED, CONSTANT)),
        Index(COUNT, ROW * 2),
        Store("b2", ROW, TOTAL),
        Reduce("b3", ZERO, "add", TOTAL, ("i0",), ONE),
    ]


def text(body: list[Statement]) -> str:
    return "\n".join(line for x in body for line in x.lines())


def test_a_renaming_of_a_kernel_and_its_inverse() -> None:
    buffers = {"b0": ("i64", "in"), "b1": ("f64", "in"), "b2": ("f64", "out"), "b3": ("f64", "out")}
    kernel = verify_kernel(Kernel(buffers, [KernelLoop("i0", N)], statements()))
    names = {"b0": "b7", "b1": "b0", "b3": "b1", "s0": "s4", "k0": "k2", "c0": "c3"}
    renamed = verify_kernel(kernel.renamed(names))
    assert list(renamed.buffers) == ["b7", "b0", "b2", "b1"]
    assert (renamed.symbols(), renamed.constants()) == ({"s4", "k2"}, {"c3": "f64"})
    assert renamed.renamed({new: old for old, new in names.items()}).text() == kernel.text()
    assert renamed.signature()[0] == kernel.signature()[0]


def test_every_kind_of_statement_is_substituted_also_inside_of_guards() -> None:
    values = {"v0": Operand("v9", "i64"), "v4": Operand("", "f64", "1.0"), "c0": Operand("", "f64", "2.0")}
    to = Substitution(values, {"i0": ROW + 1, "k0": K * 3, "v1": Poly.symbol("v8")}, {"b1": "b5", "b2": "b6"})
    assert text(to.body(statements())) == (
        "v0 = load b0[1 + i0] : i64\n"
        "v1 = check v9 in s0 : i64\n"
        "v2 = guard 0 <= 1 + i0 + 3*k0 < s0 else 0.0 : f64 {\n"
        "  v4 = load b5[3*k0 + v8] : f64\n"
        "  yield 1.0\n"
        "}\n"
        "v3 = add(v2, 2.0) : f64\n"
        "v5 = index 2 + 2*i0 : i64\n"
        "store b6[1 + i0] = v3\n"
        "reduce add b3[0] of 1 by v3 over i0"
    )


def test_values_are_renamed_where_they_are_defined_too() -> None:
    body = ValueRenaming({f"v{k}": Operand(f"v{k + 10}", x.dtype) for k, x in enumerate((LOADED, CHECKED))}).body(
        statements()
    )
    assert text(body).splitlines()[:4] == [
        "v10 = load b0[i0] : i64",
        "v11 = check v10 in s0 : i64",
        "v2 = guard 0 <= i0 + k0 < s0 else 0.0 : f64 {",
        "  v4 = load b1[k0 + v11] : f64",
    ]


def test_statements_that_do_not_change_are_the_same_objects() -> None:
    load, _, _, compute, index, *_ = body = statements()
    result = Substitution({"v7": TOTAL}, {"s9": ONE}, {"b9": "b8"}).body(body)
    assert result == body
    assert all(x is y for x, y in zip(body, result) if x in (load, compute, index))


def test_a_substitution_sees_what_is_added_to_its_tables() -> None:
    values: dict[str, Operand] = {}
    to = Substitution(values)
    values["c0"] = TOTAL
    assert to.operand(CONSTANT) is TOTAL
