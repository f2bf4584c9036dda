"""Grad modes of each thread (`no_grad`, `inference_mode`, ...), and the default dtype."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "DEFAULT",
    "STATE",
    "as_usual",
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]

F = TypeVar("F", bound=Callable[..., Any])


class DEFAULT:
    """Dtype of new Tensors made of Python floats, for the whole process.

    Attributes
    ----------
    dtype : numpy.dtype
        float64, unless `set_default_dtype` has changed it.

    Examples
    --------
    >>> DEFAULT.dtype
    dtype('float64')
    """

    dtype: np.dtype[Any] = np.dtype(np.float64)


class _ModeState(threading.local):
    """Modes of a thread.

    `enabled` and `inference` are the grad mode and the inference mode. `watching` says whether anomaly detection is on,
    `check_nan` whether nan is an anomaly. `saving` are the pairs of saved-tensor hooks, the innermost last. `refused`
    is the error text while such hooks are disabled. `guarding` copies saved tensors before they are overwritten.
    `level` is the dual level, in which Tensors have tangents. `unusual` says that a result needs more work than in the
    usual modes. `depth` is the number of eager derivatives of functions around this call, `sweep` the active backward
    pass. `retains_tape` says that a function is called row by row and this is not the last row: later rows use the tape
    of `autograd.grad` again, so it is retained. `multithreading` is what `set_multithreading_enabled` has set.
    """

    enabled = True
    inference = False
    depth = 0
    watching = False
    check_nan = True
    saving: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = ()
    refused = ""
    guarding: Any = None
    level: Any = None
    unusual = False
    sweep: Any = None
    retains_tape = False
    multithreading = True

    def update_unusual(self) -> None:
        """Update `unusual` after a change of the modes."""
        self.unusual = self.is_unusual(self.inference)

    def is_unusual(self, inference: bool) -> bool:
        """Compute the value of `unusual`, in inference mode or outside it."""
        return inference or self.watching or bool(self.saving) or self.level is not None


STATE = _ModeState()


class as_usual:
    """Context manager without inference mode, anomaly detection, saved-tensor hooks and tangents."""

    # The statements that set and restore modes call nothing, so that no signal can interrupt them.
    def __enter__(self) -> None:
        self.before = STATE.inference, STATE.watching, STATE.saving, STATE.level, STATE.unusual
        STATE.inference, STATE.watching, STATE.saving, STATE.level, STATE.unusual = False, False, (), None, False

    def __exit__(self, *_: object) -> None:
        STATE.inference, STATE.watching, STATE.saving, STATE.level, STATE.unusual = self.before


def is_grad_enabled() -> bool:
    """Return whether operations on Tensors that require grad are recorded in this thread.

    Returns
    -------
    bool
        True if they are recorded.

    Examples
    --------
    >>> is_grad_enabled()
    True
    """
    return STATE.enabled


def is_inference_mode_enabled() -> bool:
    """Return whether this thread is in inference mode.

    Returns
    -------
    bool
        True in inference mode.

    Examples
    --------
    >>> with inference_mode():
    ...     is_inference_mode_enabled(), is_grad_enabled()
    (True, False)
    """
    return STATE.inference


_Modes = tuple[bool, bool, bool]


class ModeContext:
    """Reentrant context manager and decorator that sets modes for its block.

    The statements that set and restore modes call nothing, so that no signal can interrupt them.
    """

    def __init__(self) -> None:
        self._previous: list[_Modes] = []

    def modes(self) -> tuple[bool, bool]:
        """Return the grad mode and the inference mode of the block."""
        raise NotImplementedError

    def __enter__(self) -> None:
        inside = _whole(self.modes())
        self._previous.append((STATE.enabled, STATE.inference, STATE.unusual))
        STATE.enabled, STATE.inference, STATE.unusual = inside

    def __exit__(self, *_: object) -> None:
        STATE.enabled, STATE.inference, STATE.unusual = self._previous[-1]
        del self._previous[-1]
        STATE.update_unusual()

    def __call__(self, fn: F) -> F:
        return _decorated(fn, self.modes)


_OF_CLASS = (
    "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
    "methods; for a class, decorate its `__init__`."
)


def _whole(modes: tuple[bool, bool]) -> _Modes:
    """Return the grad mode, the inference mode, and the resulting `unusual`."""
    return *modes, STATE.is_unusual(modes[1])


class _ArglessMode(ModeContext):
    """Mode without arguments: a decorator with or without parentheses."""

    def __new__(cls, fn: Callable[..., Any] | None = None) -> Any:
        result = super().__new__(cls)
        if fn is None:
            return result
        result.__init__()  # type: ignore[misc]
        return result(fn)


class no_grad(_ArglessMode):
    """Disable recording: a context manager, or a decorator with or without parentheses.

    Parameters
    ----------
    fn : callable, optional
        Function to decorate.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor(2.0, requires_grad=True)
    >>> with no_grad():
    ...     (x * x).requires_grad
    False
    """

    def modes(self) -> tuple[bool, bool]:
        return False, STATE.inference


class enable_grad(_ArglessMode):
    """Enable recording inside of `no_grad`: a context manager, or a decorator with or without parentheses.

    Parameters
    ----------
    fn : callable, optional
        Function to decorate.

    Examples
    --------
    >>> with no_grad(), enable_grad():
    ...     is_grad_enabled()
    True
    """

    def modes(self) -> tuple[bool, bool]:
        return True, STATE.inference


class inference_mode(ModeContext):
    """Disable recording, and make Tensors that can never be recorded: a context manager or a decorator.

    Parameters
    ----------
    mode : bool or callable
        Whether to enter inference mode; False leaves it. A function is decorated.

    Notes
    -----
    Tensors of inference mode have no version counter. In normal mode, an inference tensor cannot be updated in place or
    saved for a derivative: both raise RuntimeError.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> with inference_mode():
    ...     tensor([1.0]).is_inference()
    True
    """

    def __new__(cls, mode: Any = True) -> Any:
        result = super().__new__(cls)
        if isinstance(mode, bool):
            return result
        result.__init__(True)  # type: ignore[misc]
        return result(mode)

    def __init__(self, mode: bool = True):
        super().__init__()
        self.mode = mode

    def modes(self) -> tuple[bool, bool]:
        return not self.mode, self.mode


class set_grad_enabled(ModeContext):
    """Set the grad mode: from the call on, or for a block as a context manager or decorator.

    Parameters
    ----------
    mode : bool
        Whether operations are recorded.

    Examples
    --------
    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool):
        super().__init__()
        self.mode = mode
        self._before: _Modes | None = (STATE.enabled, STATE.inference, STATE.unusual)
        STATE.enabled = mode

    def modes(self) -> tuple[bool, bool]:
        return self.mode, STATE.inference

    def __enter__(self) -> None:
        # The first block ends the mode that the call has set.
        inside = _whole(self.modes())
        self._previous.append(self._before or (STATE.enabled, STATE.inference, STATE.unusual))
        self._before = None
        STATE.enabled, STATE.inference, STATE.unusual = inside

    def __call__(self, fn: F) -> F:
        if self._before is not None:
            STATE.enabled, STATE.inference, STATE.unusual = self._before
            self._before = None
        return super().__call__(fn)


