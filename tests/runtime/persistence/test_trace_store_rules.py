"""Traces on disk of functions with derivative rules of the user's: they hold while the rules do."""

from __future__ import annotations

from typing import Any

import pytest
from remembered import Case, both_ways, check, same

VJP = """
    import tracegrad as tg
    gain = 3.0
    def helper(x, ct):
        return gain * ct * x
    @tg.custom_vjp
    def energy(x):
        return np.sum(x * x)
    def forward(x):
        return energy(x), (x, 1.0)
    def backward(kept, ct):
        return (helper(kept[0], ct),)
    energy.defvjp(forward, backward)
    def loss(x):
        return energy(np.sin(x)) * 2.0
    def make(tg):
        return tg.value_and_grad(loss)
    def function(x):
        return np.sum(np.sin(x) ** 2) * 2.0, 6.0 * np.sin(x) * np.cos(x)
"""
JVP = """
    import tracegrad as tg
    @tg.custom_jvp
    def energy(x, k):
        return np.sum(x * x) * k
    @energy.defjvp
    def pushed(primals, tangents):
        (x, k), (t, _) = primals, tangents
        return energy(x, k), np.sum(3.0 * x * t) * k
    def loss(x):
        return energy(np.sin(x), 2.0)
    def make(tg):
        return tg.value_and_grad(loss)
    def function(x):
        return np.sum(np.sin(x) ** 2) * 2.0, 6.0 * np.sin(x) * np.cos(x)
"""
SHARES = """
    import tracegrad as tg
    @tg.custom_jvp
    def product(x, y):
        return x * y
    product.defjvps(lambda t, ans, x, y: t * y * 2.0, lambda t, ans, x, y: x * t * 3.0)
    def make(tg):
        return tg.grad(lambda x: np.sum(product(x, x + 1.0)))
    def function(x):
        return 2.0 * (x + 1.0) + 3.0 * x
"""
CLASS = """
    import tracegrad as tg
    class Base(tg.autograd.Function):
        gain = 3.0
        @staticmethod
        def saved(ctx, x):
            ctx.save_for_backward(x)
    class Energy(Base):
        @staticmethod
        def forward(ctx, x, k):
            Energy.saved(ctx, x)
            ctx.k = k
            return x * x * k
        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return Energy.gain * ct * x * ctx.k, None
    def make(tg):
        return tg.grad(lambda x: np.sum(Energy.apply(np.sin(x), 2.0)))
    def function(x):
        return 6.0 * np.sin(x) * np.cos(x)
"""
MADE = """
    import tracegrad as tg
    def scaled(factor):
        @tg.custom_vjp
        def scaled(x):
            return x
        scaled.defvjp(lambda x: (x, None), lambda kept, ct: (ct * factor,))
        return scaled
    double = scaled(2.0)
    class Model:
        def __init__(self, act):
            self.act = act
    model = Model(double)
    def make(tg):
        return tg.grad(lambda x: np.sum(np.sin(model.act(x))))
    def function(x):
        return 2.0 * np.cos(x)
"""
AGAIN = """    energy.defvjp(forward, lambda kept, ct: (ct * kept[0],))
    def loss"""
REPLACED = """    Energy.backward = staticmethod(lambda ctx, ct: (ct * ctx.k, None))
    def make"""
OTHERS = MADE.replace("ct * factor", "factor * ct")
OPAQUE = CLASS.replace("gain = 3.0", "gain, opaque = 3.0, True")
CASES = {
    "vjp_rules": same(VJP),
    "vjp_value": Case(VJP, VJP.replace("np.sum(x * x)", "np.sum(x * x * x)").replace("** 2)", "** 3)"), 1),
    "vjp_backward": Case(VJP, VJP.replace("kept[0], ct)", "kept[0], 2.0 * ct)").replace("6.0", "12.0"), 1),
    "vjp_forward": Case(VJP, VJP.replace("(x, 1.0)", "(2.0 * x, 1.0)").replace("6.0", "12.0"), 1),
    "vjp_helper": Case(VJP, VJP.replace("gain * ct", "gain * 2.0 * ct").replace("6.0", "12.0"), 1),
    "vjp_number": Case(VJP, VJP.replace("gain = 3.0", "gain = 6.0").replace("6.0 *", "12.0 *"), 1),
    "vjp_given_again": Case(VJP, VJP.replace("    def loss", AGAIN).replace("6.0 *", "2.0 *"), 1),
    "vjp_no_rule_any_more": Case(
        VJP,
        VJP.replace("    @tg.custom_vjp\n", "")
        .replace("    energy.defvjp(forward, backward)\n", "")
        .replace("6.0 *", "4.0 *"),
        1,
    ),
    "jvp_rules": same(JVP),
    "jvp_rule": Case(JVP, JVP.replace("np.sum(3.0 * x * t)", "np.sum(5.0 * x * t)").replace("6.0 *", "10.0 *"), 1),
    "jvp_nondiff": Case(
        JVP,
        JVP.replace("@tg.custom_jvp", "@lambda f: tg.custom_jvp(f, nondiff_argnums=(1,))").replace(
            "def pushed(primals, tangents):\n        (x, k), (t, _) = primals, tangents",
            "def pushed(k, primals, tangents):\n        (x,), (t,) = primals, tangents",
        ),
        1,
    ),
    "shares": same(SHARES),
    "share": Case(SHARES, SHARES.replace("x * t * 3.0", "x * t * 4.0").replace("3.0 * x\n", "4.0 * x\n"), 1),
    "functions": same(CLASS),
    "function_forward": Case(CLASS, CLASS.replace("ctx.k = k", "ctx.k = 2.0 * k").replace("6.0 *", "12.0 *"), 1),
    "function_backward": Case(CLASS, CLASS.replace("gain * ct", "gain * 2.0 * ct").replace("6.0 *", "12.0 *"), 1),
    "function_attribute": Case(CLASS, CLASS.replace("gain = 3.0", "gain = 6.0").replace("6.0 * np", "12.0 * np"), 1),
    "function_helper": Case(
        CLASS, CLASS.replace("save_for_backward(x)", "save_for_backward(2.0 * x)").replace("6.0 * np", "12.0 * np"), 1
    ),
    "function_backward_is_replaced": Case(
        CLASS, CLASS.replace("    def make", REPLACED).replace("6.0 * np.sin(x)", "2.0"), 1
    ),
    "opaque_function": Case(OPAQUE, OPAQUE, 1),
    "rules_made_by_functions": same(MADE),
    "closure_of_a_rule": Case(MADE, MADE.replace("scaled(2.0)", "scaled(3.0)").replace("2.0 *", "3.0 *"), 1),
    "other_rule_in_an_object": Case(
        OTHERS, OTHERS.replace("Model(double)", "Model(scaled(4.0))").replace("2.0 *", "4.0 *"), 1
    ),
}

both = both_ways(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_with_rules_is_used_again_just_where_nothing_has_changed(both: Any, name: str) -> None:
    check(both[name], CASES[name])
