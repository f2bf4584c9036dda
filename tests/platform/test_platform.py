"""What other systems answer, in the place of this one's answers."""

from __future__ import annotations

import ast
import ctypes
import errno
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from tracegrad.platform import files, libraries, memory, processes, threads
from tracegrad.runtime.threads import pool

SYSTEMS = ("linux", "darwin", "win32")
WINDOWS = "3.13.0 (tags/v3.13.0:60403a5, Oct  7 2024, 09:38:07) [MSC v.1941 64 bit (AMD64)]"


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(sys, "platform", name)


# -- processes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "told", "expected"),
    [
        ("linux", "x86_64", "x86_64"),
        ("linux", "aarch64", "aarch64"),
        ("linux", "riscv64", "riscv64"),
        ("darwin", "arm64", "aarch64"),
        ("darwin", "x86_64", "x86_64"),
        ("win32", WINDOWS, "x86_64"),
        ("win32", WINDOWS.replace("AMD64", "ARM64"), "aarch64"),
        ("win32", "3.12.4 (main) [GCC UCRT 14.1.0 64 bit (AMD64)]", "x86_64"),
    ],
)
def test_instruction_sets_have_one_name(
    name: str, told: str, expected: str, system: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    system(name)
    if name == "win32":
        monkeypatch.setattr(sys, "version", told)
        monkeypatch.delattr(os, "uname", raising=False)
    else:
        monkeypatch.setattr(os, "uname", lambda: types.SimpleNamespace(machine=told), raising=False)
    assert processes.instruction_set() == expected


def test_a_system_without_forks_calls_nothing_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    processes.at_fork(print, print, print)


def test_only_the_named_moments_of_a_fork_have_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **functions: seen.append(functions), raising=False)
    processes.at_fork(in_child=print)
    processes.at_fork(print, repr)
    assert seen == [{"after_in_child": print}, {"before": print, "after_in_parent": repr}]


def test_the_cpus_of_a_system_without_cpu_sets_are_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sched_getaffinity", "process_cpu_count"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 6, raising=False)  # from Python 3.13 on
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert processes.usable_cpus() == 6
    monkeypatch.setattr(os, "process_cpu_count", lambda: None, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processes.usable_cpus() == 1


# -- threads -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"), [("linux", (True, True, 1)), ("darwin", (True, False, 6)), ("win32", (False, False, None))]
)
def test_what_threads_of_compiled_code_can_call(name: str, expected: Any, system: Callable[[str], None]) -> None:
    system(name)
    assert (threads.has_posix_threads(), threads.has_cpu_sets(), threads.monotonic_clock()) == expected


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_pool_of_a_system_calls_only_what_that_has(name: str, system: Callable[[str], None]) -> None:
    system(name)
    declared = {line.partition("@")[2].partition("(")[0] for line in pool._source().splitlines() if "declare" in line}
    called = {each for each in declared if not each.startswith("llvm.")}
    assert ("pthread_create" in called) == (name != "win32")
    assert ("sched_getcpu" in called) == (name == "linux")
    if name == "win32":
        assert called == set()
        assert pool.clock_source() == ""


# -- libraries ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "expected"), [("linux", None), ("darwin", None), ("win32", "ucrtbase")])
def test_the_c_library_is_that_of_python(
    name: str, expected: str | None, system: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    system(name)
    monkeypatch.setattr(ctypes, "CDLL", lambda file: ("loaded", file))
    assert libraries.c_library.__wrapped__() == ("loaded", expected)


def test_llvm_is_told_functions_on_windows_only(system: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    c, asked, expected = ctypes.CDLL(None), list[str | None](), {*libraries._OF_WINDOWS["ucrtbase"].split()}

    def loaded(file: str | None) -> Any:
        asked.append(file)
        if file != "ucrtbase":
            raise OSError("not found")
        return {name: c[name] for name in expected}

    monkeypatch.setattr(ctypes, "CDLL", loaded)
    for name in ("linux", "darwin"):
        system(name)
        assert libraries.c_functions() == {}
    assert asked == []
    system("win32")
    assert libraries.c_functions() == {name: libraries.address(c, name) for name in expected}
    assert {*asked} == {"ucrtbase", "vcruntime140", "ntdll"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["libscipy_openblas.so", "libscipy_openblas.so.0"], "libscipy_openblas.so"),  # the wheels of three systems
        (["libscipy_openblas.dylib"], "libscipy_openblas.dylib"),
        (["libscipy_openblas.dll", "libscipy_openblas.lib"], "libscipy_openblas.dll"),
        (["libscipy_openblas.lib", "readme.txt", "libother.so"], None),
    ],
)
def test_the_library_in_a_folder(names: list[str], expected: str | None, tmp_path: Path) -> None:
    for each in names:
        (tmp_path / each).touch()
    assert libraries.library_in(tmp_path, "openblas") == (None if expected is None else tmp_path / expected)


