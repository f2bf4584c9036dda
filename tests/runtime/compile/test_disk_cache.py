"""The disk cache: what goes in comes out, what was touched does not, and nothing here stops a program."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs
import pytest
from paths import ROOT

from tracegrad.errors import CacheWarning
from tracegrad.runtime.compile import disk_cache as cache_module
from tracegrad.runtime.compile.disk_cache import DiskCache, default_cache
from tracegrad.settings import settings

HEADER = {"symbols": ["n", "m"], "arena": 4096, "nested": {"a": None, "b": 1.5}}
PAYLOAD = bytes(range(256)) * 8 + b"\n\0"


@pytest.fixture(autouse=True)
def _settings_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test says to the settings or the environment ends with it."""
    yield
    monkeypatch.undo()
    settings.reload()


posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture(autouse=True)
def forget_warnings() -> Iterator[None]:
    cache_module._warned.clear()
    yield
    cache_module._warned.clear()


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "cache"))


def stored(cache: DiskCache) -> Path:
    assert cache.folder is not None
    (path,) = Path(cache.folder).glob("*.tgc")
    return path


def test_a_program_comes_back_as_it_was_stored(cache: DiskCache) -> None:
    assert cache.get("key") is None
    cache.put("key", HEADER, PAYLOAD)
    assert cache.get("key") == (HEADER, PAYLOAD)
    assert cache.get("kez") is None


def test_the_log_tells_what_became_of_each_key(cache: DiskCache, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tracegrad.cache")
    assert cache.folder is not None
    os.mkdir(cache.folder, mode=0o700)
    cache.get("key")
    cache.put("key", HEADER, PAYLOAD)
    cache.get("key")
    path = str(stored(cache))
    size = os.path.getsize(path)
    stored(cache).write_bytes(b"rubbish")
    cache_module._warned.add("damaged")
    cache.get("key")
    said = [f"there is no {path} yet", f"wrote {size} bytes to {path}", f"read {path}"]
    assert caplog.messages[:3] == said
    assert len(caplog.messages) == 4
    assert "damaged" in caplog.messages[3]


@pytest.mark.parametrize("payload", [b"", b"\n", b"x" * 100_000])
def test_any_bytes_and_any_key_can_be_stored(cache: DiskCache, payload: bytes) -> None:
    for key in ("", "a/../b\0\n", "ключ" * 100):
        cache.put(key, {}, payload)
        assert cache.get(key) == ({}, payload)


def test_the_last_write_of_a_key_wins(cache: DiskCache) -> None:
    cache.put("key", {"n": 1}, b"first")
    cache.put("key", {"n": 2}, b"second")
    assert cache.get("key") == ({"n": 2}, b"second")
    assert cache.info()[1] == 1


def test_info_counts_and_clear_removes_only_the_caches_own_files(cache: DiskCache) -> None:
    assert cache.info() == (cache.folder, 0, 0)
    cache.put("one", HEADER, PAYLOAD)
    cache.put("two", HEADER, PAYLOAD)
    assert cache.folder is not None
    other = Path(cache.folder, "notes.txt")
    other.write_text("mine")
    assert cache.info() == (cache.folder, 2, sum(p.stat().st_size for p in Path(cache.folder).glob("*.tgc")))
    cache.clear()
    assert cache.info()[1:] == (0, 0)
    assert other.exists()


@posix
def test_folder_and_files_are_private(cache: DiskCache) -> None:
    cache.put("key", HEADER, PAYLOAD)
    assert stored(cache).parent.stat().st_mode & 0o777 == 0o700
    assert stored(cache).stat().st_mode & 0o777 == 0o600


def test_every_flipped_bit_is_noticed(cache: DiskCache) -> None:
    """One bit in each byte of header, payload and digest in turn, some 2,200 files."""
    cache.put("key", HEADER, PAYLOAD)
    good = stored(cache).read_bytes()

    def noticed(position: int) -> bool:
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 8)
        stored(cache).write_bytes(bad)
        return cache.get("key") is None

    with pytest.warns(CacheWarning, match="damaged"):
        assert all(noticed(position) for position in range(len(good)))
    stored(cache).write_bytes(good)
    assert cache.get("key") == (HEADER, PAYLOAD)


def test_every_truncation_is_noticed(cache: DiskCache) -> None:
    cache.put("key", {}, b"payload")
    good = stored(cache).read_bytes()

    def noticed(length: int) -> bool:
        stored(cache).write_bytes(good[:length])
        return cache.get("key") is None

    with pytest.warns(CacheWarning, match="damaged"):
        assert all(noticed(length) for length in range(len(good)))
    stored(cache).write_bytes(good + b"\0")
    assert cache.get("key") is None


