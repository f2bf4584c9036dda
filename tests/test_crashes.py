"""What has ended a process, or hung it, each in a process of its own: it ends as it says, and the value is right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import gc, os, sys, threading, warnings
import numpy as np, tracegrad as tg
"""


def succeeds(script: str, **environment: str) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", HEAD + script + "\nprint('fine')"]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240, check=False
    )
    assert (ended.stdout.strip(), ended.returncode) == ("fine", 0), ended.stderr


# A child for each limit above what is taken, in MB: it ends by itself.
LIMITED = """
import resource

def f(x):
    for k in range(6):
        x = np.sin(x) * (k + 1.5) + np.tanh(x @ x) if k % 3 == 0 else np.exp(-x * x)
    return np.sum(x)

x = np.full((7, 7), 0.1)
expected, refused = f(x), 0
for free in (0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64, 128):
    child = os.fork()
    if child == 0:
        if begun:
            tg.trace(lambda x: np.cos(x) * 2)(x)
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (taken + (free << 20), before[1]))
        refused = 0
        g = tg.value_and_grad(f)
        try:
            value = g(x)[0]
        except MemoryError:
            refused = 1
        resource.setrlimit(resource.RLIMIT_AS, before)
        os._exit(refused if np.isclose(g(x)[0], expected) else 2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1), (free, code)
    refused += code
assert 5 <= refused < 17, refused  # the least and not the most
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("begun", [False, True])
def test_a_limit_on_memory_is_a_memory_error_of_the_call_and_no_end_of_the_process(begun: bool) -> None:
    succeeds(f"begun = {begun}" + LIMITED, TRACEGRAD_CACHE="0", TRACEGRAD_FIRST_CALL="compile", TRACEGRAD_OPTIMIZE="1")
