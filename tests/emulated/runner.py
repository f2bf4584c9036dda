"""Run modules of tests one by one, each in a fork of this process, which has imported what they all import.

The emulated Python runs this file. Each line of its input is a command: a limit in seconds, the file for the output,
and the arguments of pytest, as JSON. Each line of its output is the answer: the exit code, or null if the limit ended
the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
POLL = 0.1  # seconds


def run(limit: float, log: str, arguments: list[str]) -> int | None:
    """Run pytest in a fork, and end it with all that it has started when its time is over."""
    child = os.fork()
    if child == 0:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        import pytest

        code = pytest.main(arguments)
        sys.stdout.flush()
        os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    sys.path[:0] = [str(TESTS), str(TESTS / "helpers"), str(TESTS / "samples")]
    import conftest  # noqa: F401  # with NumPy, SciPy's BLAS and tracegrad
    import pytest  # noqa: F401

    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(run(*json.loads(line)))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
