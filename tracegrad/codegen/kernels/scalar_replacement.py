"""Replace a loop-carried load by a register: scalar replacement of a value that the last iteration stored.

    v2 = guard 1 <= i0 < s0 else 0.0 : f64 {
      v1 = load b1[-1 + i0] : f64
      yield v1
    }
    ...
    store b1[i0] = v3

Without it, each iteration would wait for store-to-load forwarding through memory.
"""

from __future__ import annotations

from tracegrad.codegen.loopir.kernel import GuardBlock, Kernel, Load, Reduce, Store
from tracegrad.codegen.loopir.polynomial import Poly


def carried_of(kernel: Kernel) -> dict[int, Store]:
    """Map the id of a guarded load to the store whose value of the previous iteration it reads."""
    if not kernel.loops or "scalar-replacement" in kernel.disabled:
        return {}
    written = [x for x in kernel.body if isinstance(x, Store | Reduce)]
    stores = {x.buffer: x for x in written if isinstance(x, Store)}
    table = {}
    for x in kernel.body:
        if isinstance(x, GuardBlock) and len(x.body) == 1 and isinstance(x.body[0], Load) and x.result == x.body[0].out:
            store = stores.get(x.body[0].buffer)
            is_only_write = sum(y.buffer == x.body[0].buffer for y in written) == 1
            if store is not None and is_only_write and _is_last(kernel, x, x.body[0], store):
                table[id(x)] = store
    return table


def _is_last(kernel: Kernel, guard: GuardBlock, load: Load, store: Store) -> bool:
    loop = kernel.loops[-1]
    i = Poly.symbol(loop.var)
    once = guard.ranges == ((Poly.constant(1), i, loop.extent, Poly.constant(1)),)
    return once and store.address.substitute({loop.var: i - 1}) == load.address
