"""Programs with state that were sought with the intent to break traced code."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg

X = np.arange(3.0)
COUNT = 0


class Box:
    """An object with attributes."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


@program
def test_items_of_nested_containers(trace: Any) -> Any:
    layers = [{"w": np.ones(2), "n": 0}, {"w": np.zeros(2), "n": 5}]

    @trace
    def f(x: Any) -> Any:
        for layer in layers:
            layer["w"] = layer["w"] + x
            layer["n"] += 1
        layers[0]["w"][0] = 7.0
        return layers[0]["w"].sum()

    for _ in range(3):
        yield f(np.ones(2)), layers


@program
def test_objects_that_lead_to_objects(trace: Any) -> Any:
    last = Box(value=1.0, next=None)
    first = Box(value=0.5, next=last)

    @trace
    def f(x: Any) -> Any:
        node, total = first, 0.0
        while node is not None:
            node.value *= 2.0
            total = total + node.value * x.sum()
            node = node.next
        return total

    for _ in range(3):
        yield f(X), first.value, last.value
    last.next = Box(value=10.0, next=None)
    yield f(X), first.value, last.value, last.next.value


@program
def test_dicts_of_attributes(trace: Any) -> Any:
    box = Box(a=1.0, b=np.ones(2))

    @trace
    def f(x: Any) -> Any:
        vars(box)["c"] = x * 2
        box.__dict__.update(a=box.a + 1)
        setattr(box, "d" + "e", box.c.sum())
        box.b = box.b * box.a
        return box.c * box.de

    for _ in range(3):
        yield f(np.ones(2)), vars(box)


@program
def test_a_class_attribute_that_an_instance_hides(trace: Any) -> Any:
    class Thing:
        count = 0
        table: Any = None

    one, two = Thing(), Thing()

    @trace
    def f(x: Any) -> Any:
        one.count += 1
        one.table = {"x": x}
        return x * one.count + two.count

    for _ in range(3):
        yield f(X), one.count, two.count, Thing.count, one.table, Thing.table


@program
def test_mutable_defaults(trace: Any) -> Any:
    def f(x: Any, seen: Any = [], table: Any = {"n": 1}) -> Any:  # noqa: B006
        seen.append(x.sum())
        table["n"] += 1
        return x * table["n"]

    def g(x: Any, *, last: Any = [0.0]) -> Any:  # noqa: B006
        out = last[0] + x
        last[0] = x * 2
        return out

    traced, other = trace(lambda x: f(x)), trace(lambda x: g(x))
    for _ in range(3):
        yield traced(X), f.__defaults__, other(X), g.__kwdefaults__


@program
def test_lists_that_are_changed_in_every_way(trace: Any) -> Any:
    xs: list[Any] = [np.ones(2), 2.0, np.zeros(2), 3]

    @trace
    def f(x: Any) -> Any:
        xs[0], xs[2] = xs[2], xs[0]
        xs.reverse()
        first = xs.pop(0)
        xs.insert(1, first)
        xs[1:2] = [x, 1.0]
        del xs[-1]
        xs.extend([x * 2, 3])
        return xs[0] * x

    for _ in range(3):
        yield attempt(f, np.ones(2)), xs


@program
def test_kinds_of_dicts(trace: Any) -> Any:
    lists: Any = collections.defaultdict(list)
    order: Any = collections.OrderedDict(a=1.0, b=2.0)
    count: Any = collections.Counter()

    @trace
    def f(x: Any) -> Any:
        lists["loss"].append(x.sum())
        order.move_to_end("a")
        order["c"] = order["a"] * 2
        count.update("ab")
        return x * order["c"] * len(lists["loss"])

    for _ in range(3):
        yield f(X), dict(lists), list(order.items()), dict(count), type(lists), lists.default_factory is list


@program
def test_arguments_that_come_back(trace: Any) -> Any:
    @trace
    def f(state: Any, x: Any) -> Any:
        state["n"] = state["n"] + 1
        state["items"].append(x)
        state["new"] = {"x": x * 2}
        return state

    state: Any = {"n": 0, "items": []}
    for _ in range(3):
        result = f(state, X)
        yield result is state, result["items"] is state["items"], state


