"""Pictures of tapes and graphs: what they say, that they can be read, and that they are the same each time."""

from __future__ import annotations

import importlib
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT

import tracegrad as tg
from tracegrad.utils.svg import LETTER, TEXT
from tracegrad.visualization import Picture

DOCS = ROOT / "docs"
SVG = "{http://www.w3.org/2000/svg}"

sys.path.insert(0, str(DOCS))
make_images = importlib.import_module("make_images")


def leaf(*shape: int) -> Any:
    return tg.ones(*shape, requires_grad=True)


def boxes(picture: Picture) -> list[list[tuple[str, float, float, float, float]]]:
    """For each panel: the title of each box, its left, top, right and bottom."""
    panels = []
    for panel in ET.fromstring(picture.svg).iter(f"{SVG}g"):
        if "transform" not in panel.attrib:
            continue
        results = []
        for group in panel.iter(f"{SVG}g"):
            rect = group.find(f"{SVG}rect")
            title = group.find(f"{SVG}title")
            if group is panel or rect is None or title is None:
                continue
            x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
            results.append((str(title.text).partition("\n")[0], x, y, x + w, y + h))
        panels.append(results)
    return panels


def titles(picture: Picture) -> list[list[str]]:
    return [sorted(box[0] for box in panel) for panel in boxes(picture)]


