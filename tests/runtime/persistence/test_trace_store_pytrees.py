"""Traces on disk of functions with registered containers: they hold while the functions do that take these apart."""

from __future__ import annotations

from typing import Any

import pytest
from remembered import Case, both_ways, changed, check, same

NET = """
    import tracegrad as tg
    class Net:
        def __init__(self, w, b, kind):
            self.w, self.b, self.kind = w, b, kind
        def scaled(self):
            return self.w * 2.0
        def __eq__(self, other):
            return type(other) is Net and np.allclose(self.w, other.w) and np.allclose(self.b, other.b)
        __hash__ = None
    def parts(net):
        return (net.w, net.b), net.kind
    def whole(kind, parts):
        return Net(*parts, kind)
    tg.register_pytree_node(Net, parts, whole)
    arguments = (Net(np.ones(3), np.arange(3.0), "tanh"), np.array([0.25, 0.5, 1.5]))
    def loss(net, x):
        y = net.scaled() * x + net.b
        return np.sum(np.tanh(y) if net.kind == "tanh" else y)
    def make(tg):
        slope = tg.grad(loss)
        def made(*args):
            found = slope(*args)
            return found.w, found.b, found.kind
        made.cache_info = slope.cache_info
        return made
    def function(net, x):
        y = net.w * 2.0 * x + net.b
        ct = 1.0 - np.tanh(y) ** 2 if net.kind == "tanh" else np.ones(3)
        return 2.0 * ct * x, ct, net.kind
"""
# The class is in no argument: it is made, taken apart and put together while the function runs.
WITHIN = """
    import tracegrad as tg
    class Pair:
        def __init__(self, one, two):
            self.one, self.two = one, two
    scale = 1.0
    def halves(pair):
        return (pair.one, pair.two), None
    def joined(aux, parts):
        return Pair(*parts)
    tg.register_pytree_node(Pair, halves, joined)
    def function(x):
        found = tg.tree.map(lambda y: y * 2.0, Pair(x, x + 1.0))
        return found.one - found.two * 3.0
"""
SCALED = WITHIN.replace("return Pair(*parts)", "return Pair(parts[0] * scale, parts[1])")
TABLE = SCALED.replace("scale = 1.0", "scale = [1.0]").replace("* scale,", "* scale[0],")
BY_CLASS = """
    import functools
    import tracegrad as tg
    class Module:
        def __init_subclass__(cls):
            tg.register_pytree_node(cls, cls.parts, functools.partial(whole, cls))
        def parts(self):
            names = tuple(sorted(vars(self)))
            return [getattr(self, name) for name in names], names
    def whole(cls, names, parts):
        made = object.__new__(cls)
        for name, part in zip(names, parts):
            setattr(made, name, part)
        return made
    class Dense(Module):
        def __init__(self, w, b):
            self.w, self.b = w, b
        def __call__(self, x):
            return np.tanh(x @ self.w + self.b)
    arguments = (Dense(np.ones((3, 2)), np.zeros(2)), np.array([0.25, 0.5, 1.5]))
    def function(net, x):
        return net(x)
"""
CASES = {
    "containers": same(NET),
    "container_flattened_otherwise": changed(NET, "return (net.w, net.b), net.kind", "return [net.w, net.b], net.kind"),
    "container_put_together_otherwise": changed(NET, "Net(*parts, kind)", "Net(parts[0], parts[1], kind)"),
    "method_of_a_container": Case(
        NET,
        NET.replace("self.w * 2.0", "self.w * 3.0")
        .replace("net.w * 2.0", "net.w * 3.0")
        .replace("return 2.0 * ct", "return 3.0 * ct"),
        1,
    ),
    "constructor_of_a_container": changed(
        NET, "self.w, self.b, self.kind = w, b, kind", "self.w = w; self.b = b; self.kind = kind"
    ),
    "static_data_of_a_container": changed(NET, '3.0), "tanh")', '3.0), "relu")'),
    "static_data_of_another_type": changed(NET.replace('"tanh"', "1"), "np.arange(3.0), 1)", "np.arange(3.0), True)"),
    "elements_of_a_container": Case(NET, NET.replace("np.arange(3.0)", "np.arange(1.0, 4.0)"), 0),
    "made_within": same(WITHIN),
    "made_within_flattened_otherwise": changed(WITHIN, "(pair.one, pair.two), None", "(pair.two, pair.one), None"),
    "made_within_put_together_otherwise": changed(WITHIN, "Pair(*parts)", "Pair(parts[1], parts[0])"),
    "made_within_and_a_variable": same(SCALED),
    "variable_of_a_container": changed(SCALED, "scale = 1.0", "scale = 3.0"),
    "table_of_a_container": Case(TABLE, TABLE, 1),
    "helper_of_a_container": changed(
        WITHIN.replace("return Pair(*parts)", "return built(*parts)").replace(
            "scale = 1.0", "def built(a, b):\n        return Pair(a, b)"
        ),
        "return Pair(a, b)",
        "return Pair(b, a)",
    ),
    "numpy_of_a_container": changed(
        WITHIN.replace("Pair(*parts)", "Pair(np.negative(parts[0]), parts[1])") + "    extra = 1\n",
        "extra = 1",
        "np.negative = lambda x: x * 5.0",
    ),
    "registered_since": changed(
        WITHIN.replace("tg.register_pytree_node(Pair, halves, joined)", "extra = 1").replace(
            "tg.tree.map(lambda y: y * 2.0, Pair(x, x + 1.0))", "Pair(x, x + len(tg.tree.leaves(Pair(1, 2))))"
        ),
        "extra = 1",
        "tg.register_pytree_node(Pair, halves, joined)",
    ),
    "counting_container": Case(
        *2
        * [
            WITHIN.replace(
                "def joined(aux, parts):", "def joined(aux, parts):\n        global scale\n        scale = scale + 0.0"
            )
        ],
        1,
    ),
    "containers_by_class": same(BY_CLASS),
    "base_of_a_container": changed(BY_CLASS, "tuple(sorted(vars(self)))", "tuple(sorted(vars(self), reverse=True))"),
    "maker_of_a_container": changed(BY_CLASS, "made = object.__new__(cls)", "made = cls.__new__(cls)"),
    "attribute_of_a_container": changed(BY_CLASS, "x @ self.w + self.b", "x @ self.w - self.b"),
}
# They change NumPy for all that come after them.
APART = ("numpy_of_a_container",)
both = both_ways(CASES, APART)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_with_containers_is_used_again_just_where_nothing_has_changed(both: Any, name: str) -> None:
    check(both[name], CASES[name])
