"""The documents are right: their code runs and prints what they say, their commands and links are those that work."""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from layers import LAYERS
from paths import ROOT

GENERATED = {"docs/functions.md"}  # when the site is built
OF_THE_SITE = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", *OF_THE_SITE)


# Files that an example tells the reader to make.
MADE_BY_READERS = {"tracegrad/ops/convolution.py", "tracegrad/passes/transposes.py"}

every_document = pytest.mark.parametrize("name", DOCUMENTS)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def with_code() -> dict[str, list[str]]:
    """The documents that have Python code, by folder of the site; those of the root, which change the table of ops,
    are each by themselves."""
    groups: dict[str, list[str]] = {}
    for name in DOCUMENTS:
        if "```python\n" in text_of(name):
            groups.setdefault(name if "/" not in name else name.rpartition("/")[0], []).append(name)
    return groups


WITH_CODE = with_code()


class Block(NamedTuple):
    """A fenced block; `output` is the `text` block right below it, which ends what it prints."""

    language: str
    body: str
    line: int
    output: str | None


_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[Block]:
    results = list(_FENCED.finditer(text))
    outputs = []
    for this, below in zip(results, [*results[1:], None]):
        adjacent = below and below[1] == "text" and not text[this.end() : below.start()].strip()
        line = text.count("\n", 0, this.start(2)) + 1
        outputs.append(Block(this[1], this[2], line, below[2] if below and adjacent else None))
    return outputs


# -- code ----------------------------------------------------------------------------------------------------
def expected_output(block: Block) -> str:
    """What the block says it prints: the comments behind its `print` calls, and the text below it."""
    said = re.findall(r"^ *print\(.*\)  # (.*)$", block.body, re.MULTILINE)
    return "".join(f"{line}\n" for line in said) + (block.output or "")


def run_blocks(name: str) -> dict[str, Any]:
    """Run the Python blocks of a document in one namespace, in order; fail where one prints something else."""
    space: dict[str, Any] = {"__name__": "document"}
    for block in blocks(text_of(name)):
        if block.language != "python":
            continue
        code = compile("\n" * (block.line - 1) + block.body, name, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, space)
        want, got = expected_output(block), printed.getvalue()
        same = doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)
        assert same, f"{name}, the block at line {block.line} prints\n{got}\nand not\n{want}"
    return space


def run_pages(caches: dict[str, str]) -> None:
    """Run the code of documents, each with a disk cache of its own."""
    from tracegrad.settings import settings

    for name, folder in caches.items():
        with settings.override(cache_dir=folder):
            run_blocks(name)


def run_elsewhere(program: str, **more: str) -> None:
    """Run `program` in a process of its own, where it may add to the table of ops, with `more` in its environment;
    warnings are errors."""
    folders = [ROOT / "tests" / name for name in ("package", "helpers", "samples")]
    path = os.pathsep.join(map(str, [*folders, ROOT]))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"from test_docs import *\n{program}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path} | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("group", WITH_CODE)
def test_the_code_runs_and_prints_what_is_said(group: str, tmp_path: Path) -> None:
    # As readers have it, who set nothing, and have run nothing. Pages share a process, which is what takes time.
    caches = {name: str(tmp_path / name.replace("/", ".")) for name in WITH_CODE[group]}
    run_elsewhere(f"run_pages({caches!r})", TRACEGRAD_FIRST_CALL="replay")


def suite_on_examples() -> None:
    """Run the suite over the op, pass and rule of CONTRIBUTING's examples as if they were in the package."""
    space = run_blocks("CONTRIBUTING.md")
    from tracegrad import passes
    from tracegrad.passes.algebra import rules

    passes.PIPELINE = (*passes.PIPELINE, (space["move_transposes"], "an example"))
    rules.RULES += (space["row"],)
    rules._COMPILED_RULES = rules._index()
    chosen = {
        "ops": [
            *(
                "tests/ops/test_ops.py",
                "tests/codegen/program/test_compiled.py",
                "tests/ops/test_jvp.py",
                "tests/ir/test_batch.py",
            ),
            *("-k", "logcosh or convolve-"),
        ],
        "passes": [
            "tests/passes/test_passes.py",
            "-k",
            "keep_the_meaning_of_every_op and (matmul or transpose or inv-)",
        ],
        "rules": ["tests/passes/test_rules.py", "-k", "floor or normal_form"],
    }
    for what, arguments in chosen.items():
        status = pytest.main([*arguments, "-n0", "-q", "-p", "no:cacheprovider"])
        assert status == 0, f"the suite on the examples, {what}: exit code {status}"


def test_the_suite_covers_the_examples_of_contributing_unedited() -> None:
    run_elsewhere("suite_on_examples()")