def test_the_pictures_of_the_docs_are_what_is_drawn_now() -> None:
    for name, make in make_images.PICTURES.items():
        assert make().svg == (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8"), name
    for name, svg in make_images.COLUMNS.items():
        assert svg == (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8"), name


def test_a_tape_shows_leaves_operations_nodes_and_saved_values_under_the_users_names() -> None:
    x, w, b = leaf(2), leaf(2), tg.ones(2)
    y = (x * w + b).sum()
    picture = tg.visualize(y)
    assert titles(picture) == [
        sorted(["x", "w", "mul", "add", "no grad", "sum", "y"]),
        sorted(["AccumulateGrad", "AccumulateGrad", "MulBackward0", "AddBackward0", "SumBackward0", "y.backward()"]),
    ]
    assert re.search(r"MulBackward0\nother w f64\[2\]\nself x f64\[2\]", picture.svg)
    assert "x.grad None" in picture.svg


def test_a_leaf_that_does_not_require_grad_is_shown_where_its_value_was_saved() -> None:
    x, c = leaf(2), tg.ones(2)
    assert "c" in titles(tg.visualize((x * c).sum()))[0]


def test_gradients_that_are_there_are_shown() -> None:
    x = tg.tensor(3.0, requires_grad=True)
    y = x * x
    y.backward(retain_graph=True)
    assert "x.grad 6.0" in tg.visualize(y).svg


def test_saved_values_that_are_freed_are_not_shown() -> None:
    x = leaf(2)
    y = (x * x).sum()
    assert "self x" in re.sub("<.*?>", "", tg.visualize(y).svg)
    y.backward()
    assert "self x" not in re.sub("<.*?>", "", tg.visualize(y).svg)
    assert "MulBackward0" in tg.visualize(y).svg


def test_outputs_are_numbered_on_the_edges_of_an_operation_that_has_several() -> None:
    a = leaf(3)
    p, q, r = (a * 2).unbind()
    root = ET.fromstring(tg.visualize(p * q + r).svg)
    numbers = [t.text for t in root.iter(f"{SVG}text") if t.text in {"0", "1", "2"} and t.attrib["class"] == "pale"]
    assert sorted(numbers) == sorted(["0", "1", "2"] * 2)


@pytest.mark.parametrize("name", ["chain", "unbind", "network", "gradient"])
@pytest.mark.parametrize("direction", ["down", "right"])
def test_no_two_boxes_overlap_and_each_lies_in_the_picture(name: str, direction: str) -> None:
    picture = make_images.PICTURES[name]()
    if direction == "right":
        x = leaf(2)
        picture = tg.visualize(((x * x).sum() + x.exp().sum()).tanh(), direction="right")
    assert sum(map(len, boxes(picture))) > 5
    for panel in boxes(picture):
        for i, (_, left, top, right, bottom) in enumerate(panel):
            assert left >= 0
            assert top >= 0
            assert right <= picture.width
            assert bottom <= picture.height
            for _, other_left, other_top, other_right, other_bottom in panel[:i]:
                apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
                assert apart


@pytest.mark.parametrize("name", ["chain", "unbind", "network", "gradient"])
def test_no_line_runs_through_a_box(name: str) -> None:
    root = ET.fromstring(make_images.PICTURES[name]().svg)
    for panel in (g for g in root.iter(f"{SVG}g") if "transform" in g.attrib):
        rects = [r for g in panel.iter(f"{SVG}g") if g is not panel for r in g.findall(f"{SVG}rect")]
        corners = [tuple(float(r.attrib[k]) for k in ("x", "y", "width", "height")) for r in rects]
        for path in panel.findall(f"{SVG}path"):
            if "line" not in path.attrib["class"]:
                continue
            numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]
            ends = list(zip(numbers[::2], numbers[1::2]))
            for x, y in ends[1:-1]:
                assert not any(a + 1 < x < a + w - 1 and b + 1 < y < b + h - 1 for a, b, w, h in corners)


def test_text_fits_its_box() -> None:
    root = ET.fromstring(make_images.network().svg)
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is None or "transform" in group.attrib:
            continue
        for text in group.findall(f"{SVG}text"):
            size = 13.0 if "title" in text.attrib.get("class", "") else 11.5
            assert len("".join(text.itertext())) * size * 0.602 <= float(rect.attrib["width"])


def test_the_same_graph_gives_the_same_text() -> None:
    def drawn() -> str:
        x = leaf(2)
        return tg.visualize((x * x).sum(), names={"x": x}, title="t").svg

    assert drawn() == drawn()
    assert "0x" not in drawn()


def test_what_xml_does_not_allow_is_escaped() -> None:
    x = leaf(2)
    picture = tg.visualize(x * 2, title="a < b & \x00", names={"<x>": x})
    assert ET.fromstring(picture.svg).find(f"{SVG}title").text == "a < b & \ufffd"
    assert "&lt;x&gt;" in picture.svg


def test_nodes_of_every_kind_are_drawn() -> None:
    class Twice(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = leaf(4)
    y = x * 3.0
    y[1:3].mul_(x[:2])
    z = Twice.apply(y).std() + tg.trace(lambda v: tg.sin(v).sum())(x) + tg.complex(x, x).abs().sum()
    names = {title for panel in titles(tg.visualize(z)) for title in panel}
    assert {"CopySlices", "TwiceBackward", "StdBackward0", "CompiledBackward", "AbsBackward0"} <= names


def test_functions_are_drawn_by_their_tape_or_by_their_graph() -> None:
    w = leaf(3)

    def scaled(v: Any) -> Any:
        return (w * v).sum()

    assert {"w", "v"} <= set(titles(tg.visualize(scaled, leaf(3)))[0])
    assert "CompiledBackward" in titles(tg.visualize(tg.trace(scaled), leaf(3)))[1]
    graph = titles(tg.visualize(tg.trace(lambda a, b: np.sum(a * b)), np.ones(3), np.ones(3)))
    assert graph == [["a", "b", "multiply", "reduce_sum", "result"]]
    plain = titles(tg.visualize(lambda a: np.exp(a), np.ones(3)))
    assert plain == [["a", "exp", "result"]]


def test_captured_arrays_are_shown_under_the_users_names() -> None:
    scale = np.ones(3)
    (graph,) = titles(tg.visualize(tg.trace(lambda a: a * scale), np.ones(3)))
    assert {"a", "scale"} < set(graph)


def test_a_node_of_several_results_is_one_box_with_numbered_edges() -> None:
    picture = tg.visualize(tg.trace(lambda a: np.linalg.eigh(a)[1] @ np.diag(np.linalg.eigh(a)[0])), np.eye(2))
    assert titles(picture)[0].count("eigh") == 1
    assert titles(picture)[0].count("result") == 1  # of the function
    numbers = {t.text for t in ET.fromstring(picture.svg).iter(f"{SVG}text") if t.attrib.get("class") == "pale"}
    assert {"0", "1"} <= numbers


def test_the_derivative_has_another_colour_in_the_graph_of_a_gradient() -> None:
    root = ET.fromstring(tg.visualize(tg.grad(lambda a: np.sum(np.exp(a))), np.ones(3)).svg)
    kinds = {
        str(g.find(f"{SVG}title").text).partition("\n")[0]: g.find(f"{SVG}rect").attrib["class"]
        for g in root.iter(f"{SVG}g")
        if "transform" not in g.attrib
    }
    assert (kinds["exp"], kinds["multiply"]) == ("op", "backward")


def test_several_tensors_have_one_picture() -> None:
    x = leaf(2)
    y, z = x * 2, x.exp()
    assert {"y", "z"} <= set(titles(tg.visualize([y, z]))[0])
    assert {"y", "z"} <= set(titles(tg.visualize({"first": y, "second": z}))[0])


def test_parts_can_be_left_out() -> None:
    x = leaf(2)
    y = (x * x).sum()
    assert len(titles(tg.visualize(y, forward=False))) == 1
    assert "self x" in tg.visualize(y).svg
    assert "self x" not in tg.visualize(y, saved=False).svg


def test_a_notebook_shows_it_and_a_file_holds_it(tmp_path: Path) -> None:
    x = leaf(2)
    picture = tg.visualize(x * 2)
    assert picture._repr_svg_() == picture.svg
    picture.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8") == picture.svg
    with pytest.raises(ValueError, match=r"save it as graph\.svg, not as graph\.png"):
        picture.save(tmp_path / "graph.png")
    assert not (tmp_path / "graph.png").exists()
    assert len(repr(picture)) < 120


def test_what_cannot_be_drawn_says_so() -> None:
    x = leaf(2)
    y = x
    for _ in range(20):
        y = y * 2.0
    with pytest.raises(ValueError, match="more than 10 boxes"):
        tg.visualize(y, max_nodes=10)
    with pytest.raises(TypeError, match="visualize takes a Tensor, several of them, or a function; got int"):
        tg.visualize(3)
    with pytest.raises(TypeError, match="only a function is drawn with arguments"):
        tg.visualize(y, x)
    with pytest.raises(ValueError, match="direction is 'down' or 'right'"):
        tg.visualize(y, direction="up")


def test_a_thousand_boxes_are_laid_out() -> None:
    x = leaf(2)
    y = x
    for _ in range(300):
        y = (y * 1.1).sin() + x
    assert list(map(len, boxes(tg.visualize(y.sum(), max_nodes=2000)))) == [903, 903]


def test_a_region_has_a_panel_of_its_own() -> None:
    def f(x: Any) -> Any:
        return tg.scan(lambda c, r: (np.sin(c) * r, c), x, np.ones((3, 2)))[0].sum()

    svg = tg.visualize(tg.trace(f), np.ones(2)).svg
    assert "body of scan" in svg
    assert svg.count(">sin<") == 1


def test_what_one_kernel_computes_has_one_colour_and_the_legend_names_the_steps() -> None:
    def f(x: Any, w: Any) -> Any:
        y = np.tanh(x @ w)
        for _ in range(60):
            y = y * 0.5 + np.sin(y) * y
        return np.sum(np.exp(y) * 2.0, axis=0)

    traced, args = tg.trace(f), (np.ones((40, 30)), np.ones((30, 30)))
    picture = tg.visualize(traced, *args, fused=True)
    colours: dict[str, str] = {}
    for group in ET.fromstring(picture.svg).iter(f"{SVG}g"):
        title, rects = group.find(f"{SVG}title"), group.findall(f"{SVG}rect")
        if title is not None and "transform" not in group.attrib:
            colours.setdefault(str(title.text).partition("\n")[0], str(rects[-1].get("style")))
    assert colours["exp"] == colours["reduce_sum"] != "None"
    assert len({colours[name] for name in ("matmul", "tanh", "scan", "exp")}) == 4
    assert colours["x"] == colours["sin"] == "None"  # an argument, and what the body of the loop computes
    steps = [line.split(":")[0] for line in traced.explain(*args).groups if re.match(r"\d+: ", line)]
    told = [t.text or "" for t in ET.fromstring(picture.svg).iter(f"{SVG}text")]
    assert [t.partition(":")[0] for t in told if re.match(r"\d+: ", t)] == steps
    assert any(t.endswith("loop: scan") for t in told)


def test_the_legend_of_kernels_is_within_the_picture() -> None:
    picture = make_images.kernels()
    texts = [x for x in ET.fromstring(picture.svg).iter() if x.tag.endswith("text") and "kernel: " in (x.text or "")]
    assert len(texts) == 3
    for text in texts:
        assert float(text.attrib["x"]) + LETTER * TEXT * len(text.text or "") < picture.width


def test_only_what_is_compiled_is_drawn_fused() -> None:
    with pytest.raises(TypeError, match="fused is for a function"):
        tg.visualize(leaf(2) * 2.0, fused=True)
    with pytest.raises(tg.errors.UnsupportedError, match="no program computes this call"):
        tg.visualize(lambda x: np.linalg.inv(np.zeros((2, 2))), np.ones(2), fused=True)
