"""Check that public docstrings follow numpydoc: sections, parameters, returned values and examples."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

SPACES = """
tracegrad tracegrad.func tracegrad.tree tracegrad.errors tracegrad.settings tracegrad.random tracegrad.scipy
tracegrad.implicit tracegrad.dask tracegrad.autograd tracegrad.autograd.functional tracegrad.autograd.graph
tracegrad.autograd.forward_ad tracegrad.linalg tracegrad.special tracegrad.nn tracegrad.nn.functional
tracegrad.nn.init tracegrad.nn.utils tracegrad.optim tracegrad.optim.lr_scheduler tracegrad.optim.schedules
tracegrad.array_api tracegrad.accelerator tracegrad.cuda tracegrad.torch.utils.data
tracegrad.torch.utils.checkpoint tracegrad.distributions tracegrad.distributions.transforms
tracegrad.distributions.utils tracegrad.serialization tracegrad.fft tracegrad.amp tracegrad.compiler tracegrad.testing
tracegrad.cuda.amp tracegrad.nn.utils.parametrizations tracegrad.nn.utils.parametrize tracegrad.nn.utils.prune
tracegrad.masked tracegrad.nn.utils.rnn tracegrad.optim.swa_utils tracegrad.signal.windows
"""
INTERNAL = ("tracegrad.errors", "function")  # its functions are for the package; users have the classes
# Functions of PyTorch and of NumPy that a table generates or describes: they need no example.
TABLES = ("tracegrad.torch.functions.", "tracegrad.torch.array_api", "tracegrad.numpy_api.")
# The sections of numpydoc in their order, and the `Shape` of modules.
SECTIONS = (
    "Parameters",
    "Attributes",
    "Shape",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "See Also",
    "Notes",
    "References",
    "Examples",
)


def public() -> dict[str, Any]:
    """The functions and classes of the public namespaces, each once, by the first of its names."""
    names: dict[str, Any] = {}
    known: set[int] = set()
    for space in SPACES.split():
        home = pkgutil.resolve_name(space)
        for name in home.__all__:
            value = getattr(home, name)
            kind = "function" if inspect.isroutine(value) else "class" if inspect.isclass(value) else ""
            if not kind or (space, kind) == INTERNAL:
                continue
            inner: Any = inspect.unwrap(value) if not inspect.isclass(value) else value
            if str(inner.__module__).startswith("tracegrad") and id(inner) not in known:
                known.add(id(inner))
                names[f"{space}.{name}".replace("tracegrad.", "tg.", 1)] = value
    return names


PUBLIC = public()


def sections(text: str) -> dict[str, str]:
    """The sections of a docstring by their titles; what precedes them has the title "".

    >>> sections("Add.\\n\\nReturns\\n-------\\nint\\n    Sum.")
    {'': 'Add.', 'Returns': 'int\\n    Sum.'}
    """
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", text, flags=re.MULTILINE)
    return {title: part.strip("\n") for title, part in zip(["", *parts[1::2]], parts[::2])}


def entries(section: str) -> Iterator[tuple[list[str], bool]]:
    """The names in each entry of a section, and whether a description follows."""
    lines = section.splitlines()
    for line, below in zip(lines, [*lines[1:], ""]):
        if line.strip() and not line.startswith(" "):
            yield [name.strip().lstrip("*") for name in line.split(" : ")[0].split(",")], below.startswith("    ")


def parameters(value: Any) -> list[str]:
    """The parameters of a function, or of the constructor of a class; none if it takes any, or is a built-in one."""
    if not inspect.isclass(value):
        return [name for name in _named(value) if name != "self"]
    makers = [f for f in (value.__new__, value.__init__) if inspect.isfunction(f)]
    return next((names for f in makers if (names := _named(f, 1)) != ["args", "kwargs"]), [])


def _named(function: Any, start: int = 0) -> list[str]:
    return [name for name in list(inspect.signature(function).parameters)[start:] if not name.startswith("_")]


def returns_something(value: Any) -> bool:
    return not inspect.isclass(value) and inspect.signature(value).return_annotation not in (None, "None")


def faults(value: Any) -> Iterator[str]:
    """What a docstring lacks."""
    text = inspect.getdoc(value) or ""
    parts = sections(text)
    head = parts[""].split("\n\n")[0]
    if not head.endswith(".") or "\n" in head:
        yield "the summary is not one line that ends with a full stop"
    titles = [title for title in parts if title]
    if [x for x in SECTIONS if x in titles] != titles:
        yield f"sections are unknown or out of order: {titles}"
    if inspect.isclass(value) and issubclass(value, BaseException):
        return
    described = list(entries(parts.get("Parameters", "")))
    if [name for names, _ in described for name in names] != parameters(value):
        yield f"Parameters are not {parameters(value)}"
    if "object\n    Argument." in text:
        yield "no table describes a parameter"
    if not all(below for title in ("Parameters", "Returns", "Yields") for _, below in entries(parts.get(title, ""))):
        yield "an entry has no description below it"
    if returns_something(value) and not {"Returns", "Yields"} & set(titles):
        yield "there is no section Returns"
    if ">>> " not in parts.get("Examples", "") and not _home(value).startswith(TABLES):
        yield "there is no section Examples"


def _home(value: Any) -> str:
    return str(inspect.unwrap(value).__module__ if inspect.isroutine(value) else value.__module__)


def test_public_docstrings_follow_numpydoc() -> None:
    wrong = {name: list(faults(value)) for name, value in PUBLIC.items()}
    assert len(wrong) > 1000
    assert {name: reasons for name, reasons in wrong.items() if reasons} == {}


def _good(x: int, *rest: int) -> int:
    """Add numbers.

    Parameters
    ----------
    x : int
        First number.
    *rest : int
        Other numbers.

    Returns
    -------
    int
        Sum.

    Examples
    --------
    >>> _good(1, 2)
    3
    """
    return sum(rest, x)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("Add numbers.", "Add\nnumbers."), "the summary"),
        (("x : int", "y : int"), "Parameters"),
        (("    First number.\n", ""), "no description"),
        (("Returns\n-------\nint\n    Sum.\n", ""), "Returns"),
        (("Examples\n--------\n", ""), "Examples"),
        (("Returns\n-------", "Result\n------"), "unknown"),
    ],
)
def test_the_checker_finds_faults(change: tuple[str, str], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(faults(_good)) == []
    text = inspect.getdoc(_good) or ""
    assert change[0] in text
    monkeypatch.setattr(_good, "__doc__", text.replace(*change))
    assert any(fault in found for found in faults(_good))