class Loader:
    """`ctypes.CDLL` of a system on which `loaded` files are loaded; what it was asked for."""

    def __init__(self, *loaded: Path) -> None:
        self.loaded, self.asked = loaded, list[tuple[Path, int | None]]()

    def __call__(self, file: str, mode: int | None = None) -> str:
        self.asked.append((Path(file), mode))
        if mode is not None and mode & NOLOAD and Path(file) not in self.loaded:
            raise OSError("not loaded")
        return str(file)


NOLOAD, LOCAL, NOW, DEEP = 4, 64, 2, 8


def loader_of(name: str, monkeypatch: pytest.MonkeyPatch, *loaded: Path) -> Loader:
    result = Loader(*loaded)
    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.setattr(ctypes, "CDLL", result)
    for flag, value in {"NOLOAD": NOLOAD, "LOCAL": LOCAL, "NOW": NOW, "DEEPBIND": DEEP}.items():
        if name == "win32" or (name == "darwin" and flag == "DEEPBIND"):
            monkeypatch.delattr(os, f"RTLD_{flag}", raising=False)
        else:
            monkeypatch.setattr(os, f"RTLD_{flag}", value, raising=False)
    return result


@pytest.mark.parametrize(("name", "deep"), [("linux", DEEP), ("darwin", 0)])
def test_a_library_that_others_have_loaded_is_copied(
    name: str, deep: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, mode = tmp_path / "libthis.so", LOCAL | NOW | deep
    path.write_bytes(b"code")
    first = loader_of(name, monkeypatch)
    assert libraries.load_privately(path) == str(path)
    assert first.asked == [(path, mode | NOLOAD), (path, mode)]
    second = loader_of(name, monkeypatch, path)
    copy = Path(libraries.load_privately(path))
    assert copy.name == path.name
    assert copy != path
    assert not copy.parent.exists()  # a loaded library does not need its file
    assert second.asked == [(path, mode | NOLOAD), (copy, mode)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_library_of_an_extension_module(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    extension = tmp_path / "scipy" / "linalg" / "cython_blas.so"
    library = tmp_path / "scipy.libs" / "libscipy_openblas-f07f.dll"
    for file in (extension, library, library.with_name("libgcc.dll")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    loader_of(name, monkeypatch)
    expected = library if name == "win32" else extension
    assert libraries.library_of(extension, "openblas") == str(expected)
    library.unlink()
    if name == "win32":
        with pytest.raises(OSError, match="no library openblas"):
            libraries.library_of(extension, "openblas")


def test_windows_loads_the_library_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loader = loader_of("win32", monkeypatch, tmp_path / "this.dll")
    assert libraries.load_privately(tmp_path / "this.dll") == str(tmp_path / "this.dll")
    assert loader.asked == [(tmp_path / "this.dll", None)]


# -- memory ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, ""), OSError("[WinError 1455]"), OverflowError()])
def test_memory_that_the_system_refuses(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(memory.mmap, "mmap", refuse)
    assert not memory.can_allocate(1)


def test_windows_maps_memory_without_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    class Map:
        def __init__(self, *args: object, **kwargs: object) -> None:
            asked.append((args, kwargs))

        def close(self) -> None: ...

    monkeypatch.setattr(memory, "mmap", types.SimpleNamespace(mmap=Map))
    assert memory.can_allocate(100)
    assert asked == [((-1, 100), {})]


def test_aligned_memory_is_asked_of_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.has_aligned_alloc() == (sys.platform != "win32")
    monkeypatch.setattr(memory, "c_library", lambda: types.SimpleNamespace(_aligned_malloc=1, free=2))
    assert not memory.has_aligned_alloc()


@pytest.mark.parametrize(("name", "expected"), [("linux", True), ("darwin", False), ("win32", False)])
def test_only_linux_is_asked_for_huge_pages(name: str, expected: bool, system: Callable[[str], None]) -> None:
    system(name)
    assert memory.advises_huge_pages() == expected


# -- files -------------------------------------------------------------------------------------------------------------
def test_the_folder_for_caches(system: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def chosen(name: str, appauthor: bool) -> str:
        asked.append((name, appauthor))
        return f"chosen for {name}"

    monkeypatch.setitem(sys.modules, "platformdirs", types.SimpleNamespace(user_cache_dir=chosen))
    for name in ("darwin", "win32"):
        system(name)
        assert files.user_cache_folder("this") == "chosen for this"
    assert asked == [("this", False)] * 2  # Windows would have a folder of the author around it
    system("linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert files.user_cache_folder("this") == os.path.join("/caches", "this")


def test_without_owners_every_file_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.chmod(tmp_path / "file", 0o666)
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert files.is_private(os.stat(tmp_path / "file"))


def test_files_are_opened_for_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    for name in ("O_NOFOLLOW", "O_NONBLOCK"):  # Windows has neither
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "O_BINARY", 0x8000, raising=False)
    monkeypatch.setattr(os, "open", lambda path, flags, mode=0: seen.append((path, flags)) or 3)
    assert files.open_to_read("a") == files.create("b") == 3
    assert seen == [("a", os.O_RDONLY | 0x8000), ("b", os.O_WRONLY | os.O_CREAT | os.O_EXCL | 0x8000)]


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("there", [False, True])
def test_a_file_that_is_read_is_not_replaced_on_windows(
    name: str, there: bool, system: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    new.write_text("new")
    if there:
        old.write_text("old")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Access is denied")

    system(name)
    files.replace_unless_read(str(new), str(old))
    assert old.read_text() == "new"
    new.write_text("newer")
    monkeypatch.setattr(os, "replace", refuse)
    if not there:
        old.unlink()
    if name == "win32" and there:
        files.replace_unless_read(str(new), str(old))
        assert (old.read_text(), new.exists()) == ("new", False)
    else:
        with pytest.raises(PermissionError):
            files.replace_unless_read(str(new), str(old))


def test_both_slashes_separate_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os, "altsep", "/")
    expected = {"C:", "Lib", "site-packages", "numpy", "a.py"}
    assert files.parts.__wrapped__("C:/Lib\\site-packages/numpy\\a.py") == expected


# -- the package asks for a system only here ---------------------------------------------------------------------------
NAMES_OF_SYSTEMS = {"linux", "darwin", "win32", "nt", "posix"}


def asks_for_a_system(tree: ast.AST) -> list[int]:
    """The lines that compare with a name of a system, or ask whether `os` has a name."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            constants = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant)]
            lines += [node.lineno] if NAMES_OF_SYSTEMS & {x for x in constants if isinstance(x, str)} else []
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("platform.machine", "os.register_at_fork"):
            lines.append(node.lineno)
    return lines


def test_other_packages_name_no_system() -> None:
    package = ROOT / "tracegrad"
    asking = {
        str(path.relative_to(package)): lines
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] != "platform"
        and (lines := asks_for_a_system(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert asking == {}
    assert asks_for_a_system(ast.parse("x = 1 if sys.platform == 'win32' else platform.machine()")) == [1, 1]


def test_the_package_is_named_as_its_code_is(tmp_path: Path) -> None:
    """The file names of code begin with the entry of `sys.path`, which need not be the shortest name of its folder."""
    odd = os.path.join(ROOT, "tests", os.pardir)
    program = "from tracegrad import errors; print(errors.in_package(errors.in_package.__code__.co_filename))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": odd},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "True"
