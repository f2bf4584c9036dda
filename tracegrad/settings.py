"""Settings of the process: read from the environment in one place, and changeable at run time.

    TRACEGRAD_LOG          topics to log to stderr, separated by commas: compile, cache, retrace, loops, source
    TRACEGRAD_VERIFY       1: verify the graph after every pass, and raise internal errors in a loop that is rerolled;
                           0 (default): do not verify, and record that loop iteration by iteration
    TRACEGRAD_NUM_THREADS  threads of a kernel, from 1 to 1024; without it, one for each usable CPU
    TRACEGRAD_LOOP_MEMORY  bytes that the derivative of one loop may save for its iterations, as 512M, 2G or none (no
                           bound); default 1G. A loop above it recomputes the iterations, segment by segment
    TRACEGRAD_PROGRESS     1 (default): a line on the terminal while something is compiled for more than 2 s; 0: none
    TRACEGRAD_FIRST_CALL   first call of a program without machine code: replay (default), NumPy evaluates it op by
                           op if that is quicker than to compile, and the second call compiles; compile, the call
                           waits for the compiler; background, NumPy evaluates while another thread compiles
    TRACEGRAD_OPTIMIZE     LLVM's optimization: 1, quickest to compile, 2 (default), or 3, quickest to run
    TRACEGRAD_OPAQUE       packages whose code is not traced, separated by commas
    TRACEGRAD_UNKNOWN_PYTHON  1: trace also on a version of Python that is not known, or whose self-test fails; 0
                           (default): an error there
    TRACEGRAD_DISABLE      optimizations to leave out, separated by commas, as rerolling,buffer-reuse, to find the cause
                           of a wrong result; `python -m tracegrad info --optimizations` lists them
    TRACEGRAD_CACHE        0 (or off, no, false): no disk cache; 1 (default): a disk cache
    TRACEGRAD_CACHE_TRACES 0: the disk cache has machine code alone; 1 (default): traces too
    TRACEGRAD_CACHE_DIR    folder of the disk cache; default: the user's cache folder

An empty variable counts as not set. Each variable is read when its setting is first used, and not again;
`settings.reload()` forgets all values. Settings hold for the process, `disable_jit` for the calling thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from tracegrad.optimizations import names_of
from tracegrad.platform.processes import usable_cpus

__all__ = [
    "FIRST_CALLS",
    "MOST_THREADS",
    "TOPICS",
    "Settings",
    "compiled_at_once",
    "disable_jit",
    "jit_disabled",
    "opaque",
    "settings",
    "unusual",
    "waits_for_compiler",
]

TOPICS = ("compile", "cache", "retrace", "loops", "source")
FIRST_CALLS = ("replay", "compile", "background")
MOST_THREADS = 1024  # the thread pool counts active workers in 16 bits

_T = TypeVar("_T")
_BOOLEAN_WORDS = {
    "1": True,
    "on": True,
    "yes": True,
    "true": True,
    "0": False,
    "off": False,
    "no": False,
    "false": False,
}


def _topics(value: str | Iterable[str]) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else value
    result = frozenset(name.strip() for name in names) - {""}
    if unknown := sorted(result.difference(TOPICS)):
        raise ValueError(f"unknown topic {unknown[0]!r}; the topics are {', '.join(TOPICS)}")
    return result


def _packages(value: str | Iterable[str]) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else value
    result = frozenset(name.strip() for name in names) - {""}
    for name in sorted(result):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError("it must be names of packages, as numpy or sklearn.tree")
    return result


def _optimizations(value: str | Iterable[str]) -> frozenset[str]:
    return names_of(value.split(",") if isinstance(value, str) else value)


def _flag(value: str | bool) -> bool:
    result = _BOOLEAN_WORDS.get(str(value).strip().lower())
    if result is None:
        raise ValueError(f"it must be one of {', '.join(_BOOLEAN_WORDS)}")
    return result


def _thread_count(value: str | int | None) -> int | None:
    if value is None:
        return None
    text = str(value).strip()
    # The length is checked first, because int() of a very long text raises another error.
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_THREADS):
        raise ValueError(f"it must be a whole number from 1 to {MOST_THREADS}")
    return int(text)


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def _bytes(value: str | int | None) -> int | None:
    text = str(value).strip().lower()
    if text == "none":
        return None
    digits = text.rstrip("kmgt")
    unit = _UNITS.get(text[len(digits) :])
    if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise ValueError("it must be a number of bytes, as 4096, 256K, 512M, 2G or 1T, or none")
    return int(digits) * unit


def _level(value: str | int) -> int:
    result = str(value).strip()
    if result not in ("1", "2", "3"):
        raise ValueError("it must be 1, 2 or 3")
    return int(result)


def _first_call(value: str) -> str:
    result = str(value).strip().lower()
    if result not in FIRST_CALLS:
        raise ValueError(f"it must be one of {', '.join(FIRST_CALLS)}")
    return result


def _folder(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


class _Switch(Generic[_T]):
    """A setting: its environment variable, its default, and its parser.

    There is no `__set__` at run time: once read, the value is a plain attribute, and costs no call.
    """

    def __init__(self, variable: str, default: _T, parse: Callable[[Any], _T]):
        self.variable, self.default, self.parse = variable, default, parse
        self.name = ""
        self.watchers: list[Callable[[], None]] = []

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Settings, owner: type) -> _T: ...
    def __get__(self, instance: Settings | None, owner: type) -> Self | _T:
        if instance is None:
            return self
        text = os.environ.get(self.variable, "")
        value = self.checked(text, f"{self.variable}={text!r}") if text.strip() else self.default
        return cast(_T, vars(instance).setdefault(self.name, value))

    if TYPE_CHECKING:

        def __set__(self, instance: Settings, value: object) -> None: ...

    def checked(self, value: frozenset[str] | int | str, described: str) -> _T:
        try:
            return self.parse(value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{described}: {error}") from None


class Settings:
    """Values of the settings; the module lists the environment variables that they are read from.

    Attributes
    ----------
    log : frozenset of str
        Topics that are logged to stderr, out of `TOPICS`.
    verify : bool
        Whether graphs are verified after every pass.
    num_threads : int or None
        Threads of a kernel; None: one for each usable CPU.
    loop_memory : int or None
        Bytes that the derivative of one loop may save for its iterations; None: no bound.
    progress : bool
        Whether a compilation of more than 2 s shows a line on the terminal.
    first_call : {"replay", "compile", "background"}
        How the first call of a program without machine code is computed.
    optimize : {1, 2, 3}
        1: machine code that is quickest to compile; 3: quickest to run.
    opaque_packages : frozenset of str
        Packages whose code is not traced.
    unknown_python : bool
        Whether functions are traced on a Python that is not known, or whose self-test fails.
    disable : frozenset of str
        Optimizations that are left out, by the names of `tracegrad.optimizations`.
    cache, cache_traces : bool
        Whether compiled code is stored on disk, and whether traces are.
    cache_dir : str or None
        Folder of the disk cache; None: the user's cache folder.

    Raises
    ------
    ValueError
        If a value is not one that the environment variable may have.
    AttributeError
        If the attribute is not a setting.

    Examples
    --------
    >>> settings = Settings()
    >>> settings.num_threads = 2
    >>> settings.num_threads
    2
    >>> settings.log = "compile, retrace"
    >>> sorted(settings.log)
    ['compile', 'retrace']
    """

    log = _Switch[frozenset[str]]("TRACEGRAD_LOG", frozenset(), _topics)
    verify = _Switch[bool]("TRACEGRAD_VERIFY", False, _flag)
    num_threads = _Switch[int | None]("TRACEGRAD_NUM_THREADS", None, _thread_count)
    loop_memory = _Switch[int | None]("TRACEGRAD_LOOP_MEMORY", 2**30, _bytes)
    progress = _Switch[bool]("TRACEGRAD_PROGRESS", True, _flag)
    first_call = _Switch[str]("TRACEGRAD_FIRST_CALL", "replay", _first_call)
    optimize = _Switch[int]("TRACEGRAD_OPTIMIZE", 2, _level)
    opaque_packages = _Switch[frozenset[str]]("TRACEGRAD_OPAQUE", frozenset(), _packages)
    unknown_python = _Switch[bool]("TRACEGRAD_UNKNOWN_PYTHON", False, _flag)
    disable = _Switch[frozenset[str]]("TRACEGRAD_DISABLE", frozenset(), _optimizations)
    cache = _Switch[bool]("TRACEGRAD_CACHE", True, _flag)
    cache_traces = _Switch[bool]("TRACEGRAD_CACHE_TRACES", True, _flag)
    cache_dir = _Switch[str | None]("TRACEGRAD_CACHE_DIR", None, _folder)

    def __setattr__(self, name: str, value: frozenset[str] | int | str) -> None:
        switch = _switches().get(name)
        if switch is None:
            raise AttributeError(f"there is no setting {name!r}; the settings are {', '.join(_switches())}")
        vars(self)[name] = switch.checked(value, f"settings.{name} = {value!r}")
        self._notify([name])

    def thread_count(self) -> int:
        """Return the number of threads of a parallel region, including the calling thread.

        Returns
        -------
        int
            `num_threads`; if that is None, the number of CPUs that this process may run on.

        Raises
        ------
        ValueError
            If TRACEGRAD_NUM_THREADS is read and is not a whole number from 1 to 1024.

        Examples
        --------
        >>> with settings.override(num_threads=2):
        ...     settings.thread_count()
        2
        """
        return self.num_threads or min(usable_cpus(), MOST_THREADS)

    def watch(self, name: str, changed: Callable[[], None]) -> None:
        """Call a function whenever a setting may have a new value.

        Parameters
        ----------
        name : str
            Name of the setting.
        changed : callable
            Function without arguments.
        """
        _switches()[name].watchers.append(changed)

    def _notify(self, names: Iterable[str]) -> None:
        for name in names:
            for changed in _switches()[name].watchers:
                changed()

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in _switches())})"

    def reload(self) -> None:
        """Forget all values: each is read from the environment again at its next use.

        Examples
        --------
        >>> settings.reload()
        """
        vars(self).clear()
        self._notify(_switches())

    def override(self, **values: frozenset[str] | int | str) -> _Override:
        """Change settings for the length of a `with` block, in all threads; also a decorator.

        Parameters
        ----------
        **values
            New values, by the names of the settings.

        Returns
        -------
        context manager
            It restores the old values when the block ends.

        Raises
        ------
        ValueError, AttributeError
            As for setting an attribute.

        Examples
        --------
        >>> with settings.override(num_threads=1):
        ...     settings.num_threads
        1
        """
        return _Override(self, values)


class _Override(ContextDecorator):
    """Context manager that changes settings for the length of its block."""

    def __init__(self, settings: Settings, values: dict[str, Any]):
        self.settings, self.values = settings, values

    def __enter__(self) -> None:
        self.before = dict(vars(self.settings))
        try:
            for name, value in self.values.items():
                setattr(self.settings, name, value)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._restore()
        except BaseException:  # a signal came in between
            self._restore()
            raise

    def _restore(self) -> None:
        held = vars(self.settings)
        for name in self.values:
            held.pop(name, None)
        held.update({name: value for name, value in self.before.items() if name in self.values})
        self.settings._notify(self.values)


def _switches() -> dict[str, _Switch[object]]:
    return {name: switch for name, switch in vars(Settings).items() if isinstance(switch, _Switch)}


settings = Settings()


def opaque(package: str) -> None:
    """Exclude the code of a package from tracing: calls of its functions and methods run as plain Python.

    Parameters
    ----------
    package : str
        Name of the package, for example `"sklearn.tree"`.

    Raises
    ------
    ValueError
        If it is no name of a package.

    Notes
    -----
    Call it before a function that uses the package is traced. `settings.opaque_packages` lists the excluded packages.
    pandas is always excluded, and not listed. In traced code, a value with a derivative must not be passed to a
    function of an excluded package: `LostDerivativeError` is raised.

    Examples
    --------
    >>> opaque("package.of.mine")
    >>> "package.of.mine" in settings.opaque_packages
    True
    >>> settings.reload()
    """
    settings.opaque_packages = settings.opaque_packages | {package}


# The open blocks of all threads in which calls need special handling, for example traces and `disable_jit`. Fast paths
# only check whether the dict is empty.
unusual: dict[object, None] = {}


class _ThreadSettings(threading.local):
    disabled = 0
    waiting = 0
    left_out: frozenset[str] | None = None


_thread = _ThreadSettings()


class disable_jit(ContextDecorator):
    """Context manager and decorator in which traced functions of this thread run as plain Python.

    Notes
    -----
    A print statement or a debugger in a function then sees each call. Blocks nest: the end of a block restores the
    state before it, also after an exception.

    Examples
    --------
    >>> with disable_jit():
    ...     jit_disabled()
    True
    >>> jit_disabled()
    False
    """

    def __init__(self) -> None:
        self._blocks: list[object] = []

    # The statements that change the state call nothing, so that no signal handler runs between them.
    def __enter__(self) -> None:
        block = object()
        self._blocks.append(block)
        _thread.disabled += 1
        unusual[block] = None

    def __exit__(self, *_: object) -> None:
        _thread.disabled -= 1
        del unusual[self._blocks[-1]]
        del self._blocks[-1]

    def _recreate_cm(self) -> disable_jit:
        return disable_jit()  # a decorated function may run in several threads at once


def jit_disabled() -> bool:
    """Return whether this thread is within `disable_jit`.

    Returns
    -------
    bool
        True within a block of `disable_jit`.

    Examples
    --------
    >>> jit_disabled()
    False
    """
    return _thread.disabled > 0


class compiled_at_once(ContextDecorator):
    """Context manager in which calls of this thread wait for the compiler, whatever `settings.first_call` is.

    Equal calls then have results with the same bits.

    Examples
    --------
    >>> with compiled_at_once():
    ...     waits_for_compiler()
    True
    """

    def __enter__(self) -> None:
        _thread.waiting += 1

    def __exit__(self, *_: object) -> None:
        _thread.waiting -= 1


def waits_for_compiler() -> bool:
    """Return whether this thread is within `compiled_at_once`.

    Returns
    -------
    bool
        True within a block of `compiled_at_once`.

    Examples
    --------
    >>> waits_for_compiler()
    False
    """
    return _thread.waiting > 0


def left_out() -> frozenset[str]:
    """The optimizations that this thread compiles without: `settings.disable`, or those of `leaving_out`."""
    names = _thread.left_out
    return settings.disable if names is None else names


def disabled(name: str) -> bool:
    """Whether this thread compiles without an optimization of `tracegrad.optimizations`.

    Code asks it while it traces, plans or builds a fast path. The answer is part of the key of what it makes.

    >>> with settings.override(disable="buffer-reuse"):
    ...     disabled("buffer-reuse"), disabled("rerolling")
    (True, False)
    """
    names = _thread.left_out
    return name in (settings.disable if names is None else names)


class leaving_out(ContextDecorator):
    """Context manager in which this thread compiles without these optimizations, whatever `settings.disable` is.

    A program is planned as it was when it was made, also if the setting changes meanwhile.

    >>> with leaving_out(frozenset({"rerolling"})):
    ...     disabled("rerolling")
    True
    """

    def __init__(self, names: frozenset[str]):
        self.names = names

    def __enter__(self) -> None:
        self.before, _thread.left_out = _thread.left_out, self.names

    def __exit__(self, *_: object) -> None:
        _thread.left_out = self.before

    def _recreate_cm(self) -> leaving_out:
        return leaving_out(self.names)