@program
def test_keyword_dicts_are_new_at_each_call(trace: Any) -> Any:
    @trace
    def f(x: Any, *rest: Any, **given: Any) -> Any:
        given["more"] = x
        return sum(v.sum() for v in given.values()) + len(rest)

    kwargs = {"a": np.ones(2), "b": np.zeros(2)}
    yield f(X, 1.0, **kwargs), kwargs
    yield f(X, **kwargs), kwargs


@program
def test_functions_that_hold_values(trace: Any) -> Any:
    box = Box(fn=None, bound=None, part=None)

    class Scaler:
        def __init__(self, s: Any) -> None:
            self.s = s

        def scale(self, y: Any) -> Any:
            return y * self.s

    def power(y: Any, k: Any) -> Any:
        return y**k

    @trace
    def f(x: Any) -> Any:
        s = x.sum()
        box.fn = lambda y: y * s
        box.bound = Scaler(s * 2).scale
        box.part = functools.partial(power, k=s)
        return box.fn(x)

    for k in range(3):
        yield f(np.full(2, float(k))), box.fn(X), box.bound(X), box.part(X)


@program
def test_a_flag_and_a_name(trace: Any) -> Any:
    box = Box(on=False, name="a", total=np.float64(0.0))

    @trace
    def f(x: Any) -> Any:
        box.on = not box.on
        box.name += "b"
        box.total += x.sum()
        return x if box.on else -x

    for _ in range(4):
        yield f(X), box.on, box.name, box.total


@program
def test_lazy_state_of_an_optimiser(trace: Any) -> Any:
    class Momentum:
        m: Any = None

        def step(self, w: Any, g: Any) -> Any:
            if self.m is None:
                self.m = np.zeros_like(w)
            self.m = 0.9 * self.m + g
            return w - 0.1 * self.m

    rule, w = Momentum(), np.ones(3)
    step = trace(rule.step)
    for _ in range(4):
        w = step(w, 2 * w)
        yield w, rule.m
    rule.m = None
    yield step(w, w), rule.m


@program
def test_a_traced_function_that_calls_one(trace: Any) -> Any:
    log: Any = []

    @trace
    def inner(x: Any) -> Any:
        log.append(x.max())
        return x * 2

    @trace
    def outer(x: Any) -> Any:
        y = inner(x)
        log.append(y.min())
        return inner(y) + 1

    for k in range(3):
        yield outer(np.full(2, k + 1.0)), log
    yield inner(X), log


@program
def test_updates_before_an_attribute_is_bound_again(trace: Any) -> Any:
    first = np.ones(3)
    box = Box(w=first, v=np.zeros(3))

    @trace
    def f(x: Any) -> Any:
        w = box.w
        w += x
        box.w = w * 2
        box.v, box.w = box.w, box.v
        return w.sum()

    for _ in range(3):
        yield f(X), first, box.w, box.v


@program
def test_aliases_of_a_container(trace: Any) -> Any:
    a: Any = [1.0]
    table = {"one": a, "two": a}

    @trace
    def f(x: Any) -> Any:
        table["one"].append(x.sum())
        return x * len(table["two"]) * a[0]

    for _ in range(3):
        yield f(X), a, table
    table["two"] = [0.0]
    yield f(X), a, table


@program
def test_tuples_and_named_tuples_of_state(trace: Any) -> Any:
    class State(NamedTuple):
        x: Any
        n: int

    box = Box(state=State(np.ones(2), 0))

    @trace
    def f(x: Any) -> Any:
        state = box.state
        state.x[0] += 1.0
        box.state = state._replace(n=state.n + 1, x=state.x * x)
        return box.state.x

    for _ in range(3):
        yield f(np.ones(2) * 2), box.state


@program
def test_mutable_dataclasses_from_outside(trace: Any) -> Any:
    @dataclasses.dataclass
    class Config:
        rate: float
        steps: int = 0
        log: Any = dataclasses.field(default_factory=list)

        def advance(self) -> None:
            self.steps += 1
            self.log.append(self.rate)

    config = Config(0.5)

    @trace
    def f(x: Any) -> Any:
        config.advance()
        config.rate = config.rate * 0.5
        return x * config.rate

    for _ in range(4):
        yield f(X), config


