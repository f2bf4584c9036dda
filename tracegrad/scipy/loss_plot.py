"""Plot of the loss while a solver runs, as a callback."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tracegrad.errors import located
from tracegrad.utils.svg import LETTER, TEXT, document, number, rectangle, text_element

__all__ = ["LossPlot"]

BETWEEN = 0.25  # seconds between two updates of the picture
WIDTH, HEIGHT = 560.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 24.0, 46.0, 44.0
MAX_POINTS = 400  # points of the curve, at most
STEEP = 100.0  # smallest ratio of the largest to the least loss for which the axis is logarithmic


class LossPlot:
    """Callback of `minimize` that records the loss of each iteration and draws it.

    It can be passed to the functions of this package and of SciPy. In a notebook, the picture appears when the solver
    begins, and is updated. Elsewhere nothing is shown.

    Parameters
    ----------
    title : str
        Title of the picture.

    Attributes
    ----------
    losses : list of float
        Loss of each iteration. Several runs with one callback follow each other.

    Raises
    ------
    TypeError
        In calls: if the callback's argument has no loss.

    Notes
    -----
    `save` writes the picture to a file. The axis of the losses is logarithmic if all losses are positive and differ
    much.

    Examples
    --------
    >>> from tracegrad.scipy import minimize
    >>> plot = LossPlot("a parabola")
    >>> result = minimize(lambda x: (x - 1.0) ** 2 + 1.0, 3.0, callback=plot)
    >>> plot
    LossPlot('a parabola', 2 iterations, the last loss 1)
    """

    def __init__(self, title: str = "loss"):
        self.title = title
        self.losses: list[float] = []
        self._next, self._display, self._drawn = 0.0, None, 0

    def __call__(self, intermediate_result: object) -> None:
        """Record the loss of an iteration, the `fun` or `cost` of its result."""
        loss = _loss_of(intermediate_result)
        if loss is None:
            text = f"a {type(self).__name__} is called with results that have `fun` or `cost`"
            raise TypeError(located(f"{text}, not with a {type(intermediate_result).__name__}"))
        self.losses.append(loss)
        now = time.perf_counter()
        if now >= self._next:
            self._show()
            self._next = now + BETWEEN

    def finish(self) -> None:
        """Show the remaining iterations; `tracegrad.scipy.minimize` calls it at its end."""
        if self._drawn != len(self.losses):
            self._show()

    def _show(self) -> None:
        if not _in_notebook():
            return
        self._drawn = len(self.losses)
        if self._display is None:
            self._display = importlib.import_module("IPython.display").display(self, display_id=True)
        else:
            self._display.update(self)

    def save(self, path: str | Path) -> None:
        """Write the SVG to a file, whose name ends in `.svg` (ValueError otherwise)."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ValueError(located(f"the picture is an SVG: save it as {path.stem}.svg, not as {path.name}"))
        path.write_text(self._repr_svg_(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return drawn(self.title, self.losses)

    def __repr__(self) -> str:
        count = len(self.losses)
        last = f", the last loss {self.losses[-1]:.6g}" if count else ""
        return f"LossPlot({self.title!r}, {count} iteration{'s' * (count != 1)}{last})"


def _loss_of(result: object) -> float | None:
    loss = getattr(result, "cost", None)
    loss = getattr(result, "fun", None) if loss is None else loss
    return None if loss is None else float(loss)


def _in_notebook() -> bool:
    """Whether an IPython kernel runs, which can display a picture; the IPython terminal cannot."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")


# -- the picture -------------------------------------------------------------------------------------------------------
def drawn(title: str, losses: Sequence[float]) -> str:
    """Return the text of an SVG of the finite losses."""
    points = [(float(k), x) for k, x in enumerate(losses, 1) if math.isfinite(x)]
    body = [rectangle("page", 0.5, 0.5, WIDTH - 1, HEIGHT - 1, 8), text_element(title, LEFT, 26, "text heading")]
    last = f"{losses[-1]:.6g} after {len(losses)}" if losses else "no iteration yet"
    body.append(text_element(last, WIDTH - RIGHT, 26, "pale", "end"))
    body.append(text_element("iteration", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "pale", "middle"))
    return document(f"{title}: {last}", WIDTH, HEIGHT, [*body, *_curve(points)])


def _curve(points: list[tuple[float, float]]) -> Iterator[str]:
    if not points:
        return
    ys = [y for _, y in points]
    steep = min(ys) > 0 and max(ys) >= STEEP * min(ys)
    low, high, ticks = _decades(min(ys), max(ys)) if steep else _linear_ticks(min(ys), max(ys))
    height = math.log10 if steep else float
    last = max(points[-1][0], 2.0)

    def position(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - 1.0) / (last - 1.0) * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - (height(y) - height(low)) / (height(high) - height(low)) * (
            HEIGHT - TOP - BOTTOM
        )

    for tick in ticks:
        _, y = position(1.0, tick)
        yield f'<path class="line dashed" opacity="0.4" d="M{number(LEFT)} {number(y)}H{number(WIDTH - RIGHT)}"/>'
        yield text_element(f"{tick:g}", LEFT - 8, y + 4, "pale", "end")
    for tick in _linear_ticks(1.0, last, max_ticks=6)[2]:
        if 1.0 <= tick <= last and tick == int(tick):
            yield text_element(f"{tick:g}", position(tick, low)[0], HEIGHT - BOTTOM + 4 + TEXT, "pale", "middle")
    thin = _thinned(points)
    path = " ".join(f"{number(x)},{number(y)}" for x, y in (position(*point) for point in thin))
    if len(thin) > 1:
        yield f'<polyline class="line" points="{path}"/>'
    x, y = position(*points[-1])
    yield f'<circle class="result" cx="{number(x)}" cy="{number(y)}" r="{number(LETTER * 6)}"/>'


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return every n-th point, including the last, so that the curve has at most the maximum number."""
    step = -(-len(points) // MAX_POINTS)
    return points[::-step][::-1]


def _decades(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return the ends of a logarithmic axis, and its ticks."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, -(-(last - first) // 6))
    return 10.0**first, 10.0**last, [10.0**k for k in range(first, last + 1, step)]


def _linear_ticks(low: float, high: float, max_ticks: int = 5) -> tuple[float, float, list[float]]:
    """Return the ends of an axis, and its ticks, which are round numbers."""
    span = high - low or abs(high) or 1.0
    rough = span / max_ticks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1.0, 2.0, 5.0, 10.0) if power * k >= rough * (1 - 1e-12))
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    return (
        first * step,
        last * step,
        [round(k * step, 12 - math.floor(math.log10(step))) for k in range(first, last + 1)],
    )
