"""What random programs import: it is compiled as a module of an installed package, anew for each run."""

import contextlib
import functools
from typing import ClassVar

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
