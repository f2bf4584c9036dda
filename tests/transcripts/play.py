"""Play the scripts of this folder with PyTorch or with tracegrad under the name `torch`, and note what they print.

A script is cut at its `# --- ` headings. What stands above the first heading is run before each section, and a section
knows nothing of the others. Scripts print values; `error(fn)` prints the error that `fn` raises, `warned(fn)` the
warnings it gives. A warning given elsewhere is printed where it is given.

Two libraries print the same if the lines are the same after these rules, and there are no others:

- Addresses of objects are not compared: `at 0x7f00` becomes `at 0x`.
- The library's own name in front of another name is dropped: `torch.float64`, `tracegrad.float64` and `tg.float64`
  are `float64`, `torch::autograd::CopySlices` is `CopySlices`.
- Shapes in texts are tuples: `torch.Size([2, 3])` is `(2, 3)`.
- An error and a warning count as the first built-in class among their bases, which is what `except` would name.
- What stands behind an error's text to say where it comes from is dropped: ` (file.py:12)` here,
  ` (Triggered internally at file.cpp:12.)` there, and a line break at the end.
- With `error(fn, first="...")` and `warned(fn, first="...")` only that much of the text is compared, with
  `error(fn, until="...")` the text in front of that. Scripts cut so where a long hint follows.
- A `DeprecationWarning` is a library's own affair.

PyTorch is recorded with float64 as its default dtype, and warns each time where it would warn once.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
HEADING = "# --- "
SCRIPTS = sorted(HERE.glob("[0-9]*.py"))


class Section(NamedTuple):
    """A part of a script: what it is about, and its code, blank where other sections stand."""

    script: Path
    title: str
    source: str


class Line(NamedTuple):
    """A line that was printed, and the line of the script that printed it."""

    number: int
    text: str


def sections(script: Path) -> list[Section]:
    """The sections of a script, in order."""
    lines = script.read_text(encoding="utf-8").splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith(HEADING)]
    results = []
    for start, end in zip(starts, [*starts[1:], len(lines)]):
        blank = [""] * (start - starts[0])
        source = "\n".join([*lines[: starts[0]], *blank, *lines[start:end], ""])
        results.append(Section(script, lines[start].removeprefix(HEADING), source))
    return results


_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_LIBRARY = re.compile(r"\b(?:(?:torch|tracegrad|tg)\.|torch::autograd::)(?=[A-Za-z_])")
_SIZE = re.compile(r"\bSize\(\[([\d, ]*)\]\)")
_WHERE = re.compile(r"\s*\((?:Triggered internally at [^)]*|[^()\s]*:\d+)\)\s*\Z")


def _same_for_all(text: str) -> str:
    text = _LIBRARY.sub("", _ADDRESS.sub("at 0x", text))
    return _SIZE.sub(lambda found: str(tuple(int(n) for n in found[1].split(",") if n)), text)


def _described(kind: type[BaseException], text: str, first: str = "", until: str = "") -> str:
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    text, first = _same_for_all(_WHERE.sub("", text).strip()), _same_for_all(first)
    if first and text.startswith(first):
        text = f"{first}..."
    elif until and until in text:
        text = f"{text.partition(until)[0].rstrip()}..."
    return f"{builtin.__name__}: {text}"


class Player:
    """What a section prints while it runs: the names `print`, `error` and `warned` of its namespace."""

    def __init__(self, script: Path):
        self.script, self.lines = str(script), list[Line]()

    def say(self, text: str) -> None:
        """Note the lines of `text` under the innermost line of the script that is running."""
        frame, number = sys._getframe(1), 0
        while frame is not None and not number:
            number = frame.f_lineno if frame.f_code.co_filename == self.script else 0
            frame = frame.f_back  # type: ignore[assignment]
        for line in _same_for_all(text).splitlines() or [""]:
            self.lines.append(Line(number, line.rstrip()))

    def print(self, *values: object, sep: str = " ") -> None:
        """Python's `print`."""
        self.say(sep.join(str(value) for value in values))

    def error(self, fn: Callable[[], object], first: str = "", until: str = "") -> None:
        """Call `fn` and print the error it raises, or that it raises none."""
        try:
            fn()
        except Exception as raised:
            self.say(_described(type(raised), str(raised), first, until))
        else:
            self.say("no error")

    def warned(self, fn: Callable[[], object], first: str = "") -> Any:
        """Call `fn`, print the warnings it gives, or that it gives none, and return its result."""
        with warnings.catch_warnings(record=True) as args:
            warnings.simplefilter("always")
            result = fn()
        for each in args:
            self.say(_described(each.category, str(each.message), first))
        if not args:
            self.say("no warning")
        return result

    def show_warning(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        """Stands for `warnings.showwarning`."""
        if not issubclass(category, DeprecationWarning):
            self.say(_described(category, str(message)))


def play(section: Section, library: ModuleType) -> list[Line]:
    """Run a section with `library` as `torch`; an error that ends it becomes its last line."""
    player = Player(section.script)
    names = {"torch": library, "print": player.print, "error": player.error, "warned": player.warned}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = player.show_warning
        try:
            code = compile(section.source, player.script, "exec", dont_inherit=True)
            exec(code, {"__name__": section.script.stem, **names})
        except Exception as raised:
            entries = [e for e in traceback.extract_tb(raised.__traceback__) if e.filename == player.script]
            text = f"ends with {_described(type(raised), str(raised))}"
            player.lines.append(Line(entries[-1].lineno or 0, _same_for_all(text)))
        finally:
            library.set_grad_enabled(True)  # a section that ended early may have left it off
    return player.lines


def transcript(script: Path) -> dict[str, list[str]]:
    """What each section of a script printed under PyTorch, by its title."""
    table: dict[str, list[str]] = {}
    for line in script.with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(HEADING):
            table[line.removeprefix(HEADING)] = []
        else:
            list(table.values())[-1].append(line)
    return table


def differences(section: Section, expected: list[str], got: list[Line]) -> str:
    """Each line of the script that printed something else than expected, or an empty string."""
    source, told = section.source.splitlines(), []
    for n, have in enumerate(got):
        want = expected[n] if n < len(expected) else "nothing more"
        if want != have.text:
            line = source[have.number - 1].strip() if have.number else ""
            told.append(f"line {have.number}: {line}\n  expected  {want}\n  got       {have.text}")
    missing = expected[len(got) :]
    if missing:
        told.append("not printed\n  " + "\n  ".join(missing))
    return "\n".join(told)
