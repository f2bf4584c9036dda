"""Generated Python: its lines are in tracebacks, and the log topic `source` prints it."""

from __future__ import annotations

import linecache
import traceback
from dataclasses import field

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import user_file
from tracegrad.settings import settings
from tracegrad.utils import source
from tracegrad.utils.lazy_dataclass import record
from tracegrad.utils.source import define


def test_a_traceback_shows_the_generated_line() -> None:
    divide = define("divide", "def divide(x):\n    return x / zero", {"zero": 0}, "an example")
    with pytest.raises(ZeroDivisionError) as error:
        divide(1)
    last = traceback.extract_tb(error.value.__traceback__)[-1]
    assert (last.name, last.lineno, last.line) == ("divide", 2, "return x / zero")
    assert last.filename.startswith("<tracegrad: an example ")
    assert not user_file(last.filename), "errors never name a generated line as the user's"


def test_equal_texts_share_code_and_not_their_namespaces() -> None:
    text = "def scaled(x):\n    return x * factor"
    first, second = (define("scaled", text, {"factor": k}, "scale") for k in (2, 3))
    assert first.__code__ is second.__code__
    assert (first(5), second(5)) == (10, 15)


def test_the_lines_of_at_most_so_many_texts_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_MAX_TEXTS", 2)
    monkeypatch.setattr(source, "_filenames", type(source._filenames)())
    names = [define("f", f"def f():\n    return {k}", {}, "bounded").__code__.co_filename for k in range(4)]
    assert [name in linecache.cache for name in names] == [False, False, True, True]


def test_the_log_topic_prints_fast_paths_and_their_checks(capsys: pytest.CaptureFixture[str]) -> None:
    scale = 2.0

    @tg.trace
    def scaled(p: dict[str, np.ndarray]) -> np.ndarray:
        return p["a"] * scale

    with settings.override(log="source"):
        for _ in range(3):
            scaled({"a": np.ones(3)})
    printed = capsys.readouterr().err
    assert "tracegrad.source: <tracegrad: fast path " in printed
    assert "def call(self, p=MISS" in printed or "def call(self, /, p=MISS" in printed
    assert "outputs = entry(" in printed


def test_the_log_topic_prints_methods_of_records(capsys: pytest.CaptureFixture[str]) -> None:
    @record(frozen=True)
    class Point:
        x: int
        others: list[int] = field(default_factory=list)

    with settings.override(log="source"):
        assert Point(1) == Point(1)
    printed = capsys.readouterr().err
    assert "Point.__init__" in printed
    assert "def __init__(self, x, others=LATER):\n    set(self, 'x', x)\n" in printed


def test_nothing_is_printed_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    define("silent", "def silent():\n    pass", {}, "silence")
    assert capsys.readouterr().err == ""