@program
def test_frozen_things_stay_frozen(trace: Any) -> Any:
    @dataclasses.dataclass(frozen=True)
    class Fixed:
        x: float = 1.0

    fixed = Fixed()

    @trace
    def f(x: Any) -> Any:
        fixed.x = 2.0  # type: ignore[misc]
        return x

    for _ in range(2):
        yield attempt(f, X), fixed


@program
def test_setattr_of_the_users(trace: Any) -> Any:
    class Loud:
        def __init__(self) -> None:
            object.__setattr__(self, "log", [])
            object.__setattr__(self, "x", 1.0)

        def __setattr__(self, name: str, value: Any) -> None:
            self.log.append(name)
            object.__setattr__(self, name, value * 2)

    loud = Loud()

    @trace
    def f(x: Any) -> Any:
        loud.x = loud.x + 1.0
        return x * loud.x

    for _ in range(3):
        yield f(X), loud.x, loud.log


@program
def test_the_caller_changes_what_the_function_writes(trace: Any) -> Any:
    box = Box(n=0)

    @trace
    def f(x: Any) -> Any:
        box.n += 1
        return x * box.n

    for k in range(6):
        if k % 2:
            box.n = 10 * k
        yield f(X), box.n
    box.n = 2.5
    yield f(X), box.n
    box.n = np.float32(1.5)
    yield f(X), box.n
    box.n = np.ones(3)
    yield f(X), box.n


@program
def test_gradients_of_functions_with_state(trace: Any) -> Any:
    box = Box(calls=0, losses=[])

    def loss(w: Any) -> Any:
        box.calls += 1
        value = (w**2).sum() * box.calls
        box.losses.append(value)
        return value

    step = trace(lambda w: tg.value_and_grad(loss)(w))
    for k in range(3):
        w = np.full(2, k + 1.0)
        value, gradient = step(w)
        yield value, gradient, box.calls
        yield [float(x) for x in box.losses]


@program
def test_exceptions_in_the_middle_of_updates(trace: Any) -> Any:
    box, w = Box(n=0, log=[]), np.zeros(3)

    @trace
    def f(x: Any) -> Any:
        w[:] += x
        box.n += 1
        try:
            if x[0] > 1:
                raise KeyError("large")
            box.log.append("fine")
        except KeyError as error:
            box.log.append(str(error))
            if x[0] > 2:
                raise ValueError("too large") from error
        finally:
            box.log.append(x.sum())
        return w.sum()

    for k in (0.0, 1.5, 3.0, 0.5, 3.0, 1.5):
        yield attempt(f, np.full(3, k), text=True), w, box.n, box.log


@program
def test_loops_over_state(trace: Any) -> Any:
    queue: Any = collections.deque([1.0, 2.0, 3.0])

    @trace
    def f(x: Any) -> Any:
        total = x * 0
        while queue and queue[0] < 3:
            total = total + queue.popleft() * x
        queue.append(5.0)
        return total

    for _ in range(3):
        yield f(X), list(queue)


@pytest.mark.parametrize("what", ["attribute", "list", "global", "array", "value"])
def test_what_a_loop_would_do_at_each_iteration_is_refused(what: str) -> None:
    global COUNT
    box, log, table = Box(n=0), [], np.zeros(2)

    def step(carry: Any, x: Any) -> Any:
        global COUNT
        if what == "attribute":
            box.n += 1
        elif what == "list":
            log.append(1)
        elif what == "global":
            COUNT += 1
        elif what == "array":
            table[0] += 1.0
        else:
            box.n = carry
        return carry + x, carry

    with pytest.raises((tg.UnsupportedError, tg.TraceError), match=r"test_meaning_more_state.py:\d+"):
        tg.trace(lambda xs: tg.scan(step, 0.0, xs))(X)
    assert (box.n, log, COUNT, table.tolist()) == (0, [], 0, [0.0, 0.0])
    # Eager loops are Python's.
    carry, _ = tg.scan(step, 0.0, X)
    assert carry == 3.0
    COUNT = 0


@program
def test_what_is_written_without_a_look_is_written_at_each_call(trace: Any) -> Any:
    names, table, box = {0}, {"k": 0.5}, Box(t=0.5)

    @trace
    def f(x: Any) -> Any:
        names.add(0)
        table["a"] = box.t
        table["k"] = box.t
        return x

    for change in (lambda: None, names.clear, table.clear, lambda: None):
        change()
        yield f(X), names, list(table.items())