class set_multithreading_enabled:
    """Set whether PyTorch's backward passes use several threads, from the call on or for a block.

    Backward passes run in the thread that calls them in any case, so results are the same.

    Parameters
    ----------
    mode : bool
        Value of `is_multithreading_enabled`.

    Examples
    --------
    >>> with set_multithreading_enabled(False):
    ...     is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool):
        self._before = STATE.multithreading
        STATE.multithreading = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        STATE.multithreading = self._before


def is_multithreading_enabled() -> bool:
    """Return the value that `set_multithreading_enabled` has set in this thread.

    Returns
    -------
    bool
        True unless it was set.

    Examples
    --------
    >>> is_multithreading_enabled()
    True
    """
    return STATE.multithreading


def _decorated(fn: F, modes: Callable[[], tuple[bool, bool]]) -> F:
    if inspect.isclass(fn):
        warnings.warn(_OF_CLASS, FutureWarning, stacklevel=3)
    if inspect.isgeneratorfunction(fn):
        return _generating(fn, modes)

    @functools.wraps(fn)
    def call(*args: object, **kwargs: object) -> Any:
        inside = _whole(modes())
        previous = (STATE.enabled, STATE.inference, STATE.unusual)
        STATE.enabled, STATE.inference, STATE.unusual = inside
        try:
            return fn(*args, **kwargs)
        finally:
            STATE.enabled, STATE.inference, STATE.unusual = previous
            STATE.update_unusual()

    return call  # type: ignore[return-value]


def _generating(fn: F, modes: Callable[[], tuple[bool, bool]]) -> F:
    """Wrap a generator function so that its body runs in the modes, but its caller does not."""

    @functools.wraps(fn)
    def call(*args: object, **kwargs: object) -> Any:
        generator = fn(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(next, generator)
        while True:
            inside = _whole(modes())
            previous = (STATE.enabled, STATE.inference, STATE.unusual)
            STATE.enabled, STATE.inference, STATE.unusual = inside
            try:
                value = resume()
            except StopIteration as stop:
                return stop.value
            finally:
                STATE.enabled, STATE.inference, STATE.unusual = previous
                STATE.update_unusual()
            try:
                sent = yield value
                resume = functools.partial(generator.send, sent)
            except GeneratorExit:
                inside = _whole(modes())
                previous = (STATE.enabled, STATE.inference, STATE.unusual)
                STATE.enabled, STATE.inference, STATE.unusual = inside
                try:
                    generator.close()
                finally:
                    STATE.enabled, STATE.inference, STATE.unusual = previous
                    STATE.update_unusual()
                raise
            except BaseException as error:
                resume = functools.partial(generator.throw, error)

    return call  # type: ignore[return-value]
