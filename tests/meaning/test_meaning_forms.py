"""Python's forms: whatever way code is written, traced it means what it means."""

from __future__ import annotations

import abc
import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import logging
import numbers
import operator
import sys
import types
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import pytest
from meaning import attempt, compare, program

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])


# -- classes -----------------------------------------------------------------------------------------------------------
class Slotted:
    __slots__ = ("k", "w")

    def __init__(self, k: float, w: Any):
        self.k, self.w = k, w

    def scaled(self, x: Any) -> Any:
        return x * self.k + self.w


@program
def test_classes_with_slots(trace: Any) -> Any:
    s = Slotted(2.0, X)
    f, g = trace(lambda x: s.scaled(x)), trace(s.scaled)
    for h in (f, g):
        s.k, s.w = 2.0, X
        yield h(X)
        s.k = 3.0
        yield h(X)
        s.w = X + 1
        yield h(X)


@program
def test_traced_methods_of_classes_with_slots(trace: Any) -> Any:
    class Model:
        __slots__ = ("k",)

        def __init__(self, k: Any):
            self.k = k

        @trace
        def forward(self, x: Any) -> Any:
            return x * self.k

    a, b = Model(2.0), Model(3.0)
    yield a.forward(X), b.forward(X)
    a.k = 5.0
    yield a.forward(X), b.forward(X)
    yield Model.forward(a, X)


@program
def test_classes_made_at_run_time(trace: Any) -> Any:
    cls = type("Model", (), {"k": 2.0, "forward": lambda self, x: x * self.k, "__call__": lambda self, x: -x * self.k})
    child = type("Child", (cls,), {"k": 4.0})
    a, b = cls(), child()
    f, g = trace(lambda x: a.forward(x) + b.forward(x) + b(x)), trace(a.forward)
    yield f(X), g(X), trace(b)(X)
    cls.k = 3.0
    yield f(X), g(X), trace(b)(X)
    a.k = 7.0
    yield f(X), g(X), trace(b)(X)


@program
def test_classes_made_without_a_module(trace: Any) -> Any:
    space: dict[str, Any] = {}
    exec("class Model:\n    k = 2.0\n    def forward(self, x):\n        return x * self.k\n", space)
    m = space["Model"]()
    f = trace(lambda x: m.forward(x))
    yield f(X)
    m.k = 3.0
    yield f(X)


@program
def test_traced_methods(trace: Any) -> Any:
    class Model:
        shared = 1.0

        def __init__(self, k: float):
            self.k = k

        @trace
        def forward(self, x: Any, power: int = 1) -> Any:
            return self.helper(x) * self.k**power

        def helper(self, x: Any) -> Any:
            return x + self.shared

        @staticmethod
        @trace
        def static(x: Any) -> Any:
            return x * 5

        @classmethod
        @trace
        def of_class(cls, x: Any) -> Any:
            return x * cls.shared

        @property
        @trace
        def doubled(self) -> Any:
            return np.ones(2) * self.k * 2

    a, b = Model(2.0), Model(3.0)
    for _ in range(2):
        yield a.forward(X), b.forward(X, power=2), Model.forward(a, X), a.static(X), Model.static(X)
        yield a.of_class(X), Model.of_class(X), a.doubled, b.doubled
        a.k, Model.shared = 4.0, 2.0
    b.helper = lambda x: x
    yield b.forward(X)


@program
def test_static_and_class_methods_traced_outside(trace: Any) -> Any:
    class Model:
        k = 2.0

        @trace
        @staticmethod
        def static(x: Any) -> Any:
            return x * 5

    class Child(Model):
        k = 3.0

    yield trace(Model.static)(X) if isinstance(Model.__dict__["static"], staticmethod) else Model.static(X)
    of_class = classmethod(lambda cls, x: x * cls.k)
    Model.of_class = of_class
    f, g = trace(Model.of_class), trace(Child.of_class)
    yield f(X), g(X)
    Model.k = 7.0
    yield f(X), g(X)


@program
def test_super(trace: Any) -> Any:
    class Base:
        def __init__(self, k: float):
            self.k = k

        def forward(self, x: Any) -> Any:
            return x * self.k

        @property
        def bias(self) -> float:
            return 1.0

        @classmethod
        def name(cls) -> str:
            return cls.__name__

    class Left(Base):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + 1

    class Right(Base):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 2

    class Both(Left, Right):
        def forward(self, x: Any) -> Any:
            return super().forward(x) - super().bias + len(super().name())

    m = Both(2.0)
    f, g = trace(lambda x: m.forward(x)), trace(m.forward)
    yield f(X), g(X)
    m.k = 3.0
    yield f(X), g(X)
    Right.forward = lambda self, x: x
    yield f(X), g(X)
    yield trace(lambda x, k: Both(k).forward(x))(X, 2.0)


