"""Traces on disk and the many ways in which Python code depends on something: each is looked at by another process."""

from __future__ import annotations

from typing import Any

import pytest
from remembered import Case, both_ways, changed, check

CASES = {
    "numpy_patched": changed("""
    import numpy as np
    def function(x):
        return np.sin(x) * 2.0
    extra = 1
    """, "extra = 1", "np.sin = np.cos"),
    "from_import": changed("""
    from numpy import sin as s
    def function(x):
        return s(x)
    """, "sin as s", "cos as s"),
    "builtin_shadowed": changed("""
    def function(x):
        return x * max(1.0, 2.0)
    extra = 1
    """, "extra = 1", "max = min"),
    "closure_list": changed("""
    def outer(l):
        def function(x):
            for k in l:
                x = x * k
            return x
        return function
    function = outer([1.0, 2.0])
    """, "[1.0, 2.0]", "[1.0, 5.0]"),
    "closure_dict": changed("""
    def outer(l):
        def function(x):
            return x * l['a']['b'][0]
        return function
    function = outer({'a': {'b': [2.0]}})
    """, "[2.0]", "[4.0]"),
    "closure_dict_array": Case("""
    def outer(l):
        def function(x):
            return x * l['a']
        return function
    function = outer({'a': np.array([1., 2., 3.])})
    """, """
    def outer(l):
        def function(x):
            return x * l['a']
        return function
    function = outer({'a': np.array([4., 2., 3.])})
    """, 0),
    "closure_cell_nonlocal": changed("""
    def outer():
        k = 2.0
        def function(x):
            return x * k
        def set(v):
            nonlocal k
            k = v
        return function, set
    function, set_k = outer()
    extra = 1
    """, "extra = 1", "set_k(3.0)"),
    "closure_of_closure": changed("""
    def outer(a):
        def mid(b):
            def function(x):
                return x * a + b
            return function
        return mid
    function = outer(2.0)(3.0)
    """, "(2.0)(3.0)", "(3.0)(2.0)"),
    "swapped_closures": changed("""
    def mk(f, g):
        def function(x):
            return f(g(x))
        return function
    a = lambda x: x + 1.0
    b = lambda x: x * 2.0
    function = mk(a, b)
    """, "mk(a, b)", "mk(b, a)"),
    "two_closures_of_one_code": changed("""
    def sc(k):
        return lambda x: x * k
    f, g = sc(2.0), sc(3.0)
    def function(x):
        return f(x) - g(x + 1.0)
    """, "f, g = sc(2.0), sc(3.0)", "f, g = sc(3.0), sc(2.0)"),
    "function_as_default": changed("""
    def h(x, f=lambda y: y * 2.0):
        return f(x)
    def function(x):
        return h(x)
    """, "y * 2.0", "y * 3.0"),
    "default_list": changed("""
    def h(x, l=[1.0, 2.0]):
        return x * l[1]
    def function(x):
        return h(x)
    """, "[1.0, 2.0]", "[1.0, 3.0]"),
    "default_of_traced": changed("""
    def function(x, k=2.0):
        return x * k
    """, "k=2.0", "k=3.0"),
    "keyword_default_of_traced": changed("""
    def function(x, *, k=2.0):
        return x * k
    """, "k=2.0", "k=3.0"),
    "object_as_default": changed("""
    class B:
        v = 2.0
    def h(x, b=B()):
        return x * b.v
    def function(x):
        return h(x)
    """, "v = 2.0", "v = 3.0"),
    "attribute_of_a_default": changed("""
    class B:
        def __init__(self): self.v = 2.0
    def h(x, b=B()):
        return x * b.v
    def function(x):
        return h(x)
    extra = 1
    """, "extra = 1", "h.__defaults__[0].v = 5.0"),
    "class_attribute_set": changed("""
    class Base:
        k = 2.0
        def f(self, x):
            return x * self.k
    class D(Base):
        pass
    d = D()
    def function(x):
        return d.f(x)
    extra = 1
    """, "extra = 1", "Base.k = 3.0"),
    "attribute_of_a_subclass_set": changed("""
    class Base:
        k = 2.0
        def f(self, x):
            return x * self.k
    class D(Base):
        pass
    d = D()
    def function(x):
        return d.f(x)
    extra = 1
    """, "extra = 1", "D.k = 3.0"),
    "method_of_a_class_set": changed("""
    class Base:
        k = 2.0
        def f(self, x):
            return x * self.k
    class D(Base):
        pass
    d = D()
    def function(x):
        return d.f(x)
    extra = 1
    """, "extra = 1", "Base.f = lambda self, x: x * 9.0"),
    "method_of_an_instance_set": changed("""
    class Base:
        k = 2.0
        def f(self, x):
            return x * self.k
    class D(Base):
        pass
    d = D()
    def function(x):
        return d.f(x)
    extra = 1
    """, "extra = 1", "d.f = lambda x: x * 9.0"),
    "class_of_an_instance_set": changed("""
    class Base:
        k = 2.0
        def f(self, x):
            return x * self.k
    class D(Base):
        pass
    d = D()
    def function(x):
        return d.f(x)
    extra = 1
    """, "extra = 1", "class E(Base):\n        k = 4.0\n    d.__class__ = E"),
    "attribute_added": changed("""
    class Base:
        k = 2.0
        def f(self, x):
            return x * self.q if hasattr(self, 'q') else x * self.k
    class D(Base):
        pass
    d = D()
    def function(x):
        return d.f(x)
    extra = 1
    """, "extra = 1", "Base.q = 3.0"),
    "static_method": changed("""
    class A:
        k = 2.0
        @classmethod
        def f(cls, x):
            return x * cls.k
        @staticmethod
        def g(x):
            return x + 1.0
    def function(x):
        return A.f(A.g(x))
    """, "x + 1.0", "x + 2.0"),
    "metaclass": changed("""
    class M(type):
        @property
        def k(cls):
            return 2.0
    class A(metaclass=M):
        pass
    def function(x):
        return x * A.k
    """, "return 2.0", "return 4.0"),
    "descriptor": changed("""
    class De:
        def __get__(self, o, t):
            return 2.0
    class A:
        k = De()
    a = A()
    def function(x):
        return x * a.k
    """, "return 2.0", "return 4.0"),
    "descriptor_state": changed("""
    class De:
        def __init__(self, v): self.v = v
        def __get__(self, o, t):
            return self.v
    class A:
        k = De(2.0)
    a = A()
    def function(x):
        return a.k * x
    """, "De(2.0)", "De(4.0)"),
    "slots": changed("""
    class A:
        __slots__ = ('k',)
        def __init__(self, k): self.k = k
    a = A(2.0)
    def function(x):
        return x * a.k
    """, "A(2.0)", "A(4.0)"),
    "cached_property": changed("""
    import functools
    class A:
        @functools.cached_property
        def k(self):
            return 2.0
    a = A()
    def function(x):
        return x * a.k
    """, "return 2.0", "return 4.0"),
    "lru_cache": changed("""
    import functools
    @functools.lru_cache
    def k(n):
        return 2.0 * n
    def function(x):
        return x * k(2)
    """, "2.0 * n", "3.0 * n"),
    "lru_cache_global": changed("""
    import functools
    w = 2.0
    @functools.lru_cache
    def k(n):
        return w * n
    def function(x):
        return x * k(2)
    """, "w = 2.0", "w = 3.0"),
    "singledispatch": changed("""
    import functools
    @functools.singledispatch
    def k(n):
        return 2.0
    @k.register
    def _(n: int):
        return 5.0
    def function(x):
        return x * k(2)
    """, "return 5.0", "return 6.0"),
    "call_dunder": changed("""
    class A:
        def __call__(self, x):
            return x * 2.0
    a = A()
    def function(x):
        return a(x)
    """, "x * 2.0", "x * 3.0"),
    "namedtuple_default": changed("""
    from collections import namedtuple
    P = namedtuple('P', 'a b', defaults=(2.0,))
    def function(x):
        p = P(x)
        return p.a * p.b
    """, "(2.0,)", "(3.0,)"),
    "dataclass_default": changed("""
    import dataclasses
    @dataclasses.dataclass
    class P:
        a: object
        b: float = 2.0
    def function(x):
        p = P(x)
        return p.a * p.b
    """, "= 2.0", "= 3.0"),
    "dataclass_factory": changed("""
    import dataclasses
    @dataclasses.dataclass
    class P:
        a: object
        b: object = dataclasses.field(default_factory=lambda: [2.0])
    def function(x):
        p = P(x)
        return p.a * p.b[0]
    """, "[2.0]", "[3.0]"),
    "dataclass_factory_arg": changed("""
    import dataclasses
    @dataclasses.dataclass
    class P:
        a: object
        b: object = dataclasses.field(default_factory=lambda: 2.0)
    arguments = (P(np.ones(3)),)
    def function(p):
        q = P(p.a)
        return q.a * q.b
    """, "2.0", "3.0"),
    "post_init": changed("""
    import dataclasses
    @dataclasses.dataclass
    class P:
        a: object
        def __post_init__(self):
            self.a = self.a * 2.0
    def function(x):
        return P(x).a
    """, "* 2.0", "* 3.0"),
    "partial_kw": changed("""
    import functools
    def b(x, k=1.0, m=2.0):
        return x * k + m
    function = functools.partial(b, k=3.0)
    """, "k=3.0", "m=3.0"),
    "partial_nested": changed("""
    import functools
    def b(a, k, x):
        return x * k + a
    function = functools.partial(functools.partial(b, 1.0), 2.0)
    """, "1.0), 2.0", "2.0), 1.0"),
    "partialmethod": changed("""
    import functools
    class A:
        def f(self, k, x):
            return x * k
        g = functools.partialmethod(f, 2.0)
    a = A()
    def function(x):
        return a.g(x)
    """, "f, 2.0", "f, 3.0"),
    "item_getter": changed("""
    import operator
    g = operator.itemgetter('a')
    d = {'a': 2.0, 'b': 3.0}
    def function(x):
        return x * g(d)
    """, "itemgetter('a')", "itemgetter('b')"),
    "lambdas_of_one_line": changed("""
    f, g = (lambda x: x * 2.0), (lambda x: x * 3.0)
    def function(x):
        return f(x)
    """, "return f(x)", "return g(x)"),
    "lambdas_of_one_line_by_name": changed("""
    f, g = (lambda x: x * 2.0), (lambda x: x * 3.0)
    h = f
    def function(x):
        return h(x)
    """, "h = f", "h = g"),
    "exec_function": changed("""
    src = 'def helper(x): return x * 2.0'
    ns = {}
    exec(src, ns)
    helper = ns['helper']
    def function(x):
        return helper(x)
    """, "x * 2.0'", "x * 3.0'"),
    "exec_global": changed("""
    ns = {'k': 2.0}
    exec('def helper(x): return x * k', ns)
    helper = ns['helper']
    def function(x):
        return helper(x)
    """, "'k': 2.0", "'k': 3.0"),
    "eval": changed("""
    def function(x):
        return x * eval('k')
    k = 2.0
    """, "k = 2.0", "k = 3.0"),
    "globals": changed("""
    def function(x):
        return x * globals()['k']
    k = 2.0
    """, "k = 2.0", "k = 3.0"),
    "vars": changed("""
    class O: pass
    o = O()
    o.k = 2.0
    def function(x):
        return x * sum(vars(o).values())
    """, "= 2.0", "= 3.0"),
    "getattr_by_a_variable": changed("""
    class O: pass
    o = O()
    o.k = 2.0
    o.j = 3.0
    name = 'k'
    def function(x):
        return x * getattr(o, name)
    """, "'k'", "'j'"),
    "class_registered_with_another": changed("""
    import abc
    class I(abc.ABC): pass
    class A: pass
    a = A()
    def function(x):
        return x * (2.0 if isinstance(a, I) else 3.0)
    extra = 1
    """, "extra = 1", "I.register(A)"),
    "member_of_an_enumeration": changed("""
    import enum
    class M(enum.Enum):
        A = 1
        B = 2
    mode = M.A
    def function(x):
        return x * mode.value if mode is M.A else x - 1.0
    """, "mode = M.A", "mode = M.B"),
    "property_closure": changed("""
    def mk(k):
        class A:
            @property
            def v(self):
                return k
            def f(self, x):
                return x * k
        return A
    a = mk(2.0)()
    def function(x):
        return a.f(x) + a.v
    """, "mk(2.0)", "mk(3.0)"),
    "super": changed("""
    class A:
        def f(self, x):
            return x * 2.0
    class B(A):
        def f(self, x):
            return super().f(x) + 1.0
    b = B()
    def function(x):
        return b.f(x)
    """, "x * 2.0", "x * 3.0"),
    "order_of_base_classes": changed("""
    class A:
        def f(self, x): return x * 2.0
    class B:
        def f(self, x): return x * 3.0
    class C(A, B): pass
    o = C()
    def function(x):
        return o.f(x)
    """, "C(A, B)", "C(B, A)"),
    "reflected_operator": changed("""
    class A:
        def __rmul__(self, x): return x * 2.0
        __array_ufunc__ = None
    o = A()
    def function(x):
        return x * o
    """, "x * 2.0", "x * 3.0"),
    "generator": changed("""
    def gen():
        yield 2.0
        yield 3.0
    def function(x):
        for k in gen():
            x = x * k
        return x
    """, "yield 3.0", "yield 4.0"),
    "context_manager": changed("""
    import contextlib
    @contextlib.contextmanager
    def cm():
        yield 2.0
    def function(x):
        with cm() as k:
            return x * k
    """, "yield 2.0", "yield 4.0"),
    "attribute_of_a_wrapper": changed("""
    import functools
    def deco(f):
        @functools.wraps(f)
        def g(x): return f(x) * g.k
        g.k = 2.0
        return g
    @deco
    def function(x):
        return x
    """, "g.k = 2.0", "g.k = 3.0"),
    "attribute_of_a_function": changed("""
    def h(x): return x * h.k
    h.k = 2.0
    def function(x):
        return h(x)
    """, "h.k = 2.0", "h.k = 3.0"),
    "name": changed("""
    def hh(x):
        return x * len(hh.__name__)
    def function(x):
        return hh(x)
    extra = 1
    """, "extra = 1", "hh.__name__ = 'longer'"),
    "class_annotations": changed("""
    class A:
        a: int
    def function(x):
        return x * len(A.__annotations__)
    """, "a: int", "a: int\n        b: int"),
    "items_of_a_class": changed("""
    class A:
        def __class_getitem__(cls, i): return 2.0
    def function(x):
        return x * A[0]
    """, "2.0", "3.0"),
    "userdict": changed("""
    import collections
    class U(collections.UserDict): pass
    d = U(a=2.0)
    def function(x):
        return x * d['a']
    """, "a=2.0", "a=3.0"),
    "defaultdict": changed("""
    import collections
    d = collections.defaultdict(lambda: 2.0)
    def function(x):
        return x * d['a']
    """, "2.0", "3.0"),
    "chainmap": changed("""
    import collections
    d = collections.ChainMap({'a': 2.0}, {'b': 1.0})
    def function(x):
        return x * d['a']
    """, "2.0", "3.0"),
    "ordereddict": changed("""
    import collections
    d = collections.OrderedDict(a=2.0, b=3.0)
    def function(x):
        for v in d.values(): x = x * v + 1.0
        return x
    """, "a=2.0, b=3.0", "b=3.0, a=2.0"),
    "deque": changed("""
    import collections
    d = collections.deque([2.0, 3.0])
    def function(x):
        return x * d[0]
    extra = 1
    """, "extra = 1", "d.rotate(1)"),
    "set_membership": changed("""
    s = {'a', 'b'}
    def function(x):
        return x * (2.0 if 'c' in s else 3.0)
    """, "'a', 'b'", "'a', 'c'"),
    "frozenset": changed("""
    s = frozenset(['a', 'b'])
    def function(x):
        return x * (2.0 if 'c' in s else 3.0)
    """, "['a', 'b']", "['a', 'c']"),
    "text": changed("""
    s = 'ab'
    def function(x):
        return x * len(s)
    """, "'ab'", "'abc'"),
    "mappingproxy": changed("""
    import types
    d = types.MappingProxyType({'a': 2.0})
    def function(x):
        return x * d['a']
    """, "2.0", "3.0"),
    "simplenamespace": changed("""
    import types
    d = types.SimpleNamespace(a=2.0)
    def function(x):
        return x * d.a
    """, "a=2.0", "a=3.0"),
    "fraction": changed("""
    from fractions import Fraction
    q = Fraction(1, 2)
    def function(x):
        return x * float(q)
    """, "1, 2", "1, 4"),
    "float_format": changed("""
    k = 2.0
    def function(x):
        return x * len(f'{k:.3f}')
    """, "k = 2.0", "k = 20.0"),
    "sorted_key": changed("""
    class A:
        def __init__(self, v): self.v = v
        def __lt__(self, o): return self.v < o.v
    l = [A(2.0), A(1.0)]
    def function(x):
        return x * sorted(l)[0].v
    """, "self.v < o.v", "self.v > o.v"),
    "functions_in_a_dict": changed("""
    def a(x): return x * 2.0
    def b(x): return x * 3.0
    T = {'f': a, 'g': b}
    def function(x):
        return T['f'](x)
    """, "'f': a, 'g': b", "'f': b, 'g': a"),
    "functions_in_a_list": changed("""
    L = [lambda x: x * 2.0, lambda x: x + 1.0]
    def function(x):
        for f in L: x = f(x)
        return x
    """, "x + 1.0", "x + 2.0"),
    "layers": changed("""
    class L:
        def __init__(self, k, act): self.k, self.act = k, act
        def __call__(self, x): return self.act(x * self.k)
    net = [L(2.0, np.tanh), L(3.0, np.sin)]
    def function(x):
        for l in net: x = l(x)
        return x
    """, "np.sin", "np.cos"),
    "nested_objects": changed("""
    class I:
        def __init__(self): self.v = 2.0
    class O:
        def __init__(self): self.i = {'a': [I()]}
    o = O()
    def function(x):
        return x * o.i['a'][0].v
    """, "self.v = 2.0", "self.v = 3.0"),
    "readonly": Case("""
    b = np.ones(3)
    def function(x):
        return x + b
    extra = 1
    """, """
    b = np.ones(3)
    def function(x):
        return x + b
    b.flags.writeable = False
    """, 0),
    "truth_as_argument": changed("""
    arguments = (np.ones(3), True)
    def function(x, b):
        return x * b
    """, "True", "1"),
    "static_text": changed("""
    arguments = (np.ones(3), 'a')
    def make(tg):
        return tg.trace(function, static_argnums=1)
    def function(x, b):
        return x * len(b)
    """, "'a'", "'ab'"),
    "static_function": changed("""
    def h(x): return x * 2.0
    arguments = (np.ones(3), h)
    def make(tg):
        return tg.trace(function, static_argnums=1)
    def function(x, f):
        return f(x)
    """, "x * 2.0", "x * 3.0"),
}  # fmt: skip
# It changes NumPy for all that come after it.
APART = ("numpy_patched",)
both = both_ways(CASES, APART)


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_by_the_next_process(both: Any, name: str) -> None:
    check(both[name], CASES[name])
