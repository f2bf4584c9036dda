"""Check the vocabulary: module docstrings, words given up, and class names that stand for one class each.

The glossary is `docs/glossary.md`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache

import pytest
from paths import ROOT

PACKAGE = ROOT / "tracegrad"
# Words with which no summary begins: they say nothing of what a module is or does.
EMPTY = {
    "all", "an", "and", "as", "at", "but", "by", "for", "how", "if", "in", "it", "its", "nor", "of", "on", "so",
    "such", "that", "these", "they", "this", "those", "to", "what", "when", "where", "whether", "which", "who",
    "whose", "with",
}  # fmt: skip
LONGEST = 110  # characters of a summary
# Words of everyday language that identifiers had in the place of terms.
GIVEN_UP = ("found", "given", "kept", "made", "slope", "slopes", "truth", "truths", "turn", "turned", "turns")
# Names of Python, of PyTorch, and of a field of SciPy's `linregress`.
OF_OTHERS = {"FileNotFoundError", "ModuleNotFoundError", "PackageNotFoundError", "negative_slope", "slope"}


@cache
def modules() -> dict[str, ast.Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def glossary() -> list[list[str]]:
    """The rows of the table: a term, its meaning, and the module that owns it."""
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return rows[2:]


def summary(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n")[0]


@cache
def identifiers() -> Counter[str]:
    """How often each identifier is written in the package: names, parameters, attributes, functions, classes."""
    count: Counter[str] = Counter()
    for tree in modules().values():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                    count[name] += 1
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    count[name] += 1
    return count


def words(identifier: str) -> list[str]:
    """The words of an identifier, in lower case.

    >>> words("_FEWEST_TURNS"), words("turnsOf"), words("VectorLoop")
    (['fewest', 'turns'], ['turns', 'of'], ['vector', 'loop'])
    """
    return [x.lower() for x in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


def test_the_glossary_is_sorted_and_complete() -> None:
    rows = glossary()
    terms = [term for term, _, _ in rows]
    assert 60 <= len(rows) <= 95
    assert terms == sorted(terms)
    assert [row for row in rows if not all(row)] == []


@pytest.mark.parametrize(("term", "module"), [(term, module) for term, _, module in glossary()])
def test_each_term_has_a_module_that_owns_it(term: str, module: str) -> None:
    path = ROOT.joinpath(*module.strip("`").split("."))
    assert path.is_dir() or path.with_suffix(".py").exists(), term


def test_summaries_of_modules_begin_with_a_verb_or_a_term() -> None:
    first = {name: summary(tree).partition(" ")[0].lower().strip("`,:.") for name, tree in modules().items()}
    assert {name: word for name, word in first.items() if word in EMPTY or not word} == {}


def test_summaries_of_modules_are_one_short_line() -> None:
    assert {name: summary(tree) for name, tree in modules().items() if len(summary(tree)) > LONGEST} == {}


# PyTorch has this name twice: a module, and a method of `nn.utils.prune`.
SHARED_BY_PYTORCH = {"Identity"}


@pytest.mark.parametrize("word", GIVEN_UP)
def test_words_given_up_do_not_come_back_in_names(word: str) -> None:
    assert {name: n for name, n in identifiers().items() if word in words(name) and name not in OF_OTHERS} == {}


def test_class_names_stand_for_one_class_each() -> None:
    places = defaultdict(list)
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(module)
    shared = {name: where for name, where in places.items() if len(where) > 1 and name not in SHARED_BY_PYTORCH}
    assert shared == {}
