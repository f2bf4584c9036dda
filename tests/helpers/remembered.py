"""Cases for traces on disk: modules that two processes import, from two folders: as they were, and as they are now.

The `function` of a module is traced at its `arguments`; what comes out is compared with what NumPy gives, and how often
it was traced is counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RUN = """
import importlib, json, sys, warnings
import numpy as np
import tracegrad as tg

warnings.simplefilter("error")

def same(x, y):
    if type(x) is not type(y):
        return False
    if isinstance(x, dict):
        return [*x] == [*y] and all(same(x[k], y[k]) for k in x)
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(map(same, x, y))
    if x is None or isinstance(x, str):
        return x == y
    close = np.allclose(x, y, rtol=1e-6, atol=1e-12, equal_nan=True)
    return close and np.asarray(x).dtype == np.asarray(y).dtype

found = {}
for name in sys.argv[2:]:
    sys.path.insert(0, sys.argv[1])
    module = importlib.import_module(name)
    rounds = getattr(module, "rounds", [lambda: None])
    made, outputs = module.make(tg), []
    for before in rounds:
        before()
        function = getattr(module, "plain", module).function
        wanted, given = function(*module.arguments), made(*module.arguments)
        outputs.append("" if same(wanted, given) else f"{given}, not {wanted}")
    info = made.cache_info()
    found[name] = [outputs, info.traces, "numba" in sys.modules]
print(json.dumps(found))
"""

HEAD = """
import numpy as np
arguments = (np.array([0.25, 0.5, 1.5]),)
def make(tg):
    return tg.trace(function)
"""


class Case(NamedTuple):
    """A module before and now, and how often it is traced now."""

    before: str
    now: str
    traces: int


def same(text: str) -> Case:
    """Nothing has changed."""
    return Case(text, text, 0)


def changed(text: str, old: str, new: str) -> Case:
    """Something has, so that it is traced again."""
    assert text.count(old) == 1
    return Case(text, text.replace(old, new), 1)


def in_new_process(folder: Path, cache: Path, names: list[str], first_call: str) -> Any:
    """What the cases in a folder give, by a process of its own."""
    environment = {
        **os.environ,
        "TRACEGRAD_CACHE_DIR": str(cache),
        "TRACEGRAD_CACHE": "1",
        "TRACEGRAD_CACHE_TRACES": "1",
        "TRACEGRAD_FIRST_CALL": first_call,
    }
    command = [sys.executable, "-c", RUN, str(folder), *names]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def before_and_now(
    root: Path,
    cases: Mapping[str, Case],
    first_call: str,
    apart: Sequence[str] = (),
    others: Mapping[str, str] | None = None,
    place: str = "",
) -> dict[str, tuple[Any, Any]]:
    """What each case gives before and now, with `others` as modules beside them. Those `apart` change the process for
    all that come after them, and have one of their own. The modules lie at this `place` in their folders."""
    folders = root / "before" / place, root / "now" / place
    for folder, which in zip(folders, ("before", "now")):
        folder.mkdir(parents=True)
        for name, case in cases.items():
            (folder / f"{name}.py").write_text(HEAD + textwrap.dedent(getattr(case, which)))
        for name, text in (others or {}).items():
            (folder / f"{name}.py").write_text(text)
    results: list[dict[str, Any]] = []
    for folder in folders:
        names = [name for name in cases if name not in apart]
        results.append(in_new_process(folder, root / "cache", names, first_call))
        for name in apart:
            results[-1] |= in_new_process(folder, root / "cache", [name], first_call)
    return {name: (results[0][name], results[1][name]) for name in cases}


def both_ways(cases: Mapping[str, Case], apart: Sequence[str] = ()) -> Any:
    """A fixture: what each case gives before and now, where NumPy answers the first call, and as modules of an
    installed package, which is another version now, where the first call compiles."""

    @pytest.fixture(scope="module", params=["replay", "installed"])
    def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
        first_call, place = ("compile", "site-packages") if request.param == "installed" else ("replay", "")
        return before_and_now(tmp_path_factory.mktemp("traces"), cases, first_call, apart, place=place)

    return both


def check(found: tuple[Any, Any], case: Case) -> None:
    """Both processes give what NumPy does, and the second has traced as often as it had to."""
    for outputs, _, numba in found:
        assert not numba
        assert [text for text in outputs if text] == []
    assert found[1][1] == case.traces