@program
def test_descriptors(trace: Any) -> Any:
    class Scaled:
        def __init__(self, factor: float):
            self.factor = factor

        def __set_name__(self, owner: Any, name: str) -> None:
            self.name = "_" + name

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else getattr(instance, self.name) * self.factor

        def __set__(self, instance: Any, value: Any) -> None:
            setattr(instance, self.name, value)

    class Model:
        w = Scaled(2.0)

        def __init__(self, w: Any):
            self.w = w

    m = Model(X)
    f = trace(lambda x: x * m.w)
    yield f(X)
    m.w = X + 1
    yield f(X)
    Model.__dict__["w"].factor = 3.0
    yield f(X)
    yield trace(lambda x: Model(x).w)(X)


@program
def test_getattr_of_classes(trace: Any) -> Any:
    class Params:
        def __init__(self, **values: Any):
            self.values = values

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in self.values:
                raise AttributeError(name)
            return self.values[name]

    p = Params(w=X, k=2.0)

    @trace
    def f(x: Any) -> Any:
        return x * p.w * p.k + getattr(p, "b", 0.0)

    yield f(X)
    p.values["k"] = 3.0
    yield f(X)
    p.values["w"] = X + 1
    yield f(X)
    p.values["b"] = 5.0
    yield f(X)
    p.k = 10.0
    yield f(X)


@program
def test_callable_objects(trace: Any) -> Any:
    class Layer:
        def __init__(self, w: Any):
            self.w = w

        def __call__(self, x: Any, *, shift: float = 0.0) -> Any:
            return x * self.w + shift

    layers = [Layer(2.0), Layer(X)]

    @trace
    def f(x: Any) -> Any:
        for layer in layers:
            x = layer(x, shift=1.0)
        return x

    yield f(X), trace(layers[0])(X), trace(layers[1])(X, shift=2.0)
    layers[0].w = 3.0
    yield f(X), trace(layers[0])(X)
    layers.append(Layer(-1.0))
    yield f(X)


class Dual:
    """A user's number with operators, which holds arrays."""

    def __init__(self, a: Any, b: Any):
        self.a, self.b = a, b

    def __add__(self, other: Any) -> Any:
        other = other if isinstance(other, Dual) else Dual(other, 0.0)
        return Dual(self.a + other.a, self.b + other.b)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        other = other if isinstance(other, Dual) else Dual(other, 0.0)
        return Dual(self.a * other.a, self.a * other.b + self.b * other.a)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return Dual(-self.a, -self.b)

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __getitem__(self, i: Any) -> Any:
        return Dual(self.a[i], self.b[i])

    def __len__(self) -> int:
        return len(self.a)

    def __iter__(self) -> Any:
        return iter((self.a, self.b))

    def __contains__(self, x: Any) -> bool:
        return x == "a"

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> Any:
        return isinstance(other, Dual) and self.a is other.a

    def __hash__(self) -> int:
        return 1

    def __matmul__(self, other: Any) -> Any:
        return self.a @ other.a

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.closed = True

    def __iadd__(self, other: Any) -> Any:
        self.a = self.a + other
        return self

    def __abs__(self) -> Any:
        return Dual(np.abs(self.a), self.b)

    def __lt__(self, other: Any) -> Any:
        return self.a < other.a


