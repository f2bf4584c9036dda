"""What a loop reads that its last iteration has written: that is kept in a register, as a running sum is.

    v2 = guard 1 <= i0 < s0 else 0.0 : f64 {
      v1 = load b1[-1 + i0] : f64
      yield v1
    }
    ...
    store b1[i0] = v3

Through memory, each iteration would wait for a store that has to be found again.
"""

from __future__ import annotations

from tracegrad.codegen.loopir.kernel import Guard, Kernel, Load, Reduce, Store
from tracegrad.codegen.loopir.polynomial import Poly

__all__ = ["carried_of"]


def carried_of(kernel: Kernel) -> dict[int, Store]:
    """By the id of a guard, the store whose value in the iteration before, if there was one, it has."""
    if not kernel.loops:
        return {}
    written = [x for x in kernel.body if isinstance(x, Store | Reduce)]
    stores = {x.buffer: x for x in written if isinstance(x, Store)}
    found = {}
    for x in kernel.body:
        if isinstance(x, Guard) and len(x.body) == 1 and isinstance(x.body[0], Load) and x.result == x.body[0].out:
            store = stores.get(x.body[0].buffer)
            alone = sum(y.buffer == x.body[0].buffer for y in written) == 1
            if store is not None and alone and _is_last(kernel, x, x.body[0], store):
                found[id(x)] = store
    return found


def _is_last(kernel: Kernel, guard: Guard, load: Load, store: Store) -> bool:
    loop = kernel.loops[-1]
    i = Poly.symbol(loop.var)
    once = guard.ranges == ((Poly.constant(1), i, loop.extent, Poly.constant(1)),)
    return once and store.address.substitute({loop.var: i - 1}) == load.address
