"""Products that are fused with the sum they belong to: which ones, the text of a kernel says.

LLVM would fuse what happens to stand in one block when it makes machine code, so bits would depend on what a kernel is
compiled with, and on its passes. Here each sum, difference or total is fused with a product of the same body that
nothing else uses: one rounding instead of two, on machines that are quicker this way. Of what has another use, that
would see the rounded product, and `x * c - f(x * c)` be the rounding of a large number instead of 0.

That other use may be in another kernel, and a value is the same in all kernels that compute it: `x == np.max(x)` is
true somewhere. So what is stored, or has several uses in the graph, is marked in the text as `rounded`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import multiply_add, operation
from tracegrad.codegen.loopir.kernel import Compute, Guard, Operand, Reduce, flattened, operands

__all__ = ["Products", "computed", "factors_of", "mark_rounded", "products_of"]

Products = dict[str, tuple[Operand, ...]]  # the factors, by the name of the product


def products_of(body: list[Any]) -> Products:
    """The products of a kernel that are fused with what they are added to.

    >>> x, p, q, s = (Operand(name, "f64") for name in ("x", "p", "q", "s"))
    >>> list(products_of([Compute(p, "mul", (x, x)), Compute(q, "mul", (p, x)), Compute(s, "add", (q, p))]))
    ['q']
    """
    found: Products = {}
    uses = Counter([x.name for x in operands(body)])
    for block in _blocks(body):
        products = [x for x in block if isinstance(x, Compute) and x.op == "mul" and not x.rounded]
        made = {x.out.name: x.args for x in products if x.out.dtype[0] == "f" and uses[x.out.name] == 1}
        for x in block if made else ():
            for name in _added(x):
                if name in made:
                    found[name] = made[name]
    return found


def mark_rounded(body: list[Any], shared: Collection[str]) -> None:
    """Mark the products that would be fused, of those which others share.

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
    return [body, *[x.body for x in flattened(body) if isinstance(x, Guard)]]


def _is_float(x: Compute, *ops: str) -> bool:
    return x.op in ops and x.out.dtype[0] == "f"


def _added(x: Any) -> list[str]:
    """What is added up, and may be a product."""
    if isinstance(x, Compute) and _is_float(x, "add", "sub"):
        return [a.name for a in x.args]
    return [x.value.name] if isinstance(x, Reduce) and x.combiner == "add" else []


def computed(b: ir.IRBuilder, x: Compute, value_of: Callable[[Operand], Any], products: Products) -> Any:
    """The value of an operation; of two products, the first is fused."""
    dtypes = [a.dtype for a in x.args]
    where = next((k for k, a in enumerate(x.args) if a.name in products), -1) if _is_float(x, "add", "sub") else -1
    if where < 0:
        return operation(b, x.op, [value_of(a) for a in x.args], dtypes, x.out.dtype)
    first, second = (value_of(a) for a in products[x.args[where].name])
    other = value_of(x.args[1 - where])
    if x.op == "sub" and where == 0:
        other = b.fneg(other)
    elif x.op == "sub":
        first = b.fneg(first)
    return multiply_add(b, first, second, other)


def factors_of(x: Reduce, value_of: Callable[[Operand], Any], products: Products) -> list[Any]:
    """What a total is to add the product of, if it is one."""
    return [value_of(a) for name in _added(x) for a in products.get(name, ())]
