"""Docstrings from tables: sections of numpydoc for many functions and classes with the same parameters.

PyTorch's functions share their parameters: `input`, `dim`, `keepdim`, `reduction` and some two hundred others. The
docstring in the source has the summary, notes and examples. A `DocTable` adds the sections Parameters, Shape and
Returns. The annotation of a parameter says more than the table if it is a plain type. A docstring that has the section
Parameters already stays as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


Row = tuple[str, str]
_PLAIN = {"int", "float", "bool", "str"}
_RESULT = "Tensor or ndarray", "Result: a Tensor if an argument is a Tensor, and an array otherwise."


class DocTable:
    """Rows `names : type | description` of parameters, and of results and shapes by function or class.

    A parameter `f.x` is the parameter `x` of `f` alone. The row of a shape is `class : input | output`.

    >>> def double(x, times=1):
    ...     \"\"\"Double a number\"\"\"
    >>> print(DocTable("x : float | Number.", "double : float | Twice the number.").numpydoc(double))
    Double a number.
    <BLANKLINE>
    Parameters
    ----------
    x : float
        Number.
    times : object, default 1
        Argument.
    <BLANKLINE>
    Returns
    -------
    float
        Twice the number.
    """

    def __init__(self, parameters: str, results: str = "", shapes: str = ""):
        self.texts = parameters, results, shapes
        self._rows: list[Mapping[str, Row]] = []

    @property
    def rows(self) -> list[Mapping[str, Row]]:
        """The rows of parameters, results and shapes, by name; parsed at the first use."""
        if not self._rows:
            self._rows = [_parsed(text) for text in self.texts]
        return self._rows

    def numpydoc(self, x: Callable[..., object]) -> str:
        """Return the docstring of a function or class with all its sections."""
        text: str = x.__doc__ or ""
        text = inspect.cleandoc(text) if "\n" in text else text
        if not text or "Parameters\n---" in text:
            return text
        head, prompt, examples = text.partition("\n>>> ")
        summary, blank, notes = head.strip().partition("\n\n")
        parts = [summary if summary.endswith(".") else f"{summary}.", *([notes] * bool(blank))]
        parts += self._sections(x)
        return "\n\n".join([*parts, *([_section("Examples", f">>> {examples}")] * bool(prompt))])

    def _sections(self, x: Callable[..., object]) -> list[str]:
        is_class = isinstance(x, type)
        rows = self._constructor(x) if is_class else self._parameters(inspect.unwrap(x))
        sections = [_section("Parameters", "\n".join(rows))] * bool(rows)
        _, results, shapes = self.rows
        if is_class and x.__name__ in shapes:
            sections.append(_section("Shape", "input : {}\noutput : {}".format(*shapes[x.__name__])))
        if not is_class:
            sections.append(_section("Returns", "{}\n    {}".format(*results.get(inspect.unwrap(x).__name__, _RESULT))))
        return sections

    def _constructor(self, cls: Any) -> list[str]:
        """Describe the parameters of the constructor; none if it takes any arguments, or is a built-in one."""
        makers = [maker for maker in (cls.__new__, cls.__init__) if inspect.isfunction(maker)]
        return next((self._parameters(maker, cls.__name__) for maker in makers if not _accepts_anything(maker)), [])

    def _parameters(self, fn: Callable[..., object], owner: str = "") -> list[str]:
        """Describe the parameters of a function, except private ones and the first one of a method."""
        code = fn.__code__
        count = code.co_argcount
        names, end = code.co_varnames, count + code.co_kwonlyargcount
        rest, others = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
        labels = [*names[:count], *[f"*{name}" for name in names[end : end + rest]], *names[count:end]]
        labels += [f"**{name}" for name in names[end + rest : end + rest + others]]
        values = fn.__defaults__ or ()
        defaults = dict(zip(names[count - len(values) : count], values)) | (fn.__kwdefaults__ or {})
        labels = [label for label in labels if label[0] != "_" and label not in ("self", "cls")]
        return [self._entry(owner or fn.__name__, label, fn.__annotations__, defaults) for label in labels]

    def _entry(self, owner: str, label: str, annotations: dict[str, str], defaults: dict[str, int | None]) -> str:
        """Describe a parameter: its type, its default, and what the table says."""
        name, table = label.lstrip("*"), self.rows[0]
        kind, description = table.get(f"{owner}.{name}") or table.get(name) or ("object", "Argument.")
        plain = str(annotations.get(name)).removesuffix(" | None")
        kind = plain if plain in _PLAIN and not kind.startswith("{") else kind
        if name in defaults:
            default = defaults[name]
            shown = default.__name__ if isinstance(default, type) else repr(default)
            kind += ", optional" if default is None else f", default {shown}"
        return f"{label} : {kind}\n    {description}"

    def document(self, namespace: Mapping[str, object], names: Iterable[str]) -> None:
        """Give the functions and classes of a namespace docstrings by `numpydoc`."""
        for name in names:
            x = namespace[name]
            if inspect.isfunction(x) or isinstance(x, type):
                x.__doc__ = self.numpydoc(x)


def _accepts_anything(maker: Callable[..., object]) -> bool:
    code, any_arguments = maker.__code__, inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code.co_argcount == 1 and not code.co_kwonlyargcount and code.co_flags & any_arguments == any_arguments


def _parsed(text: str) -> dict[str, Row]:
    rows = {}
    for line in text.strip().splitlines():
        names, _, row = line.partition(" : ")
        kind, _, description = row.partition(" | ")
        rows.update(dict.fromkeys(names.split(), (kind, description)))
    return rows


def _section(title: str, text: str) -> str:
    return f"{title}\n{'-' * len(title)}\n{text}"


def phrase(text: str) -> str:
    """Begin a phrase with a capital letter if it begins with a word, and not with a formula.

    >>> phrase("cosine, element by element"), phrase("log(1 + x)"), phrase("x + 1")
    ('Cosine, element by element', 'log(1 + x)', 'x + 1')
    """
    word = text.split()[0].rstrip(",.:;")
    return text[0].upper() + text[1:] if word.isalpha() and len(word) > 1 else text
