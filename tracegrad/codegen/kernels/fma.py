"""Mark the products that a kernel contracts with a sum into a fused multiply-add (FMA contraction).

LLVM would contract any product and sum in one block, so bits would depend on its passes and on neighbouring kernels.
Here each sum, difference or total is fused with a product of the same body that has no other use. That is one rounding
instead of two, and faster. With another use, the product would also be needed rounded. `x * c - f(x * c)` would then
be the rounding error of a large number instead of 0.

The other use may be in another kernel, and a value must be equal in all kernels that compute it: `x == np.max(x)` is
true somewhere. A product that is stored, or has several uses in the graph, is therefore marked `rounded` in the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import multiply_add, operation
from tracegrad.codegen.loopir.kernel import Compute, GuardBlock, Operand, Reduce, flattened, operands

Products = dict[str, tuple[Operand, ...]]  # the factors, by the name of the product


def products_of(body: list[Any]) -> Products:
    """The products of a kernel that are fused with their sums (FMA).

    >>> x, p, q, s = (Operand(name, "f64") for name in ("x", "p", "q", "s"))
    >>> list(products_of([Compute(p, "mul", (x, x)), Compute(q, "mul", (p, x)), Compute(s, "add", (q, p))]))
    ['q']
    """
    table: Products = {}
    uses = Counter([x.name for x in operands(body)])
    for block in _blocks(body):
        products = [x for x in block if isinstance(x, Compute) and x.op == "mul" and not x.rounded]
        mapping = {x.out.name: x.args for x in products if x.out.dtype[0] == "f" and uses[x.out.name] == 1}
        for x in block if mapping else ():
            for name in _added(x):
                if name in mapping:
                    table[name] = mapping[name]
    return table


def mark_rounded(body: list[Any], shared: Collection[str]) -> None:
    """Mark products that would be fused but have other uses, as `rounded`.

    >>> x, p, s = (Operand(name, "f64") for name in ("x", "p", "s"))
    >>> body = [Compute(p, "mul", (x, x)), Compute(s, "add", (p, x))]
    >>> mark_rounded(body, {"p"})
    >>> [*body[0].lines()], list(products_of(body))
    (['p = rounded mul(x, x) : f64'], [])
    """
    names = products_of(body).keys() & shared
    if not names:
        return
    for block in _blocks(body):
        block[:] = [replace(x, rounded=True) if isinstance(x, Compute) and x.out.name in names else x for x in block]


def _blocks(body: list[Any]) -> list[list[Any]]:
    return [body, *[x.body for x in flattened(body) if isinstance(x, GuardBlock)]]


def _is_float(x: Compute, *ops: str) -> bool:
    return x.op in ops and x.out.dtype[0] == "f"


def _added(x: object) -> list[str]:
    """The addends of a sum, which may be products."""
    if isinstance(x, Compute) and _is_float(x, "add", "sub"):
        return [a.name for a in x.args]
    return [x.value.name] if isinstance(x, Reduce) and x.combiner == "add" else []


def computed(b: ir.IRBuilder, x: Compute, value_of: Callable[[Operand], ir.IRValue], products: Products) -> Any:
    """Emit an operation; if both operands are products, the first is fused."""
    dtypes = [a.dtype for a in x.args]
    product_index = (
        next((k for k, a in enumerate(x.args) if a.name in products), -1) if _is_float(x, "add", "sub") else -1
    )
    if product_index < 0:
        return operation(b, x.op, [value_of(a) for a in x.args], dtypes, x.out.dtype)
    first, second = (value_of(a) for a in products[x.args[product_index].name])
    other = value_of(x.args[1 - product_index])
    if x.op == "sub" and product_index == 0:
        other = b.fneg(other)
    elif x.op == "sub":
        first = b.fneg(first)
    return multiply_add(b, first, second, other)


def factors_of(x: Reduce, value_of: Callable[[Operand], ir.IRValue], products: Products) -> list[ir.IRValue]:
    """The factors of the product that a reduction adds, if it adds one."""
    return [value_of(a) for name in _added(x) for a in products.get(name, ())]