@program
def test_what_is_read_and_not_computed_with_is_no_less_read(trace: Any) -> Any:
    box, table = Box(w=np.ones(2), n=1.0), {"k": 0.5}

    @trace
    def f(x: Any) -> Any:
        if box.w is None:
            return -x
        return x * 2 if "k" in table else x * 3

    yield f(X)
    table["k"] = 0.25
    yield f(X)
    del table["k"]
    yield f(X)
    box.w = np.ones(3)
    yield f(X)
    box.w = None
    yield f(X)


@program
def test_functions_that_hold_values_in_their_defaults(trace: Any) -> Any:
    box = Box(f=None)

    @trace
    def f(x: Any) -> Any:
        s = x.sum()

        def scaled(z: Any, by: Any = s, *, plus: Any = x[0]) -> Any:
            return z * by + plus

        scaled.note = s * 2  # type: ignore[attr-defined]
        box.f = scaled
        return scaled

    for k in range(3):
        result = f(np.full(2, float(k)))
        yield result(1.5), result.note, box.f is result, box.f(0.5, plus=1.0)


@program
def test_an_array_that_was_in_two_places_and_is_in_one(trace: Any) -> Any:
    shared = np.ones(2)
    items, box = [shared], Box(w=shared)

    @trace
    def f(x: Any) -> Any:
        return box.w + (items[0] if items else x)

    yield f(np.zeros(2))
    items.clear()
    yield f(np.zeros(2))
    items.append(np.zeros(2))
    yield f(np.zeros(2))


# -- counters on classes and functions -------------------------------------------------------------------------------
class Counted:
    made = 0
    total = 0.5
    table = {"n": 0, "w": 1.5}  # noqa: RUF012

    def __init__(self, v: Any) -> None:
        Counted.made += 1
        self.v = v

    @property
    def number(self) -> int:
        Counted.total *= 2
        return self.made

    @classmethod
    def note(cls, x: Any) -> Any:
        cls.table["n"] += 1
        cls.table["w"] += x[0].item()
        return cls.table["n"]


class Special(Counted):
    pass


def helper(x: Any) -> Any:
    helper.calls += 1  # type: ignore[attr-defined]
    return x * helper.calls  # type: ignore[attr-defined]


COUNTING: dict[str, Any] = {
    "class": lambda x: Counted(x).v * Counted.made,
    "subclass": lambda x: (setattr(Special, "made", Special.made + 1), x * Special.made, Counted.made)[1:],
    "property": lambda x: x * Counted(x).number + Counted.total,
    "table": lambda x: x * Counted.note(x),
    "function": lambda x: helper(x) + helper(x),
}


@pytest.mark.parametrize("name", COUNTING)
def test_a_counter_on_a_class_or_function_is_not_a_new_trace_each_time(name: str) -> None:
    function, traced = COUNTING[name], tg.trace(COUNTING[name])

    def reset() -> None:
        Counted.made, Counted.total, Counted.table = 0, 0.5, {"n": 0, "w": 1.5}
        if "made" in vars(Special):
            del Special.made
        helper.calls = 0  # type: ignore[attr-defined]

    def seen(f: Any) -> Any:
        reset()
        results = []
        for k in range(8):
            x = np.full(2, k + 1.0)
            if k == 5:
                Counted.made, helper.calls = 100, 50  # type: ignore[attr-defined]
            results.append(
                (f(x), Special.made, Counted.made, Counted.total, dict(Counted.table), vars(helper)["calls"])
            )
        return results

    expected = seen(function)
    for _ in range(2):
        assert repr(seen(traced)) == repr(expected)
    assert traced.cache_info().traces <= 4
    assert all(type(x) in (int, float) for x in (Counted.made, Counted.total, *Counted.table.values()))
    reset()


