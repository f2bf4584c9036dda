"""What notebooks show: HTML with the content of the text, safe beside anything else on a page."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.utils import html as markup

X = np.linspace(0.1, 1.0, 12).reshape(4, 3)


class Checked(HTMLParser):
    """Refuses tags that do not close, and what must not stand in a piece of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not {name for name, _ in attrs} & {"id", "onclick", "onload", "href"}
        self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def close(self) -> None:
        super().close()
        assert not self.stack


def shown(x: Any) -> str:
    """The text of what a notebook shows, whose HTML is looked through."""
    result = x._repr_html_()
    parser = Checked()
    parser.feed(result)
    parser.close()
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<style>.*?</style>", "", result, flags=re.DOTALL)))


def halved(x, w, mode="a<b>"):
    y = np.tanh(x @ w)
    for _ in range(60):
        y = y * 0.5 + np.sin(y) * y
    return np.sum(y)


def test_an_explanation_shows_all_that_its_text_says() -> None:
    traced = tg.trace(halved, static_argnames="mode")
    explained = traced.explain(X, X.T, mode="a<b>")
    seen = shown(explained)
    for line in str(explained).splitlines():
        assert line.strip().removesuffix(":") in seen, line
    assert "<b>" not in re.sub(r"</?b>", "", explained._repr_html_().replace("a&lt;b&gt;", ""))


def test_a_loop_is_folded_in_a_graph_and_its_lines_are_there() -> None:
    graph = tg.trace(halved).graph(X, X.T)
    assert shown(graph).count("body(") == 1
    result = graph._repr_html_()
    assert re.search(r"<details><summary>\s+body\(", result)
    for node in graph.everywhere():
        assert node.result_index is not None or node.name in result


def test_a_call_that_runs_as_plain_python_shows_why() -> None:
    explained = tg.trace(lambda x: np.linalg.inv(np.zeros((2, 2)))).explain(X)
    assert f"runs as plain Python, uncompiled: {explained.plain}" in shown(explained)


def test_a_traced_function_shows_its_programs() -> None:
    traced = tg.trace(halved)
    assert "not called yet" in shown(traced)
    with tg.settings.override(first_call="compile"):
        traced(X, X.T)
        traced(X[:2], X.T)
    seen = shown(traced)
    assert "test_html.py" in seen
    assert "x: f64[4,3], w: f64[3,4]" in seen
    assert "x: f64[2,3], w: f64[3,4]" in seen
    assert "2 traces" in seen
    assert seen.count("machine code") == 2


def test_a_profile_shows_its_bars_and_its_table() -> None:
    seen = tg.trace(halved).profile(X, X.T)
    assert "<svg" in seen._repr_html_()
    for line in str(seen).splitlines():
        assert line.strip() in shown(seen), line


@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (0, 2), (60, 60)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool", "complex128"])
def test_a_tensor_shows_its_text(shape: tuple[int, ...], dtype: str) -> None:
    t = tg.tensor(np.ones(shape, dtype))
    assert repr(t) in shown(t)
    assert dtype in shown(t)


def test_a_tensor_shows_what_it_is_on_the_tape() -> None:
    w = tg.tensor(X, requires_grad=True)
    assert "requires grad" in shown(w)
    loss = (w * w).sum()
    assert "grad_fn SumBackward0" in shown(loss)
    loss.backward()
    assert repr(w.grad) in shown(w)


def test_what_is_long_is_folded_and_what_is_short_is_not() -> None:
    assert markup.block("a", ["x"] * 3).startswith("<details open>")
    assert markup.block("a", ["x"] * 300).startswith("<details>")
    assert "none" in markup.block("a", [])


def test_all_text_is_escaped() -> None:
    evil = "<script>alert('&')</script>"
    for result in (
        markup.object_html(evil, evil, [markup.note(evil)]),
        markup.fold(evil, ""),
        markup.block(evil, [evil, f" {evil} {{"]),
        markup.table([evil], [[evil]]),
        markup.code([f"%1 = add({evil})  # {evil}"]),
    ):
        assert "<script" not in result
