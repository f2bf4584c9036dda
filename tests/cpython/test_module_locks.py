"""What is assumed of the locks of imports: who holds one, from the search for the module on; a fork within a pause."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from tracegrad.cpython.module_locks import modules_being_imported, pause_imports, resume_imports


def import_nothing() -> None:
    with pytest.raises(ImportError):
        importlib.import_module("no_such_module")


class SlowFinder:
    """A finder that says when it looks for a module, and finds none when it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "no_such_module":
            self.begun.set()
            assert self.goes_on.wait(30)


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowFinder]:
    finder = SlowFinder()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    thread = threading.Thread(target=import_nothing)
    thread.start()
    yield finder
    finder.goes_on.set()
    thread.join()


def test_a_module_is_being_imported_while_it_is_searched(finder: SlowFinder) -> None:
    assert finder.begun.wait(30)
    assert "no_such_module" not in sys.modules
    assert "no_such_module" in [*modules_being_imported()]


def test_what_this_thread_imports_is_not_being_imported_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[list[str]] = []

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            names.append([*modules_being_imported()])

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(ImportError):
        importlib.import_module("no_such_module")
    assert names == [[]]


def test_no_import_begins_in_a_pause() -> None:
    pause_imports()
    thread = threading.Thread(target=import_nothing)
    try:
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert "no_such_module" not in [*modules_being_imported()]
    finally:
        resume_imports()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_in_a_pause_imports_after_it() -> None:
    pause_imports()
    child = os.fork()
    if child == 0:
        resume_imports()
        importlib.reload(importlib.import_module("colorsys"))
        os._exit(7)
    resume_imports()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
