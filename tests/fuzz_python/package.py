"""What random programs import: it is compiled as a module of an installed package, anew for each run."""

import contextlib
import functools
from typing import ClassVar

import numpy as np

LEVEL = 0.5
SETTINGS = {"factor": 0.7, "offset": 0.1}
REGISTRY = {"p0": lambda a: a * 0.5, "p1": lambda a: a + 0.2}
COUNTS = {}


class Config:
    def __init__(self):
        self.factor = 0.6

    def __setattr__(self, name, value):
        object.__setattr__(self, name, round(value, 3))


default = Config()


class Plugin:
    known: ClassVar = {}

    def __init_subclass__(cls, name=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Plugin.known[name or cls.__name__] = cls()

    def __call__(self, a):
        return self.transform(a)


class Half(Plugin, name="sine"):
    def transform(self, a):
        return a * SETTINGS["factor"] * 0.5


def level():
    return LEVEL


def register(name, function):
    REGISTRY[name] = function


def decorated(function):
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def wrapped(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


class counted:
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function, self.calls = function, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs) + 0.01 * self.calls


def scaled(k):
    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return function(*args, **kwargs) * k * SETTINGS["factor"] + SETTINGS["offset"]

        return call

    return decorate


def retried(function):
    def call(*args, **kwargs):
        for _ in range(3):
            try:
                return function(*args, **kwargs)
            except ValueError:
                continue
        raise RuntimeError("no more tries")

    return call


class Memoized:
    def __init__(self, function):
        self.function, self.known = function, {}

    def __call__(self, key):
        if key not in self.known:
            self.known[key] = self.function(key)
        return self.known[key]


@contextlib.contextmanager
def logged(log):
    log.append("in")
    try:
        yield log
    finally:
        log.append("out")


_KNOBS = {"knob": 0.4}


def __getattr__(name):
    if name in _KNOBS:
        return _KNOBS[name]
    if name == "lazily":
        value = globals()["lazily"] = 0.9
        return value
    raise AttributeError(name)


class Events:
    def __init__(self):
        self.log, self.hooks = [], {}

    def on(self, name, hook):
        self.hooks.setdefault(name, []).append(hook)

    def fire(self, name, *args):
        for hook in self.hooks.get(name, ()):
            hook(*args)
        self.log.append((name, *args))
        del self.log[:-4]


EVENTS = Events()


class Pipeline:
    def __init__(self, *steps):
        self.steps = [*steps]

    def run(self, a):
        for step in self.steps:
            a = step(a)
        return a


PIPELINE = Pipeline(lambda a: a * 0.5, lambda a: a + SETTINGS["offset"])


def timed(function, *, log=[]):  # noqa: B006
    @functools.wraps(function)
    def call(*args, **kwargs):
        log.append(function.__name__)
        try:
            return function(*args, **kwargs)
        finally:
            log.pop()

    return call


class Guarded:
    __slots__ = ("_value", "reads")

    def __init__(self, value):
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "reads", 0)

    def __setattr__(self, name, value):
        raise AttributeError(f"{name} is fixed")

    @property
    def value(self):
        object.__setattr__(self, "reads", self.reads + 1)
        return self._value * self.reads


@contextlib.contextmanager
def override(**settings):
    old = SETTINGS.copy()
    SETTINGS.update(settings)
    try:
        yield SETTINGS
    finally:
        SETTINGS.clear()
        SETTINGS.update(old)


def using(a, settings=SETTINGS):
    return a * settings["factor"] + settings["offset"]


def validated(a, **options):
    unknown = options.keys() - {"k", "m"}
    if unknown:
        raise TypeError(f"unknown {sorted(unknown)}")
    if not isinstance(a, np.ndarray) or a.dtype.kind != "f":
        raise TypeError("no array of floats")
    return a * options.setdefault("k", 1.0)


def curried(function):
    code = function.__code__

    def call(*args):
        if len(args) >= code.co_argcount:
            return function(*args)
        return lambda *more: call(*args, *more)

    return call


class Lazy:
    def __init__(self, make):
        self.make = make

    def __getattr__(self, name):
        if name != "value":
            raise AttributeError(name)
        self.value = self.make()
        return self.value