# -- commands and settings -----------------------------------------------------------------------------------
def console_lines(name: str) -> list[str]:
    return [line for b in blocks(text_of(name)) if b.language == "console" for line in b.body.splitlines()]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = text_of(".ci/run")
    pattern = re.search(r"grep -m 1 -E '([^']+)' README.md", script)
    assert pattern, "CI takes its command from README.md"
    results = [line for line in text_of("README.md").splitlines() if re.search(pattern[1], line)]
    assert len(results) == 1, "the README has one test command"
    assert results[0] in console_lines("README.md")
    assert 'bash -c "$command"' in script


def test_commands_name_extras_and_files_that_exist() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    lines = [line for name in DOCUMENTS for line in console_lines(name)]
    assert set(re.findall(r"\[(\w+)\]\"", "\n".join(lines))) <= set(extras)
    for path in re.findall(r"python (\S+\.py)", "\n".join(lines)):
        assert (ROOT / path).exists(), path
    modules = re.findall(r"python -m (benchmarks(?:\.\w+)*)", "\n".join(lines))
    assert all((ROOT / m.replace(".", "/")).exists() for m in modules)


def test_the_settings_page_lists_every_environment_variable() -> None:
    from tracegrad.settings import Settings

    known = {switch.variable for switch in vars(Settings).values() if hasattr(switch, "variable")}
    assert set(re.findall(r"^\| `(TRACEGRAD_\w+)`", text_of("docs/reference/settings.md"), re.MULTILINE)) == known


# -- links and names -------------------------------------------------------------------------------------------
def prose(name: str) -> str:
    return _FENCED.sub("", text_of(name))


def anchors(name: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_document
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(name)):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if name in OF_THE_SITE and os.path.relpath(file, ROOT) in GENERATED:
            continue
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.relative_to(ROOT).as_posix()), target


@every_document
def test_files_that_are_named_exist(name: str) -> None:
    named = re.findall(r"`((?:tracegrad|tests|examples|benchmarks)/[\w./]*|\.ci/\w+|\w+\.(?:md|toml))`", prose(name))
    assert [path for path in named if not (ROOT / path).exists() and path not in MADE_BY_READERS] == []


@every_document
def test_modules_that_are_named_exist(name: str) -> None:
    for dotted in re.findall(r"`(tracegrad(?:\.\w+)+)", prose(name)):
        assert found(dotted), dotted


def found(dotted: str) -> bool:
    """Whether `dotted` is a module, or an attribute of one."""
    parts, rest = dotted.split("."), []
    while parts:
        with contextlib.suppress(ModuleNotFoundError):
            thing: Any = importlib.import_module(".".join(parts))
            for attribute in rest:
                thing = getattr(thing, attribute, None)
            return thing is not None
        rest.insert(0, parts.pop())
    return False


@every_document
def test_no_document_contains_an_absolute_path(name: str) -> None:
    assert re.findall(r"(?<![\w.:/*)\]<>])/[A-Za-z][\w.-]*/\S*|\b[A-Z]:\\\w+|~/\w+", text_of(name)) == []


@every_document
def test_lines_are_short_enough_to_read(name: str) -> None:
    long = [line for line in text_of(name).splitlines() if len(line) > 120 and not line.startswith("|")]
    assert long == []


def test_the_picture_of_the_layers_is_the_order_that_is_enforced() -> None:
    picture = next(b.body for b in blocks(text_of("ARCHITECTURE.md")) if b.body.startswith("tracegrad "))
    names = [name for line in picture.splitlines() for name in re.split(r"  +", line)[0].split()]
    assert names == [layer for layer in reversed(LAYERS) if layer != "__main__"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\nprint(1)  # 1\n```\n", "1\n"),
        ("```python\nprint(1)\n```\n\n```text\n1\n```\n", "1\n"),
        ("```python\nprint(1)\n```\nand\n```text\n1\n```\n", ""),
        ("```python\nx = 1  # one\n```\n", ""),
    ],
)
def test_the_reader_of_documents_sees_what_is_said(text: str, said: str) -> None:
    assert expected_output(blocks(text)[0]) == said


def test_each_step_in_the_life_of_a_call_names_a_function_that_exists() -> None:
    rows = re.findall(r"^\|.*\| (tracegrad/\S+) \| `([\w.]+)` \|$", text_of("docs/life_of_a_call.md"), re.MULTILINE)
    assert len(rows) > 30
    missing = []
    for path, name in rows:
        tree: Any = ast.parse((ROOT / path.replace("\\", "")).read_text(encoding="utf-8"))
        for part in name.split("."):
            tree = next((x for x in getattr(tree, "body", ()) if getattr(x, "name", "") == part), None)
        missing += [] if tree is not None else [f"{name} in {path}"]
    assert missing == []
