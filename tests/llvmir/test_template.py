"""LLVM IR in `.ll` files: the fields of a file are exactly those that its module fills in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tracegrad.llvmir import template
from tracegrad.llvmir.template import ir_template


@pytest.fixture
def of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(template, "_PACKAGE", str(tmp_path))
    path = tmp_path / "sample.ll"
    path.write_text("@$name = global $type $Word.SIZE ; @x.$name.y\n")
    return path


def test_fields_and_members_of_layouts_are_filled_in(of_text: Path) -> None:
    text = ir_template("sample.ll", name="f", type="i64", Word={"SIZE": 3, "OTHER": 4})
    assert text == "@f = global i64 3 ; @x.f.y\n"


def test_a_missing_and_a_superfluous_field_are_errors(of_text: Path) -> None:
    with pytest.raises(KeyError, match="type"):
        ir_template("sample.ll", name="f", Word={"SIZE": 3})
    with pytest.raises(KeyError, match="SIZE"):
        ir_template("sample.ll", name="f", type="i64", Word={})
    with pytest.raises(ValueError, match=r"sample\.ll has no field more"):
        ir_template("sample.ll", name="f", type="i64", Word={"SIZE": 3}, more=1)


def test_every_file_is_read_by_a_module_and_named_in_its_readme() -> None:
    package = Path(template.__file__).parents[1]
    sources = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    paths = [*package.rglob("*.ll")]
    assert len(paths) > 20
    for path in paths:
        stem, folder = re.escape(path.stem), path.parent.relative_to(package).as_posix()
        prefix = re.escape(path.stem.partition("_")[0])
        pattern = rf'"{folder}/({stem}\.ll"|{prefix}_\{{)|f"{folder}/\{{'
        assert any(re.search(pattern, text) for text in sources.values()), path
        assert f"`{path.name}`" in (path.parent / "README.md").read_text(encoding="utf-8"), path