def test_a_damaged_file_is_replaced_by_the_next_put(cache: DiskCache) -> None:
    cache.put("key", HEADER, PAYLOAD)
    stored(cache).write_bytes(b"rubbish")
    with pytest.warns(CacheWarning, match=r"damaged.*TRACEGRAD_CACHE_DIR"):
        assert cache.get("key") is None
    cache.put("key", HEADER, PAYLOAD)
    assert cache.get("key") == (HEADER, PAYLOAD)


def test_another_format_is_a_silent_miss(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_FORMAT", 0)
    cache.put("key", HEADER, PAYLOAD)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get("key") is None
    (entry,) = cache.entries()
    assert (entry.kind, entry.problem) == ("format 0", "")


def test_a_file_moved_to_the_name_of_another_key_is_a_miss(cache: DiskCache) -> None:
    cache.put("one", HEADER, PAYLOAD)
    path = stored(cache)
    cache.put("two", HEADER, b"other")
    path.replace(DiskCache._path(str(path.parent), "two"))
    assert cache.get("two") is None


@posix
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_others_can_write_to_is_neither_read_nor_written(cache: DiskCache, mode: int) -> None:
    cache.put("key", HEADER, PAYLOAD)
    folder = stored(cache).parent
    folder.chmod(mode)
    with pytest.warns(CacheWarning, match=f"{folder}.*chmod 700"):
        assert cache.get("key") is None
    cache.put("other", HEADER, PAYLOAD)
    assert cache.get("other") is None
    assert cache.info()[1] == 1


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_others_can_write_to_is_not_read(cache: DiskCache, mode: int) -> None:
    cache.put("key", HEADER, PAYLOAD)
    stored(cache).chmod(mode)
    with pytest.warns(CacheWarning, match="nobody else can write"):
        assert cache.get("key") is None


@posix
def test_a_foreign_folder_and_a_foreign_file_are_not_read(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put("key", HEADER, PAYLOAD)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(CacheWarning, match="you own"):
        assert cache.get("key") is None
    answers = iter([me, me + 1])  # the folder is mine, the file is not
    monkeypatch.setattr(os, "geteuid", lambda: next(answers))
    cache_module._warned.clear()
    with pytest.warns(CacheWarning, match="is not used: it must be a file that you own"):
        assert cache.get("key") is None
    monkeypatch.undo()
    assert cache.get("key") == (HEADER, PAYLOAD)


@posix
def test_a_symbolic_link_in_place_of_a_file_is_not_followed(cache: DiskCache, tmp_path: Path) -> None:
    cache.put("key", HEADER, PAYLOAD)
    path = stored(cache)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with pytest.warns(CacheWarning, match="Cannot read"):
        assert cache.get("key") is None


@pytest.mark.parametrize("where", ["makedirs", "replace", "_write"])
def test_a_disk_that_cannot_be_written_is_one_warning_and_no_error(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(DiskCache if where == "_write" else os, where, full)
    with pytest.warns(CacheWarning, match=r"No space left.*not kept for the next process"):
        cache.put("one", HEADER, PAYLOAD)
    cache.put("two", HEADER, PAYLOAD)
    monkeypatch.undo()
    assert cache.get("one") is None
    assert cache.folder is not None
    assert not os.path.exists(cache.folder) or os.listdir(cache.folder) == [], "a temporary file was left"


@posix
def test_a_read_only_folder_still_serves_reads(cache: DiskCache) -> None:
    cache.put("key", HEADER, PAYLOAD)
    folder = stored(cache).parent
    folder.chmod(0o500)
    try:
        if os.access(folder, os.W_OK):
            cache.put("other", HEADER, PAYLOAD)  # a superuser writes anywhere
        else:
            with pytest.warns(CacheWarning, match="Cannot write"):
                cache.put("other", HEADER, PAYLOAD)
        assert cache.get("key") == (HEADER, PAYLOAD)
    finally:
        folder.chmod(0o700)


def test_a_file_in_place_of_the_folder_is_one_warning_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        cache_module._warned.clear()
        cache = DiskCache(str(folder))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert cache.get("key") is None
            cache.put("key", HEADER, PAYLOAD)
            assert cache.get("key") is None
        assert [w.category for w in caught] == [CacheWarning]
        assert [w.filename for w in caught] == [__file__], "one warning, at the user's line"


def test_the_oldest_files_go_when_the_cache_is_too_large(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), max_bytes=20_000)
    assert cache.folder is not None
    for i in range(10):
        cache.put(str(i), {}, bytes(4000))
        os.utime(DiskCache._path(cache.folder, str(i)), (i + 1, i + 1))
        assert cache.info()[2] <= 20_000
    cache.put("new", {}, bytes(4000))
    assert cache.info()[2] <= 20_000 * 3 // 4
    assert cache.get("new") is not None
    assert [cache.get(str(i)) is not None for i in range(10)] == [False] * 8 + [True] * 2


def test_the_folder_is_listed_once_for_many_files_that_are_written(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: listings.append(folder) or scandir(folder))  # type: ignore[func-returns-value]
    for i in range(300):
        cache.put(str(i), {}, bytes(6000))
        assert cache.get(str(i)) is not None
    before = len(listings)
    assert before <= 2
    cache.put("large", {}, bytes(8 * 2**20))
    assert len(listings) == before + 1


def test_a_hit_makes_a_file_young_again(cache: DiskCache) -> None:
    cache.put("key", HEADER, PAYLOAD)
    old = time.time() - 10 * 86400
    os.utime(stored(cache), (old, old))
    assert cache.get("key") is not None
    assert time.time() - stored(cache).stat().st_mtime < 3600


def test_what_a_crashed_writer_left_is_swept(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), max_bytes=20_000)
    assert cache.folder is not None
    os.makedirs(cache.folder, mode=0o700)
    old, young = Path(cache.folder, "a.tgc.1.0.tmp"), Path(cache.folder, "b.tgc.1.0.tmp")
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.put("key", HEADER, PAYLOAD)
    assert not old.exists()
    assert young.exists()


WRITER = """
import sys
from tracegrad.runtime.compile.disk_cache import DiskCache
cache = DiskCache(sys.argv[1])
for round in range(150):
    payload = bytes([round % 7]) * 20000
    cache.put("shared", {"round": round % 7}, payload)
    header, found = cache.get("shared")
    assert found == bytes([header["round"]]) * 20000
"""


def test_clear_and_sweeps_leave_temporary_files_of_others(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"))
    cache.put("key", {}, b"code")
    assert cache.folder is not None
    others = [Path(cache.folder, name) for name in ("report.tmp", ".tmp", "a.tgc.tmp", "a.tgc.old.tmp", "1.2.tmp")]
    own = Path(cache.folder, "a.tgc.1.0.tmp")
    for path in (*others, own):
        path.write_bytes(b"half")
        os.utime(path, (0, 0))
    cache._sweep(cache.folder)
    assert not own.exists()
    cache.clear()
    assert sorted(os.listdir(cache.folder)) == sorted(path.name for path in others)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    script = """
import os, sys, warnings
from tracegrad.runtime.compile.disk_cache import DiskCache
cache = DiskCache(sys.argv[1])
cache.put("key", {}, b"code")
path = cache._path(cache.folder, "key")
os.unlink(path)
os.mkfifo(path, 0o600)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    assert cache.get("key") is None
assert "is not used" in str(told[0].message)
cache.put("key", {}, b"code")
assert cache.get("key") == ({}, b"code")
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "cache")], check=True, timeout=60)


def test_two_writers_of_one_key_never_show_a_torn_file(tmp_path: Path) -> None:
    root = str(ROOT)
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path / "cache")]
    writers = [subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()
    assert len(os.listdir(tmp_path / "cache")) == 1


@pytest.mark.parametrize("word", ["0", "off", "No", "false"])
def test_the_environment_switches_the_cache_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str) -> None:
    monkeypatch.setenv("TRACEGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRACEGRAD_CACHE", word)
    settings.reload()
    cache = default_cache()
    cache.put("key", HEADER, PAYLOAD)
    assert cache.get("key") is None
    assert cache.info() == ("", 0, 0)
    cache.clear()
    assert not (tmp_path / "cache").exists()


def test_the_settings_are_followed_at_call_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        settings.cache_dir = tmp_path / name
        default_cache().put("key", {"in": name}, b"")
    settings.cache_dir = tmp_path / "a"
    assert default_cache().get("key") == ({"in": "a"}, b"")


@pytest.mark.parametrize("base", [None, "", "xdg"])
def test_the_default_folder_is_the_one_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, base: str | None
) -> None:
    monkeypatch.delenv("TRACEGRAD_CACHE", raising=False)
    monkeypatch.delenv("TRACEGRAD_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", base and str(tmp_path / base))
    settings.reload()
    assert default_cache().folder == platformdirs.user_cache_dir("tracegrad", appauthor=False)


@pytest.mark.parametrize("bad", [{"array": object()}, {"set": {1}}])
def test_a_header_json_cannot_hold_is_the_callers_error(cache: DiskCache, bad: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        cache.put("key", bad, PAYLOAD)


def test_only_the_first_problem_of_a_kind_warns(cache: DiskCache) -> None:
    cache.put("key", HEADER, PAYLOAD)
    stored(cache).write_bytes(b"rubbish")

    def count(action: Callable[[], object]) -> int:
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            action()
        return len(record)

    assert [count(lambda: cache.get("key")) for _ in range(3)] == [1, 0, 0]
