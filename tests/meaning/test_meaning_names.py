"""Names of Python's form that are the user's own, as `__wrapped__` of a decorator is, mean what they mean plainly."""

import functools
import inspect
import operator
import threading
from collections import OrderedDict, deque

import numpy as np
import pytest
from meaning import program

import tracegrad as tg


@program
def test_what_a_decorator_class_is_around_is_traced(trace):
    scale = [2.0]

    class Counted:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.calls = 0

        def __call__(self, *args):
            self.calls += 1
            return self.__wrapped__(*args)

    @trace
    @Counted
    def first(x):
        return x * scale[0]

    @trace
    @Counted
    def second(x):
        return x + scale[0]

    for k in range(3):
        scale[0] = k
        yield first(np.ones(2)), second(np.ones(2))


@program
def test_functions_are_found_behind_their_decorators(trace):
    scale = [2.0]

    def plus_one(function):
        @functools.wraps(function)
        def decorated(*args):
            decorated.calls += 1
            return function(*args) + 1

        decorated.calls = 0
        return decorated

    @plus_one
    @plus_one
    def double(x):
        return x * scale[0]

    class Holder:
        @plus_one
        @plus_one
        def double(self, x):
            return x * scale[0]

    holder = Holder()

    @trace
    def call(x):
        inner = double.__wrapped__(x) + double.__wrapped__.__wrapped__(x) + inspect.unwrap(double)(x)
        return inner + holder.double(x) + Holder.double.__wrapped__(holder, x) + holder.double.__wrapped__(holder, x)

    for k in range(3):
        scale[0] = k
        yield call(np.ones(2)), double.calls, double.__wrapped__.calls, Holder.double.calls


@program
def test_attributes_with_such_names_are_asked_and_written(trace):
    class Thing:
        __rate__ = 1.0

        def __init__(self):
            self.__scale__, self.__sums__, self.__table__ = 2.0, [1.0], np.ones(2)

        @property
        def __double__(self):
            return self.__scale__ * 2

    def free(x):
        free.__calls__ += 1
        return x * free.__rate__

    thing = Thing()
    free.__calls__, free.__rate__ = 0, 1.0

    @trace
    def step(x):
        thing.__sums__.append(x[0])
        thing.__last__ = x * 2
        known = hasattr(thing, "__mark__") + hasattr(Thing, "__len__")
        return (
            free(x) * thing.__scale__ * thing.__rate__
            + thing.__table__
            + thing.__double__
            + sum(thing.__sums__) * known
        )

    for k in range(3):
        thing.__scale__, Thing.__rate__, free.__rate__ = float(k), k + 1.0, k + 2.0
        thing.__table__[0] = k
        if k == 1:
            thing.__mark__ = True
        yield step(np.ones(2)), list(thing.__sums__), thing.__last__, free.__calls__


@program
def test_an_object_from_outside_is_begun_anew(trace):
    class Meter:
        def __init__(self, value):
            self.value, self.begun = value, getattr(self, "begun", 0) + 1

    meter = Meter(1.0)

    @trace
    def step(x):
        meter.__init__(x[0] * 2)
        Meter.__init__(meter, meter.value + 1)
        meter.__setattr__("other", meter.__getattribute__("value") * 3)
        return x * meter.value + meter.begun + meter.other

    for k in range(3):
        yield step(np.full(2, k + 1.0)), meter.begun, meter.value, meter.other


@program
def test_new_gives_objects_that_a_class_keeps(trace):
    class Named:
        known = {}  # noqa: RUF012
        last = None

        def __new__(cls, name, value):
            if name not in cls.known:
                cls.known[name] = object.__new__(cls)
                cls.known[name].begun = 0
            return cls.known[name]

        def __init__(self, name, value):
            self.begun += 1
            self.value = value
            type(self).last = self

    class Below(Named):
        def __new__(cls, name, value):
            return super().__new__(cls, name, value)

    @trace
    def step(x):
        return Named("a", x * 2).value * Below("b", x).begun + Below.last.value + Named.last.begun

    for k in range(4):
        if k == 2:
            Named.known.pop("a")
        yield step(np.full(2, k + 1.0)), [(name, held.begun) for name, held in Named.known.items()]


@pytest.mark.filterwarnings("ignore:.*runs as plain Python:tracegrad.PerformanceWarning")
@program
def test_the_class_of_an_object_from_outside_is_exchanged(trace):
    class Linear:
        def power(self, x):
            return x

    class Square(Linear):
        def power(self, x):
            return x**2

    thing = Linear()

    @trace
    def step(x):
        thing.__class__ = Square if type(thing) is Linear else Linear
        return thing.power(x)

    for _ in range(3):
        yield step(np.full(2, 3.0)), type(thing).__name__


@pytest.mark.filterwarnings("ignore:.*runs as plain Python:tracegrad.PerformanceWarning")
@program
def test_names_and_states_of_objects_are_listed(trace):
    class Thing:
        def __init__(self):
            self.value = 1.0

    thing = Thing()

    @trace
    def names(x):
        return x * len([name for name in dir(thing) if name[0] != "_"])

    @trace
    def states(x):
        return x * thing.__getstate__()["value"] + len(dir())

    for k in range(3):
        thing.value = k
        if k == 1:
            thing.other = 1
        if k == 2:
            Thing.third = 2
        yield names(np.ones(2)), states(np.ones(2))