@program
def test_a_traced_function_has_attributes_of_its_own(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        f.calls += 1
        f.seen.append(f.calls)
        if not hasattr(f, "first"):
            f.first = float(x[0])
        return x * f.calls + f.first

    f.calls, f.seen = 0, []
    for k in range(4):
        yield f(np.full(2, k + 1.5)), f.calls, list(f.seen), f.first
    f.calls = 10
    yield f(np.ones(2)), f.calls, list(f.seen)
    del f.first
    yield f(np.full(2, 9.0)), f.first


def test_a_counter_that_another_type_takes_the_place_of() -> None:
    class Box:
        n: Any = 0

    @tg.trace
    def f(x: Any) -> Any:
        Box.n += 1
        if Box.n == 6:
            raise KeyError
        return x * Box.n

    for expected in (1, 2, 3, 4, 5):
        assert f(np.ones(1)) == expected
    with pytest.raises(KeyError):
        f(np.ones(1))
    assert (Box.n, type(Box.n)) == (6, int)
    Box.n = 0.5
    assert f(np.ones(1)) == 1.5
    Box.n = np.float32(2.0)
    assert f(np.ones(1, np.float32)).dtype == np.float32
    Box.n = 2**63 - 1
    assert f(np.ones(1)) == 2.0**63
    assert Box.n == 2**63
    del Box.n
    with pytest.raises(AttributeError):
        f(np.ones(1))


@program
def test_a_counter_of_a_base_class(trace: Any) -> Any:
    class Base:
        n = 0
        rate = 0.5

        def step(self, x: Any) -> Any:
            Base.n += 1
            Base.rate = Base.rate * 0.5
            return x * self.n + self.rate

    class Child(Base):
        pass

    held, child = Base(), Child()
    f = trace(lambda x: (held.step(x), child.step(x), Child.n, Base().n, Child().rate))
    for k in range(12):
        yield f(np.full(2, k + 1.0)), Base.n, Base.rate, Child.n
        if k == 5:
            Child.n = Base.n  # the same object, for now
        elif k == 8:
            child.rate = Base.rate
        elif k == 10:
            del Child.n
    yield vars(child), sorted(k for k in vars(Child) if k[0] != "_")


@program
def test_methods_of_the_classes_of_containers(trace: Any) -> Any:
    ks, known, some, last = [2.0, 1.0], {"a": 1.0}, {1}, collections.deque([1.0], 3)

    @trace
    def write(x: Any) -> Any:
        list.append(ks, x[0])
        list.extend(ks, [0.5])
        list.__setitem__(ks, 0, x[1] * 1.0)
        dict.update(known, b=x[0] * 2.0)
        set.add(some, len(ks))
        collections.deque.append(last, x[2])
        list.sort(ks)
        return x * ks[0]

    @trace
    def read(x: Any) -> Any:
        return list.__len__(ks), list.__getitem__(ks, 0) * x, dict.get(known, "b", 3.0), [*map(list.copy, [ks])]

    for k in range(3):
        yield write(X + k), read(X), list(ks), dict(known), set(some), list(last)
        ks.insert(0, -3.0 - k)
        known["b"] = 5.0 + k
        yield read(X)


@program
def test_an_attribute_that_getattr_computes_at_first_use(trace: Any) -> Any:
    class Lazy:
        def __init__(self, w: Any):
            self.w = w

        def __getattr__(self, name: str) -> Any:
            if name != "cache":
                raise AttributeError(name)
            self.cache = self.w * 2
            return self.cache

    lazy = Lazy(np.ones(2))
    f = trace(lambda x: x[:2] * lazy.cache + getattr(lazy, "more", 1.0))
    yield f(X), vars(lazy)
    lazy.w = lazy.w * 3
    yield f(X), vars(lazy)
    del lazy.cache
    yield f(X), vars(lazy)
    lazy.more = 4.0
    yield f(X), vars(lazy)


@program
def test_a_counter_of_a_metaclass_and_a_descriptor(trace: Any) -> Any:
    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            result = super().__call__(*args)
            cls.made += 1
            return result

    class Doubled:
        def __set_name__(self, owner: Any, name: str) -> None:
            self.name = "_" + name

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return getattr(instance, self.name)

        def __set__(self, instance: Any, value: Any) -> None:
            setattr(instance, self.name, value * 2)

    class Holder(metaclass=Meta):
        made = 0
        w = Doubled()

    holder = Holder()
    holder.w = 1.0

    @trace
    def f(x: Any) -> Any:
        y = x * holder.w + Holder().made
        holder.w = holder.w + 1
        return y

    for _ in range(3):
        yield f(X), holder.w, Holder.made
