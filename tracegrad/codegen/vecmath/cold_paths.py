"""Emit cold paths: code that hardly any value needs, after a branch or out of line.

`call_where` is for long code, also for scalars. `call_unless_all` and `computed_if_any` are for vectors, and skip code
that no lane needs. The results do not depend on the path taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from tracegrad import llvmir as ir
from tracegrad.codegen.vecmath.expr import FORMATS, Format, Mask, Real
from tracegrad.codegen.vecmath.lanes import lanes_of, of_lanes


def call_where(condition: Mask, name: str, body: Callable[[Real], Real], x: Real, otherwise: Real) -> Real:
    """body(x) where the (rare) condition holds, else `otherwise`.

    `body` becomes a separate function, `tg.rare_<name>`, called after a branch. For a vector, it is called for each
    lane for which the condition holds.

    LLVM does not vectorize a loop with a call, unless the callee has a masked vector variant (the function attribute
    `vector-function-abi-variant` of the LLVM Language Reference). A variant for two lanes is enough for wider loops:
    LLVM then calls the scalar function lane by lane, after a test of the lane's bit in the mask.
    """
    builder, form, lanes = x.builder, x.format, lanes_of(x.format.real)
    function = _rare_function(builder.module, FORMATS[form.name], name, body)
    arguments, any_lane = [x.value], condition.value
    if lanes:
        function = _lane_by_lane(builder.module, function, form)
        arguments += [condition.value, otherwise.value]
        bits = builder.bitcast(condition.value, ir.IntType(lanes))
        any_lane = builder.icmp_unsigned("!=", bits, ir.IRConstant(bits.type, 0))
    else:
        _offer_in_pairs(builder.module, function, form)
    before = builder.block
    with builder.if_then(any_lane, likely=False):
        rare = builder.call(function, arguments)
        inside = builder.block
    return Real(builder, form, builder.merge((otherwise.value, before), (rare, inside)))


def call_unless_all(
    condition: Mask, name: str, body: Callable[..., Real], arguments: Sequence[Real], otherwise: Real
) -> Real:
    """body(*arguments), which is equal to `otherwise` where the condition holds.

    For vectors, whose lanes nearly always fulfill the condition, `body` becomes a separate function, `tg.<name>`,
    called after a branch and not optimized. For scalars it is simply computed.
    """
    builder, form, lanes = condition.builder, condition.format, lanes_of(condition.format.real)
    if not lanes:
        return body(*arguments)
    symbol = f"tg.{name}.{form.name}x{lanes}"
    function = builder.module.globals.get(symbol)
    if function is None:
        function = ir.IRFunction(builder.module, ir.FunctionType(form.real, [form.real] * len(arguments)), symbol)
        function.linkage = "internal"
        function.attributes.update((*RARELY, "noinline", "optnone"))
        inner = ir.IRBuilder(function.append_basic_block())
        inner.ret(body(*(Real(inner, form, argument) for argument in function.args)).value)
    call = builder.call
    (result,) = computed_if_any(
        ~condition, lambda: [Real(builder, form, call(function, [x.value for x in arguments]))], [otherwise]
    )
    return result


def computed_if_any(condition: Mask, body: Callable[[], Sequence[Real]], otherwise: Sequence[Real]) -> Sequence[Real]:
    """The results of `body`, equal to `otherwise` where the condition does not hold; for vectors, computed after a
    branch, because the condition rarely holds."""
    builder, lanes = condition.builder, lanes_of(condition.format.real)
    if not lanes:
        return body()
    bits = builder.bitcast(condition.value, ir.IntType(lanes))
    before = builder.block
    with builder.if_then(builder.icmp_unsigned("!=", bits, ir.IRConstant(bits.type, 0)), likely=False):
        computed = body()
        inside = builder.block
    results = []
    for rare, usual in zip(computed, otherwise, strict=True):
        result = builder.merge((usual.value, before), (rare.value, inside))
        results.append(Real(builder, usual.format, result))
    return results


def _lane_by_lane(module: ir.IRModule, function: ir.IRFunction, form: Format) -> ir.IRFunction:
    """Define the function that calls `function` for the masked lanes of a vector, and takes the others from a second
    vector."""
    lanes = lanes_of(form.real)
    symbol = f"{function.name}x{lanes}"
    known: ir.IRFunction | None = module.globals.get(symbol)
    if known is not None:
        return known
    mask = of_lanes(ir.IntType(1), lanes)
    vector_function = ir.IRFunction(module, ir.FunctionType(form.real, [form.real, mask, form.real]), symbol)
    vector_function.linkage = "internal"
    vector_function.attributes.update((*RARELY, "noinline", "optnone"))
    x, holds, result = vector_function.args
    number_type = ir.IntType(32)
    entry, head, call, joined, done = map(
        vector_function.append_basic_block, ("entry", "head", "call", "joined", "done")
    )
    ir.IRBuilder(entry).branch(head)
    b = ir.IRBuilder(head)
    lane, so_far = (b.merge((x, entry)) for x in (ir.IRConstant(number_type, 0), result))
    b.cbranch(b.extract_element(holds, lane), call, joined)
    b = ir.IRBuilder(call)
    one = b.insert_element(so_far, b.call(function, [b.extract_element(x, lane)]), lane)
    b.branch(joined)
    b = ir.IRBuilder(joined)
    total = b.merge((so_far, head), (one, call))
    following = b.add(lane, ir.IRConstant(number_type, 1))
    lane.add_incoming(following, joined)
    so_far.add_incoming(total, joined)
    b.cbranch(b.icmp_unsigned("<", following, ir.IRConstant(number_type, lanes)), head, done)
    ir.IRBuilder(done).ret(total)
    return vector_function


# Function attributes of cold code.
RARELY = ("cold", "nounwind", "willreturn", "memory(none)")


_sharing: WeakSet[ir.IRModule] = WeakSet()


def share_rare_functions(module: ir.IRModule) -> None:
    """Declare the functions of `call_where` in `module` without their bodies, which take longer to compile than their
    callers.

    The loader of the module must define their symbols, `tg.rare_<name>.<format>`; see `vecmath.rare_module`.
    """
    _sharing.add(module)


def _rare_function(module: ir.IRModule, form: Format, name: str, body: Callable[[Real], Real]) -> ir.IRFunction:
    symbol = f"tg.rare_{name}.{form.name}"
    result: ir.IRFunction | None = module.globals.get(symbol)
    if result is not None:
        return result
    function = ir.IRFunction(module, ir.FunctionType(form.real, [form.real]), symbol)
    if module not in _sharing:
        function.linkage = "internal"
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(body(Real(builder, form, function.args[0])).value)
        function.attributes.update(("noinline", "optnone"))
    function.attributes.update(RARELY)
    return function


def _offer_in_pairs(module: ir.IRModule, function: ir.IRFunction, form: Format) -> None:
    """Declare a masked variant of `function` for two lanes to LLVM's vectorizer."""
    lanes, name = 2, f"{function.name}.x2"
    if name in module.globals:
        return
    vector, mask = of_lanes(form.real, lanes), of_lanes(ir.IntType(1), lanes)
    variant = ir.IRFunction(module, ir.FunctionType(vector, [vector, mask]), name)
    variant.linkage = "internal"
    builder = ir.IRBuilder(variant.append_basic_block())
    result = variant.args[0]
    for lane in (ir.IRConstant(ir.IntType(32), k) for k in range(lanes)):
        result = builder.insert_element(result, builder.call(function, [builder.extract_element(result, lane)]), lane)
    builder.ret(result)
    variant.attributes.update((*RARELY, "noinline", "optnone"))
    function.attributes.add(f'"vector-function-abi-variant"="_ZGV_LLVM_M{lanes}v_{function.name}({name})"')
    _mark_used(module, variant)


def _mark_used(module: ir.IRModule, function: ir.IRFunction) -> None:
    """Add `function` to the list of functions that LLVM must not remove although it sees no call of them."""
    saved: Any = module.globals.get("llvm.compiler.used")
    if saved is None:
        saved = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8).as_pointer(), 0), "llvm.compiler.used")
        saved.linkage, saved.section = "appending", "llvm.metadata"
        saved.initializer = ir.IRConstant(saved.value_type, [])
    entries = [*saved.initializer.constant, function]
    saved.value_type = ir.ArrayType(saved.value_type.element, len(entries))
    saved.initializer = ir.IRConstant(saved.value_type, entries)
