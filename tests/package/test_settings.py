"""The switches, from the environment and at run time, and `disable_jit`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tracegrad.settings import MOST_THREADS, TOPICS, Settings, disable_jit, jit_disabled

VARIABLES = {
    "log": "TRACEGRAD_LOG",
    "verify": "TRACEGRAD_VERIFY",
    "num_threads": "TRACEGRAD_NUM_THREADS",
    "loop_memory": "TRACEGRAD_LOOP_MEMORY",
    "progress": "TRACEGRAD_PROGRESS",
    "first_call": "TRACEGRAD_FIRST_CALL",
    "optimize": "TRACEGRAD_OPTIMIZE",
    "opaque_packages": "TRACEGRAD_OPAQUE",
    "unknown_python": "TRACEGRAD_UNKNOWN_PYTHON",
    "disable": "TRACEGRAD_DISABLE",
    "cache": "TRACEGRAD_CACHE",
    "cache_traces": "TRACEGRAD_CACHE_TRACES",
    "cache_dir": "TRACEGRAD_CACHE_DIR",
}


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


GOOD = [
    ("log", "", frozenset()),
    ("log", "compile", frozenset({"compile"})),
    ("log", " compile,retrace ,", frozenset({"compile", "retrace"})),
    ("log", "compile,cache,retrace,loops,source", frozenset(TOPICS)),
    ("verify", "1", True),
    ("verify", "0", False),
    ("verify", "True", True),
    ("verify", " ", False),
    ("progress", "off", False),
    ("num_threads", "3", 3),
    ("num_threads", " 1024 ", MOST_THREADS),
    ("num_threads", "", None),
    ("loop_memory", "4096", 4096),
    ("loop_memory", " 256k", 256 * 2**10),
    ("loop_memory", "512M", 512 * 2**20),
    ("loop_memory", "2G", 2 * 2**30),
    ("loop_memory", "1t", 2**40),
    ("loop_memory", "none", None),
    ("loop_memory", "", 2**30),
    ("first_call", "", "replay"),
    ("first_call", " Compile", "compile"),
    ("first_call", "background", "background"),
    ("optimize", "1", 1),
    ("optimize", " 3 ", 3),
    ("optimize", "", 2),
    ("opaque_packages", "", frozenset()),
    ("unknown_python", "", False),
    ("unknown_python", "1", True),
    ("opaque_packages", "one, two.of_it", frozenset({"one", "two.of_it"})),
    ("disable", "", frozenset()),
    ("disable", "rerolling, Buffer_Reuse,", frozenset({"rerolling", "buffer-reuse"})),
    ("cache", "0", False),
    ("cache", "Off", False),
    ("cache", "1", True),
    ("cache", "", True),
    ("cache_traces", "0", False),
    ("cache_traces", "", True),
    ("cache_dir", "/some/where", "/some/where"),
    ("cache_dir", "", None),
]

BAD = [
    ("log", "compile,everything"),
    ("log", "Compile"),
    ("verify", "2"),
    ("verify", "maybe"),
    ("num_threads", "0"),
    ("num_threads", "-1"),
    ("num_threads", "1025"),
    ("num_threads", "two"),
    ("num_threads", "1.5"),
    ("num_threads", "²"),
    ("num_threads", "9" * 5000),
    ("loop_memory", "much"),
    ("loop_memory", "-1"),
    ("loop_memory", "1.5G"),
    ("loop_memory", "2GB"),
    ("loop_memory", "M"),
    ("loop_memory", "1kk"),
    ("loop_memory", "9" * 5000),
    ("first_call", "later"),
    ("optimize", "0"),
    ("optimize", "4"),
    ("optimize", "fast"),
    ("opaque_packages", "../one"),
    ("disable", "rerolling,everything"),
    ("disable", "buffer reuse"),
    ("cache", "/some/where"),
]


def test_without_variables_the_defaults_hold() -> None:
    expected = "log=frozenset(), verify=False, num_threads=None, loop_memory=1073741824"
    expected += ", progress=True, first_call='replay', optimize=2, opaque_packages=frozenset(), unknown_python=False"
    expected += ", disable=frozenset(), cache=True, cache_traces=True, cache_dir=None"
    assert repr(Settings()) == f"Settings({expected})"


@pytest.mark.parametrize(("name", "text", "expected"), GOOD)
def test_the_environment_sets_each_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, expected: object
) -> None:
    monkeypatch.setenv(VARIABLES[name], text)
    value = getattr(Settings(), name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_is_an_error_that_names_the_variable_and_the_value(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(VARIABLES[name], text)
    settings = Settings()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"it must be|unknown topic|unknown optimization") as caught:
            getattr(settings, name)
        assert str(caught.value).startswith(f"{VARIABLES[name]}={text!r}: ")


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_set_at_run_time_is_an_error_that_changes_nothing(name: str, text: str) -> None:
    settings = Settings()
    before = repr(settings)
    with pytest.raises(ValueError, match=r"it must be|unknown topic|unknown optimization") as caught:
        setattr(settings, name, text)
    assert str(caught.value).startswith(f"settings.{name} = {text!r}: ")
    assert repr(settings) == before


WRONG = [
    ("verify", 1.5),
    ("num_threads", True),
    ("loop_memory", True),
    ("loop_memory", 1e6),
    ("log", 3),
    ("cache_dir", 3),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_of_the_wrong_type_is_an_error(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"settings.{name} = "):
        setattr(Settings(), name, value)


def test_settings_take_values_of_python_at_run_time() -> None:
    settings = Settings()
    settings.log = {"cache"}
    settings.verify = True
    settings.num_threads = 2
    settings.cache_dir = Path("/some/where")
    assert (settings.log, settings.verify, settings.num_threads) == ({"cache"}, True, 2)
    assert settings.cache_dir == "/some/where"
    settings.num_threads = None
    assert settings.num_threads is None
    settings.loop_memory = 10**6
    assert settings.loop_memory == 10**6
    settings.loop_memory = None
    assert settings.loop_memory is None


def test_the_environment_is_read_once_and_again_after_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    monkeypatch.setenv("TRACEGRAD_NUM_THREADS", "2")
    assert settings.num_threads == 2
    monkeypatch.setenv("TRACEGRAD_NUM_THREADS", "3")
    assert settings.num_threads == 2
    settings.reload()
    assert settings.num_threads == 3


def test_an_unknown_setting_is_an_error_that_lists_the_settings() -> None:
    with pytest.raises(AttributeError, match="no setting 'verfy'; the settings are log, verify"):
        Settings().verfy = True


def test_override_restores_what_held_before_even_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    settings.verify = True

    @settings.override(verify=False, num_threads=1)
    def fail() -> None:
        assert (settings.verify, settings.num_threads) == (False, 1)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert settings.verify is True
    monkeypatch.setenv("TRACEGRAD_NUM_THREADS", "5")
    assert settings.num_threads == 5
    with pytest.raises(ValueError, match="num_threads"), settings.override(verify=False, num_threads=0):
        pass
    assert (settings.verify, settings.num_threads) == (True, 5)


def test_disable_jit_nests_and_survives_exceptions() -> None:
    assert not jit_disabled()
    with disable_jit():
        with pytest.raises(KeyboardInterrupt), disable_jit():
            raise KeyboardInterrupt
        assert jit_disabled()
    assert not jit_disabled()


def test_disable_jit_decorates_functions_that_may_recurse() -> None:
    @disable_jit()
    def depth(n: int) -> list[bool]:
        return [jit_disabled(), *(depth(n - 1) if n else ())]

    assert depth(2) == [True] * 3
    assert not jit_disabled()


def test_disable_jit_holds_for_its_own_thread_only() -> None:
    seen = []
    with disable_jit():
        thread = threading.Thread(target=lambda: seen.append(jit_disabled()))
        thread.start()
        thread.join()
    assert seen == [False]