@program
def test_operators_of_users_classes_made_inside(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        d = Dual(x, np.ones(3))
        e = d * d + 2.0 * d - d[0] + 3.0
        a, b = e
        e += 1.0
        with e as held:
            a = a + held.a
        return a, b, len(d), "a" in d, d @ d, abs(d).a, bool(d), d == d, np.any(d < e)

    for x in (X, X * 2):
        yield f(x)


@program
def test_operators_of_users_classes_from_outside(trace: Any) -> Any:
    d = Dual(X, np.ones(3))

    @trace
    def f(x: Any) -> Any:
        e = d * Dual(x, x) + 2.0 * d - d[0]
        a, b = d
        return e.a, e.b, a + b, len(d), "a" in d, "b" in d, d @ d, abs(d).a, x if d else -x

    yield f(X)
    d.a = X + 1
    yield f(X)
    d.a[:] = 2.0
    yield f(X)


@dataclasses.dataclass
class Plain:
    w: Any
    k: float = 2.0
    names: list[str] = dataclasses.field(default_factory=list)

    def forward(self, x: Any) -> Any:
        return x * self.w * self.k + len(self.names)


@dataclasses.dataclass(frozen=True)
class Frozen:
    w: Any
    k: float = 2.0

    def forward(self, x: Any) -> Any:
        return x * self.w * self.k

    @property
    def half(self) -> float:
        return self.k / 2


@dataclasses.dataclass(slots=True)
class WithSlots:
    w: Any
    k: float = 2.0

    def __post_init__(self) -> None:
        self.k = self.k + 1

    def forward(self, x: Any) -> Any:
        return x * self.w * self.k


@pytest.mark.parametrize("cls", [Plain, Frozen, WithSlots])
def test_dataclasses(cls: Any) -> None:
    def script(trace: Any) -> Any:
        held = cls(X)

        @trace
        def of_outside(x: Any) -> Any:
            return held.forward(x) + dataclasses.replace(held, k=5.0).forward(x), len(dataclasses.fields(held))

        @trace
        def of_argument(m: Any, x: Any) -> Any:
            return m.forward(x), dataclasses.replace(m, w=m.w + 1), dataclasses.asdict(m)["k"], isinstance(m, cls)

        yield of_outside(X)
        yield of_argument(held, X)
        held = cls(X + 1, 3.0)
        yield of_outside(X), of_argument(held, X)
        held.w[:] = 1.0
        yield of_outside(X), of_argument(held, X)
        yield attempt(trace(lambda m: setattr(m, "k", 1.0)), held) if cls is Frozen else None

    compare(script, "traced")
    compare(script, "disabled")


class Point(NamedTuple):
    x: Any
    y: Any = 1.0

    @property
    def norm(self) -> Any:
        return np.sqrt(self.x * self.x + self.y * self.y)

    def moved(self, by: Any) -> Any:
        return self._replace(x=self.x + by)


@program
def test_named_tuples(trace: Any) -> Any:
    p = Point(X)

    @trace
    def f(q: Any) -> Any:
        a, b = q
        return q.moved(a).norm + p.norm, Point(a * b), q._asdict(), p._fields, q[0] is a, isinstance(q, tuple)

    yield f(Point(X, 2.0))
    p = Point(X, 5.0)
    yield f(Point(X, 2.0))
    yield f(p)


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2

    def scale(self) -> float:
        return 2.0 if self is Mode.TRAIN else 1.0


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Text(enum.StrEnum):
    SUM = "sum"
    MEAN = "mean"


@program
def test_enums(trace: Any) -> Any:
    mode = Mode.TRAIN

    @trace
    def f(x: Any, given: Any = Mode.TEST, level: Any = Level.LOW, flags: Any = Flags.A, how: Any = Text.SUM) -> Any:
        y = x * mode.scale() * given.scale() + level + (10.0 if Flags.B in flags else 0.0)
        return (np.sum(y) if how == "sum" else np.mean(y)), given.name, given.value, given

    yield f(X)
    mode = Mode.TEST
    yield f(X)
    yield f(X, Mode.TRAIN), f(X, given=Mode.TRAIN)
    yield f(X, Mode.TRAIN, Level.HIGH), f(X, flags=Flags.A | Flags.B), f(X, how=Text.MEAN)
    yield f(X, level=2)


# -- statements --------------------------------------------------------------------------------------------------------
@program
def test_match(trace: Any) -> Any:  # noqa: C901
    @trace
    def f(command: Any, x: Any) -> Any:
        match command:
            case "double":
                return x * 2
            case ("scale", k):
                return x * k
            case {"op": "add", "by": by, **rest}:
                return x + by + len(rest)
            case Point(x=a, y=b):
                return x * a + b
            case Frozen(w, k=k) if k > 1:
                return x * w * k
            case [first, *others]:
                return x * first + len(others)
            case Mode.TRAIN:
                return -x
            case int() | float():
                return x + command
            case None:
                return x
            case _:
                return x * 0

    cases: list[Any] = [
        "double",
        "other",
        ("scale", 3.0),
        {"op": "add", "by": 1.0, "z": 2.0},
        {"op": "sub"},
        Point(2.0, 3.0),
        Frozen(2.0, 3.0),
        Frozen(2.0, 0.5),
        [4.0, 1.0, 2.0],
        Mode.TRAIN,
        Mode.TEST,
        3,
        4.5,
        None,
    ]
    for c in cases:
        yield f(c, X)
    for c in cases:
        yield f(c, X)


@program
def test_walrus_and_comprehensions(trace: Any) -> Any:
    @trace
    def f(x: Any, n: int = 3) -> Any:
        if (total := np.sum(x)) > 0:
            x = x + total
        values = [y := x * i for i in range(3)]
        table = {i: v for i, v in enumerate(values) if i}
        nested = [[a * b for a in (1.0, 2.0)] for b in x]
        return y, table, sum(v for v in values), nested[1][1], {n * n for n in range(3)}, [*values, *table.values()]

    yield f(X)
    yield f(-X)


def counted(n: int, x: Any) -> Any:
    got = None
    for i in range(n):
        got = yield x * i
        if got is not None:
            x = x + got
    return x


def delegated(x: Any) -> Any:
    first = yield from counted(2, x)
    yield first + 100
    yield from (v * 2 for v in counted(2, first))


@program
def test_generators(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        g = counted(3, x)
        a = next(g)
        b = g.send(1.0)
        rest = list(g)
        try:
            next(g)
            ended = False
        except StopIteration:
            ended = True
        h = counted(5, x)
        next(h)
        h.close()
        return a, b, rest, ended, list(delegated(x)), max(float(np.sum(v)) for v in counted(3, x))

    for x in (X, X + 1):
        yield f(x)


@program
def test_context_managers(trace: Any) -> Any:
    @contextlib.contextmanager
    def scaled(x: Any) -> Any:
        yield x * 2

    class Doubled:
        def __enter__(self) -> float:
            return 2.0

        def __exit__(self, *_: Any) -> bool:
            return True

    @trace
    def f(x: Any) -> Any:
        with scaled(x) as y, Doubled() as k, contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
            z = stack.enter_context(scaled(y))
            raise KeyError
        return z * k

    yield f(X)
    yield f(X + 1)


def test_async_functions_are_refused() -> None:
    async def f(x: Any) -> Any:
        return x

    async def g(x: Any) -> Any:
        yield x

    for h in (f, g):
        with pytest.raises(tg.errors.TraceError, match="async"):
            tg.trace(h)(X)
        with pytest.raises(tg.errors.TraceError, match="async"):
            tg.grad(h)(X)


def test_generator_functions_are_refused() -> None:
    with pytest.raises(tg.errors.TraceError, match="generator"):
        tg.trace(lambda x: (yield x))(X)
    with pytest.raises(tg.errors.TraceError, match="return a list"):
        tg.trace(lambda x: (y for y in x))(X)


@program
def test_try_else_finally_and_loops_with_else(trace: Any) -> Any:
    @trace
    def f(x: Any, n: int) -> Any:
        log = []
        for i in range(4):
            try:
                if i == n:
                    break
                if i == 1:
                    continue
                log.append(i)
            except ValueError:
                log.append("v")
            else:
                log.append("e")
            finally:
                log.append("f")
        else:
            log.append("done")
        while len(log) < 3:
            log.append(0)
        else:
            log.append("w")
        del n
        return x * len(log), log

    for n in (0, 2, 7):
        yield f(X, n)


# -- functions ---------------------------------------------------------------------------------------------------------
@program
def test_partial_reduce_and_wraps(trace: Any) -> Any:
    def scaled(k: Any, x: Any, *, shift: Any = 0.0) -> Any:
        return x * k + shift

    def logged(g: Any) -> Any:
        @functools.wraps(g)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return g(*args, **kwargs) + wrapper.extra

        wrapper.extra = 1.0
        return wrapper

    half = functools.partial(scaled, 0.5, shift=1.0)
    wrapped = logged(scaled)

    @trace
    def f(x: Any) -> Any:
        folded = functools.reduce(lambda a, b: a * 2 + b, [x, x + 1, x + 2], x)
        inner = functools.partial(scaled, x, shift=x)
        return half(x), wrapped(2.0, x), folded, inner(x), functools.reduce(operator.add, [x, x])

    yield f(X), trace(half)(X), trace(wrapped)(2.0, X)
    half = functools.partial(scaled, 0.25)
    yield f(X), trace(half)(X)
    wrapped.extra = 5.0
    yield f(X), trace(wrapped)(2.0, X)


@program
def test_single_dispatch(trace: Any) -> Any:
    @functools.singledispatch
    def area(shape: Any, x: Any) -> Any:
        return x

    @area.register
    def _(shape: Plain, x: Any) -> Any:
        return x * shape.w

    @area.register(tuple)
    def _(shape: Any, x: Any) -> Any:
        return x * shape[0]

    p = Plain(X)
    f, g = trace(lambda x: area(p, x) + area((2.0,), x) + area("s", x)), trace(lambda s, x: area(s, x))
    yield f(X), g(p, X), g((3.0,), X)
    p.w = X + 1
    yield f(X), g(p, X)
    area.register(str, lambda s, x: x * 100)
    yield f(X)


@program
def test_single_dispatch_on_arrays(trace: Any) -> Any:
    @functools.singledispatch
    def kind(x: Any) -> Any:
        return 0.0

    kind.register(np.ndarray, lambda x: x * 2)
    kind.register(float, lambda x: x * 3)
    kind.register(int, lambda x: x * 5)
    f = trace(lambda x, k, n: (kind(x), kind(k), kind(n)))
    yield f(X, 2.0, 3)


@program
def test_cached_properties_and_caches(trace: Any) -> Any:
    class Model:
        def __init__(self, w: Any):
            self.w = w

        @functools.cached_property
        def squared(self) -> Any:
            return self.w * self.w

        @functools.cached_property
        def count(self) -> int:
            return len(self.w)

    @functools.cache
    def table(n: int) -> Any:
        return np.arange(float(n))

    @functools.cache
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + depth(n - 1)

    m = Model(X)
    f = trace(lambda x: x * m.squared * m.count + table(3) + depth(3))
    yield f(X)
    yield f(X)
    m = Model(X + 1)
    yield f(X)
    yield trace(lambda x: Model(x).squared)(X)


@program
def test_itertools(trace: Any) -> Any:
    rows = [X, X + 1, X + 2]

    @trace
    def f(x: Any) -> Any:
        pairs = [a * b for a, b in itertools.pairwise(rows)]
        product = sum(a * b for a, b in itertools.product([1.0, 2.0], [x, x + 1]))
        running = list(itertools.accumulate([x, x, x]))
        chained = list(itertools.chain([x], rows, itertools.repeat(x, 2)))
        some = list(itertools.islice(itertools.count(1.0, 0.5), 3))
        starred = list(itertools.starmap(np.add, [(x, 1.0), (x, 2.0)]))
        zipped = [a if b is None else a + b for a, b in itertools.zip_longest(rows, [x])]
        grouped = {k: sum(v) for k, v in itertools.groupby([1, 1, 2], key=lambda n: n)}
        combined = [a * b for a, b in itertools.combinations(rows, 2)]
        taken = list(itertools.takewhile(lambda n: n < 3, range(5)))
        cycled = [c for c, _ in zip(itertools.cycle([x, -x]), range(3))]
        return pairs, product, running, len(chained), some, starred, zipped, grouped, combined, taken, cycled

    yield f(X)
    rows.append(X * 3)
    yield f(X)


@program
def test_the_operator_module(trace: Any) -> Any:
    d, o = {"w": X}, types.SimpleNamespace(a=types.SimpleNamespace(b=X))

    @trace
    def f(x: Any) -> Any:
        return (
            operator.add(x, 1.0),
            operator.itemgetter(0)(x),
            operator.itemgetter("w")(d),
            operator.attrgetter("a.b")(o),
            operator.methodcaller("sum")(x),
            operator.neg(x),
            operator.matmul(x, x),
            operator.getitem(x, slice(1, 3)),
            operator.truediv(x, 2.0),
            operator.mul(x, x),
            operator.lt(x, 0.0),
        )

    yield f(X)
    d["w"] = X + 1
    yield f(X)
    o.a.b = X + 2
    yield f(X)


@program
def test_copies(trace: Any) -> Any:
    class Model:
        def __init__(self, w: Any):
            self.w, self.inner = w, {"k": [w, 2.0]}

    m, params = Model(X), {"a": [X, 1.0]}

    @trace
    def f(x: Any, p: Any) -> Any:
        a, b, c = copy.deepcopy(p), copy.copy(p), copy.deepcopy(params)
        a["w"] = a["w"] + 1.0
        b["w"] = b["w"] + 2.0
        c["a"][0] = c["a"][0] * x
        y = copy.deepcopy(x)
        y += 1.0
        return a, b, c, p, y, x, copy.deepcopy(m.w), copy.deepcopy([x, {"z": x}])

    yield f(X, {"w": X})
    params["a"][1] = 5.0
    yield f(X, {"w": X}), params
    m.w = X + 1
    yield f(X, {"w": X})


@program
def test_copies_of_objects(trace: Any) -> Any:
    class Model:
        def __init__(self, w: Any):
            self.w, self.inner = w, {"k": [w, 2.0]}

        def forward(self, x: Any) -> Any:
            return x * self.w + self.inner["k"][1]

    m = Model(X)

    @trace
    def f(x: Any) -> Any:
        c = copy.deepcopy(m)
        c.inner["k"][1] = 7.0
        c.w = c.w + x
        d = copy.copy(m)
        d.w = x
        return c.forward(x), d.forward(x), m.forward(x)

    yield f(X)
    m.w = X + 1
    yield f(X), m.inner["k"][1]


@program
def test_isinstance(trace: Any) -> Any:
    @trace
    def f(x: Any, k: Any, n: Any, b: Any, s: Any) -> Any:
        return [
            isinstance(x, np.ndarray | float),
            isinstance(x, np.ndarray),
            isinstance(x, float | int),
            isinstance(k, float | int),
            isinstance(k, numbers.Real),
            isinstance(n, numbers.Integral),
            isinstance(n, int),
            isinstance(n, bool),
            isinstance(b, bool),
            isinstance(k, np.ndarray),
            isinstance(s, collections.abc.Sequence),
            isinstance(s, list),
            isinstance(x, collections.abc.Sequence),
            isinstance(x, collections.abc.Iterable),
            isinstance(x, (tuple, np.ndarray)),
            isinstance(k, str),
            type(k) is float,
            type(n) is int,
            type(x) is np.ndarray,
            type(b) is bool,
            type(s) is list,
            issubclass(type(k), float),
            callable(f),
            isinstance(None, types.NoneType),
            isinstance(x, collections.abc.Hashable),
            isinstance(s, collections.abc.MutableSequence),
        ]

    yield f(X, 2.0, 3, True, [1.0, 2.0])


@runtime_checkable
class Runs(Protocol):
    def run(self, x: Any) -> Any: ...


class Base(abc.ABC):
    @abc.abstractmethod
    def run(self, x: Any) -> Any: ...


T = TypeVar("T")


class Runner(Base, Generic[T]):
    def __init__(self, k: float):
        self.k = k

    def run(self, x: Any) -> Any:
        return x * self.k

    @classmethod
    def __class_getitem__(cls, item: Any) -> Any:
        return cls


@program
def test_abstract_classes_protocols_and_generics(trace: Any) -> Any:
    r = Runner(2.0)

    @trace
    def f(x: Any) -> Any:
        flags = [isinstance(r, Base), isinstance(r, Runs), isinstance(r, Runner), type(r) is Runner, hasattr(r, "run")]
        return r.run(x) + Runner[int](3.0).run(x), flags, isinstance(attempt, collections.abc.Callable)

    yield f(X)
    r.k = 5.0
    yield f(X)


@program
def test_strings_and_enums_are_static_by_themselves(trace: Any) -> Any:
    @trace
    def f(x: Any, how: str, options: Any, kind: Any = "linear", *rest: str, dtype: Any = None) -> Any:
        y = {"sum": np.sum, "mean": np.mean}[how](x)
        y = y * (2.0 if options["mode"] == "twice" else 1.0) + options["k"]
        y = y + {"linear": 0.0, None: 1.0}.get(kind, 2.0) + len(rest)
        return (y, options, how) if dtype is None else y.astype(dtype)

    for how in ("sum", "mean", "sum"):
        yield f(X, how, {"mode": "twice", "k": 1.0})
    yield f(X, "sum", {"mode": "once", "k": 1.0}), f(X, "sum", {"mode": "once", "k": X}, None)
    yield f(X, how="sum", options={"mode": "once", "k": 2.0}, kind="cubic")
    yield f(X, "sum", {"mode": "once", "k": 1.0}, "linear", "a", "b")
    yield f(X, "sum", {"mode": "once", "k": 1.0}, dtype=np.dtype("float32"))
    yield attempt(f, X, "other", {"mode": "once", "k": 1.0})


@program
def test_other_static_arguments(trace: Any) -> Any:
    @trace
    def f(x: Any, where: Any = None, size: Any = (), cls: Any = None) -> Any:
        y = x if where is None else x[where]
        y = np.zeros(size) + np.sum(y) if size else y
        return y if cls is None else y.astype(cls), cls

    yield f(X, slice(1, None)), f(X, slice(0, 2)), f(X, slice(0, 2, 1)), f(X, Ellipsis)
    yield f(X, None, (2, 2)), f(X, cls=np.float32), f(X, cls=float), f(X, cls=np.dtype("float32"))


@program
def test_other_static_containers(trace: Any) -> Any:
    @trace
    def f(x: Any, over: Any = ()) -> Any:
        return x, [x * i for i in over], 1 in over

    yield f(X), f(X, over=range(2)), f(X, over=range(3)), f(X, over=frozenset({1})), f(X, over=b"\x01")


@program
def test_gradients_with_static_arguments(trace: Any) -> Any:
    def loss(w: Any, x: Any, how: str = "sum", *, mode: Any = Mode.TRAIN) -> Any:
        y = w * x * mode.scale()
        return np.sum(y * y) if how == "sum" else np.mean(y)

    yield tg.grad(loss)(X, X), tg.grad(loss)(X, X, "mean"), tg.grad(loss)(X, X, how="mean", mode=Mode.TEST)
    yield tg.grad(loss, argnums=1)(X, X, "sum"), trace(lambda w: tg.grad(loss)(w, w, "mean"))(X)


@program
def test_every_kind_of_parameter(trace: Any) -> Any:
    bias = np.ones(3)

    @trace
    def f(a: Any, b: Any = 2.0, /, c: Any = bias, *rest: Any, d: Any, e: Any = 1.0, **more: Any) -> Any:
        total = a * b + c + d * e
        for i, r in enumerate(rest):
            total = total + (i + 1) * r
        return total, len(rest), list(more), [v * 2 for v in more.values()]

    yield f(X, d=1.0), f(X, 3.0, d=X), f(X, 3.0, X, X, 1.0, d=1.0, e=2.0)
    yield f(X, d=1.0, z=X, a=2.0), f(X, c=X, d=1.0, b=3.0), f(*[X, 1.0], d=2.0, q=X)
    bias[:] = 5.0
    yield f(X, d=1.0)
    yield attempt(f, X), attempt(f, a=X, d=1.0), attempt(f, d=1.0)


@program
def test_decorators_of_the_users(trace: Any) -> Any:  # noqa: C901
    calls = []

    def counted(g: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            calls.append(len(args))
            return g(*args, **kwargs)

        return wrapper

    def scaled(k: float) -> Any:
        def decorate(g: Any) -> Any:
            @functools.wraps(g)
            def wrapper(x: Any) -> Any:
                return g(x) * k

            return wrapper

        return decorate

    class Memo:
        def __init__(self, g: Any):
            self.g, self.uses = g, 0
            functools.update_wrapper(self, g)

        def __call__(self, x: Any) -> Any:
            self.uses += 1
            return self.g(x)

    @trace
    @scaled(2.0)
    @scaled(3.0)
    def f(x: Any) -> Any:
        return x + 1

    @counted
    @trace
    def g(x: Any) -> Any:
        return x - 1

    @trace
    @Memo
    def h(x: Any) -> Any:
        return x * 5

    @Memo
    @trace
    def k(x: Any) -> Any:
        return x * 7

    for _ in range(3):
        yield f(X), g(X), h(X), k(X), trace(lambda x: k(x) + g(x) + f(x))(X), len(calls), k.uses
    yield f.__name__


@program
def test_recursion_and_closures(trace: Any) -> Any:
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    def adder(k: Any) -> Any:
        def add(x: Any) -> Any:
            nonlocal k
            k = k + 1
            return x + k

        return add

    @trace
    def f(x: Any) -> Any:
        add = adder(x)
        return (
            power(x, 3),
            add(x),
            add(x),
            (lambda y, z=x: y * z)(2.0),
            [g(x) for g in [lambda v, i=i: v * i for i in (1, 2)]],
        )

    yield f(X)
    yield f(X + 1)


@program
def test_classes_and_functions_defined_inside(trace: Any) -> Any:
    scale = 2.0

    @trace
    def f(x: Any) -> Any:
        class Local:
            k = scale
            offset = len("ab")
            table = SOME

            def __init__(self, w: Any):
                self.w = w

            def forward(self, y: Any) -> Any:
                return y * self.w * self.k + self.offset + self.table

        @dataclasses.dataclass
        class Pair:
            a: Any
            b: Any = 1.0

        class Way(enum.Enum):
            UP = 1

        pair = Pair(x)
        return Local(x).forward(x) + pair.a * pair.b, Way.UP.value

    yield f(X)
    scale = 3.0
    yield f(X)
    globals()["SOME"] = 7.0
    yield f(X)
    globals()["SOME"] = 1.0


SOME = 1.0


@program
def test_eval_and_exec(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        space = {"x": x}
        exec("y = x * 2", space)
        return eval("x + SOME"), space["y"], eval("z * 2", {"z": x})

    yield f(X)
    globals()["SOME"] = 4.0
    yield f(X)
    globals()["SOME"] = 1.0


@program
def test_local_variables(trace: Any) -> Any:
    @trace
    def f(x: Any, k: Any) -> Any:
        y = x * k
        return sorted(locals()), locals()["y"], f"{len(x)}", f"{len(y)=}"

    yield f(X, 2.0)


# -- talking -----------------------------------------------------------------------------------------------------------
def test_print_and_logging_tell_the_values_of_the_call_that_is_traced(capsys: Any, caplog: Any) -> None:
    log = logging.getLogger("of the user's")

    @tg.trace
    def f(x: Any) -> Any:
        y = x * 2
        print("y", y[0], "of", x.shape, sep="|", file=sys.stdout)  # noqa: T201
        log.warning("mean %.2f", np.mean(y))
        logging.getLogger(__name__).error("sum %s", len(y))
        return y

    f(X)
    assert capsys.readouterr().out == "y|2.0|of|(3,)\n"
    assert [r.getMessage() for r in caplog.records] == ["mean 1.33", "sum 3"]


def test_a_breakpoint_sees_values(monkeypatch: Any) -> None:
    seen = []

    def hook(*args: Any, **kwargs: Any) -> None:
        frame = sys._getframe()
        while frame.f_code.co_name != "stopped":
            frame = frame.f_back  # type: ignore[assignment]
        seen.append({name: repr(v) for name, v in frame.f_locals.items()})

    @tg.trace
    def stopped(x: Any, k: Any) -> Any:
        y = x * k
        breakpoint()
        return y

    monkeypatch.setattr(sys, "breakpointhook", hook)
    np.testing.assert_array_equal(stopped(X, 2.0), X * 2)
    values = {"x": "array([ 1., -2.,  3.])", "k": "2.0", "y": "array([ 2., -4.,  6.])"}
    assert seen == [values]


# -- transforms of what is made anew -----------------------------------------------------------------------------------
class Loss:
    def __init__(self, k: float):
        self.k = k

    def loss(self, x: Any) -> Any:
        return np.sum(x * x) * self.k


def traces(run: Any, n: int = 50) -> int:
    """How many traces n runs take."""
    from tracegrad.runtime.dispatch import dispatcher

    count = 0
    before = dispatcher.trace_call

    def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return before(*args, **kwargs)

    dispatcher.trace_call = counting
    try:
        for i in range(n):
            run(i)
    finally:
        dispatcher.trace_call = before
    return count


TRANSFORMS = {
    "grad": lambda f: tg.grad(f)(X),
    "value_and_grad": lambda f: tg.value_and_grad(f)(X)[1],
    "vjp": lambda f: tg.vjp(f, X)[1](1.0)[0],  # two programs
    "linearize": lambda f: tg.linearize(f, X)[1](np.ones(3)),
    "jacrev": lambda f: tg.jacrev(f)(X),
    "jacfwd": lambda f: tg.jacfwd(f)(X),
    "jvp": lambda f: tg.jvp(f, (X,), (np.ones(3),))[1],
    "vmap": lambda f: tg.vmap(f)(X[:, None])[:, None],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_fresh_lambdas_share_their_programs(transform: str) -> None:
    def run(i: int) -> None:
        k = 2.0 + i % 3
        result = TRANSFORMS[transform](lambda x: np.sum(x * x) * k)
        expected = {"jvp": 2 * k * np.sum(X), "linearize": 2 * k * np.sum(X), "vmap": (X * X * k)[:, None]}.get(
            transform, 2 * k * X
        )
        np.testing.assert_allclose(result, expected)

    assert traces(run) <= (8 if transform in ("vjp", "linearize") else 4)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_bound_methods_share_their_programs(transform: str) -> None:
    model = Loss(2.0)

    def run(i: int) -> None:
        model.k = k = 2.0 + i % 3
        result = TRANSFORMS[transform](model.loss)
        expected = {"jvp": 2 * k * np.sum(X), "linearize": 2 * k * np.sum(X), "vmap": (X * X * k)[:, None]}.get(
            transform, 2 * k * X
        )
        np.testing.assert_allclose(result, expected)

    assert traces(run) <= (8 if transform in ("vjp", "linearize") else 4)


@pytest.mark.parametrize("n", [1, 8])
def test_what_shared_programs_do_to_the_world_they_do_to_their_own(n: int) -> None:
    def made(k: float) -> Any:
        count, history, model = 0, [], Loss(k)
        table = {"k": k}

        def f(x: Any) -> Any:
            nonlocal count
            count += 1
            model.k = model.k + 1.0
            history.append(x[0])
            table["last"] = x
            return model.loss(x) + np.sum(x) * table["k"]

        return f, lambda: (count, history, model.k, table)

    for i in range(n):
        k = float(i % 3)
        f, state = made(k)
        np.testing.assert_allclose(tg.grad(f)(X), 2 * (k + 1) * X + k)
        np.testing.assert_allclose(tg.value_and_grad(f)(X + 1)[1], 2 * (k + 2) * (X + 1) + k)
        count, history, there, table = state()
        assert (count, history, there) == (2, [1.0, 2.0], k + 2)
        np.testing.assert_array_equal(table["last"], X + 1)


class Kind:
    """A sentinel of a user's class."""


ONE, TWO = Kind(), Kind()


@program
def test_shared_programs_tell_their_functions_apart(trace: Any) -> Any:  # noqa: C901
    def through(f: Any) -> Any:
        return trace(tg.grad(f))(X), tg.grad(f)(X), tg.value_and_grad(f)(X)

    def by_default(k: Any) -> Any:
        return lambda x, k=k, *, j=k: np.sum(x * x * k) + np.sum(x * j)

    def by_function(g: Any) -> Any:
        return lambda x: np.sum(g(x))

    def by_kind(kind: Any) -> Any:
        return lambda x: np.sum(x * x) if kind is ONE else np.sum(x)

    def by_two(a: Any, b: Any) -> Any:
        return lambda x: np.sum(a.loss(x)) + (b.k if a is b else 0.0) * np.sum(x)

    def by_container(params: Any) -> Any:
        return lambda x: np.sum(x * params["w"][0]) * len(params)

    def by_mode(mode: Any) -> Any:
        return lambda x: np.sum(x * x) if mode == "square" else np.sum(x) * mode

    def by_cell(late: Any) -> Any:
        if late:
            k = late
        return lambda x: np.sum(x * x) * (k if late else 1.0)

    one, two = Loss(2.0), Loss(2.0)
    for k in (1.0, 2.0, 3, X, np.float64(3.0), 1.0):
        yield through(by_default(k))
    for g in (
        np.sin,
        np.cos,
        lambda x: x * 2,
        lambda x: x * 3,
        functools.partial(np.add, 2.0),
        one.loss,
        two.loss,
        np.sin,
    ):
        yield through(by_function(g))
    for kind in (ONE, TWO, ONE, Kind(), TWO):
        yield through(by_kind(kind))
    for a, b in ((one, two), (one, one), (two, one), (two, two), (one, two)):
        yield through(by_two(a, b))
    for params in ({"w": [X]}, {"w": [X + 1]}, {"w": [X], "b": 1}, {"w": (X,)}, {"w": [2.0, 3.0]}, {"w": [X]}):
        yield through(by_container(params))
    for mode in ("square", 2.0, 3.0, "square", 4):
        yield through(by_mode(mode))
    for late in (0.0, 2.0, None, 3.0):
        yield through(by_cell(late))


@program
def test_the_same_code_over_other_globals(trace: Any) -> Any:
    for k in (2.0, 3.0, 2.0):
        space = {"np": np, "K": k}
        exec("f = lambda x: np.sum(x * x) * K", space)
        yield tg.grad(space["f"])(X), trace(space["f"])(X)
        space["K"] = 7.0
        yield tg.grad(space["f"])(X), trace(space["f"])(X)


def test_a_shared_gradient_finds_its_own_hot_path() -> None:
    def made(k: float) -> Any:
        return tg.grad(lambda x: np.sum(x * x) * k)

    first, second, third = made(1.0), made(2.0), made(3.0)
    for _ in range(3):
        for k, g in ((1.0, first), (2.0, second), (3.0, third)):
            np.testing.assert_allclose(g(X), 2 * k * X)
    assert type(second) is not tg.trace(np.sin).__class__, "no hot path was made"


@program
def test_methods_of_instances_that_nothing_else_refers_to(trace: Any) -> Any:
    class Scaled:
        def __init__(self, k: float):
            self.k = k

        @trace
        def scale(self, x: Any) -> Any:
            return x * self.k

    def make(k: float) -> Any:
        return Scaled(k)

    for k in (2.0, 3.0):
        yield Scaled(k).scale(X), make(k + 1).scale(X), [Scaled(k)][0].scale(X)


def test_a_traced_method_whose_instance_is_gone_says_so() -> None:
    class Scaled:
        @tg.trace
        def scale(self, x: Any) -> Any:
            return x

    scaled = Scaled()
    scale = scaled.scale
    del scaled
    with pytest.raises(ReferenceError, match=r"keep the instance, not its method \(.*test_meaning_forms.py:\d+\)"):
        scale(X)
