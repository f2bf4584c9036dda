"""Namespace of `torch.multiprocessing`: the standard library's names, and `spawn`.

Tensors are copied to other processes, as all objects are.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NoReturn

from tracegrad.utils.lazy_import import mirrored

if TYPE_CHECKING:
    from tracegrad.typing import Array


# The standard library's names are added by `__getattr__`.
__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
]
__all__ += multiprocessing.__all__


__getattr__, __dir__ = mirrored(globals(), "multiprocessing")


class ProcessRaisedException(Exception):
    """Exception of a process that `spawn` has started: the text of its traceback.

    Parameters
    ----------
    msg : str
        Text.
    error_index : int
        Number of the process.
    error_pid : int
        Its id.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid


class ProcessExitedException(Exception):
    """End of a process that `spawn` has started, by a signal or an exit code.

    Parameters
    ----------
    msg : str
        Text.
    error_index : int
        Number of the process.
    error_pid : int
        Its id.
    exit_code : int
        Exit code, which is negative for a signal.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int):
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid, self.exit_code = msg, error_index, error_pid, exit_code


class ProcessContext:
    """Processes that `spawn` has started.

    Parameters
    ----------
    processes : list of Process
        Processes.
    errors : list of Connection
        Where each of them sends the traceback of its exception.
    """

    def __init__(self, processes: list[Any], errors: list[Any]):
        self.processes, self.errors = processes, errors

    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for some processes to end. True if all have ended without an exception.

        If one has failed, the others are ended: ProcessRaisedException or ProcessExitedException.
        """
        running = [process.sentinel for process in self.processes if process.exitcode is None]
        if running:
            wait(running, timeout)
        codes = [process.exitcode for process in self.processes]
        failed = [k for k, code in enumerate(codes) if code]
        if not failed:
            return None not in codes
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join(grace_period)
        self._raise(failed[0])

    def _raise(self, index: int) -> NoReturn:
        process, errors = self.processes[index], self.errors[index]
        with suppress(EOFError):
            if errors.poll():
                error = errors.recv_bytes().decode()
                text = f"\n\n-- Process {index} terminated with the following error:\n{error}"
                raise ProcessRaisedException(text, index, process.pid)
        code = process.exitcode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise ProcessExitedException(f"process {index} terminated with {how}", index, process.pid, code)


def spawn(
    fn: Callable[..., object],
    args: tuple[Array, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(k, *args)` in processes of the numbers k.

    Parameters
    ----------
    fn : callable
        Function of a module.
    args : tuple
        Its arguments after the number of the process.
    nprocs : int, default 1
        Number of processes.
    join : bool, default True
        Whether to wait for all of them.
    daemon : bool, default False
        Whether they end with this process.
    start_method : str, default "spawn"
        How they start: "spawn", "fork" or "forkserver".

    Returns
    -------
    ProcessContext or None
        Processes, unless `join`.

    Raises
    ------
    ProcessRaisedException
        If a process raises.
    ProcessExitedException
        If a process is killed, or ends with an exit code.

    Examples
    --------
    >>> spawn(print, nprocs=0)
    """
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for k in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(fn, k, args, sender), daemon=daemon)
        process.start()
        processes.append(process)
        errors.append(receiver)
    result = ProcessContext(processes, errors)
    if not join:
        return result
    while not result.join():
        pass
    return None


def _call(fn: Callable[..., object], index: int, args: tuple[Array, ...], errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the main process raises it
    except Exception:
        errors.send_bytes(traceback.format_exc().encode())
        raise SystemExit(1) from None


def get_all_sharing_strategies() -> set[str]:
    """Return how Tensors can be sent to other processes.

    Returns
    -------
    set of str
        Names.

    Examples
    --------
    >>> get_all_sharing_strategies()
    {'copy'}
    """
    return {"copy"}


def get_sharing_strategy() -> str:
    """Return how Tensors are sent to other processes: as copies.

    Returns
    -------
    str
        Name.

    Examples
    --------
    >>> get_sharing_strategy()
    'copy'
    """
    return "copy"


def set_sharing_strategy(new_strategy: str) -> None:
    """Do nothing: Tensors are sent to other processes as copies.

    Parameters
    ----------
    new_strategy : str
        Without effect.

    Examples
    --------
    >>> set_sharing_strategy("file_system")
    """