@program
def test_attributes_of_containers_of_the_users_classes(trace):
    class Items(list):
        def append(self, x):
            self.appended = getattr(self, "appended", 0) + 1
            super().append(x)

    class Table(dict):
        missed = 0

        def __missing__(self, key):
            self.missed += 1
            return self.default

    class Queue(deque):
        pass

    class Names(set):
        pass

    items, table, queue, names = Items([1.0]), Table(), Queue([1, 2]), Names([1])
    items.weights, queue.last = [1.0], None

    @trace
    def step(x):
        items.append(2.0)
        items.weights.append(items.scale)
        queue.last = x * 2
        names.size = len(names)
        return x * sum(items) + table["absent"] + items.appended + sum(items.weights) + queue.last

    for k in range(3):
        items.scale = table.default = float(k)
        yield step(np.ones(2)), items, items.appended, items.weights, table.missed, queue.last, names.size


@program
def test_methods_of_the_users_containers_run_once_for_each_change(trace):
    told = []

    class Items(list):
        def __iadd__(self, other):
            told.append("+=")
            return super().__iadd__([other])

        def __setitem__(self, k, x):
            told.append("set")
            super().__setitem__(k, x)

    class Table(dict):
        def __setitem__(self, k, x):
            told.append(k)
            super().__setitem__(k, x * 2)

        def pop(self, *args):
            told.append("pop")
            return super().pop(*args)

    class Sorted(OrderedDict):
        def __setitem__(self, k, x):
            told.append(k)
            super().__setitem__(k, x + 1)

    class Names(set):
        def update(self, *several):
            told.append("update")
            super().update(*several)

    class Queue(deque):
        def clear(self):
            told.append("clear")
            super().clear()

    items, table, ordered, names, queue = Items([1.0]), Table(old=1.0), Sorted(a=1.0), Names([1]), Queue([1, 2])

    @trace
    def step(x):
        items.__iadd__(3.0)
        items[0] = 5.0
        table["a"] = 1.0
        table.pop("old", None)
        ordered["b"] = 1.0
        ordered.move_to_end("a")
        names.update([2])
        names.discard(1)
        queue.popleft()
        queue.append(4)
        return x * sum(items) + table["a"] + ordered["b"]

    for _ in range(3):
        yield step(np.ones(2)), items, dict(table), list(ordered.items()), names, list(queue), list(told)


@program
def test_what_is_written_into_the_storage_of_a_thread(trace):
    held = threading.local()
    held.scale = 1.0

    @trace
    def step(x):
        held.calls = getattr(held, "calls", 0) + 1
        held.last = x * held.scale
        return held.last + held.calls

    for k in range(3):
        held.scale = k + 1.0
        yield step(np.ones(2)), held.calls, held.last


def test_programs_behind_a_decorator_without_wraps_are_their_own():
    class Proxy:
        def __init__(self, wrapped):
            object.__setattr__(self, "__wrapped__", wrapped)

        def __getattr__(self, name):
            return getattr(self.__wrapped__, name)

        def __call__(self, *args):
            return self.__wrapped__(*args)

    functions = [lambda x, k=k: np.sum(x**k) for k in (1, 2, 3)]
    derivatives = [tg.grad(Proxy(f))(np.array([2.0]))[0] for f in functions]
    assert derivatives == pytest.approx([1.0, 4.0, 12.0])


def test_an_object_that_gives_traced_elements_to_c_code_is_traced():
    class Elements:
        def __init__(self, x):
            self.x = x

        def __array__(self, dtype=None, copy=None):
            return self.x

    table = Elements(np.arange(3.0))
    f = tg.trace(lambda x: np.concatenate([x, table]).sum() + np.dot(table, x))
    for k in range(2):
        table.x = np.arange(3.0) + k
        assert f(np.ones(3)) == pytest.approx(2 * np.sum(table.x) + 3)


@program
def test_what_a_staticmethod_holds_is_traced(trace):
    scale = [1.0]

    class Other:
        rate = 2.0

        def __init__(self):
            self.calls = 0

        def times(self, x):
            self.calls += 1
            return x * self.rate * scale[0]

        def __call__(self, x):
            return self.times(x) + 1

    other = Other()

    class Holder:
        method = staticmethod(other.times)
        called = staticmethod(other)
        part = staticmethod(functools.partial(other.times))

    holder = Holder()

    @trace
    def step(x):
        return sum(f(x) for f in (Holder.method, holder.method, Holder.called, holder.called, Holder.part, holder.part))

    for k in range(3):
        scale[0], other.rate = k + 1.0, k + 2.0
        yield step(np.ones(2)), other.calls, Holder.called.rate


@program
def test_getters_of_properties_that_are_no_functions(trace):
    scale = [1.0]

    class Thing:
        def __init__(self):
            self.value = 3.0

        def scaled(self, by=1.0):
            return self.value * scale[0] * by

        double = property(functools.partial(scaled, by=2.0))
        third = property(operator.methodcaller("scaled", 1 / 3))
        own = property(operator.attrgetter("value"))

    thing = Thing()

    @trace
    def step(x):
        result = Thing()
        return x * thing.double + thing.third + thing.own + result.double + result.third + result.own

    for k in range(4):
        scale[0], thing.value = k + 1.0, 2.0 * k
        yield step(np.ones(2))
