"""All greeks of 10,000 options on Google's share, up to the third order.

The price is Black and Scholes's. Each greek is a nested `tg.grad` of the price, and one program computes all thirteen.
Matplotlib ships the share's prices of 2004 to 2008. In autumn 2008, the greeks explain each day's profit before the
options are valued again. The exit code is 1 unless the greeks match textbook formulas and finite differences, and
explain the profits. It prints the times and saves `option_greeks.png`.
"""

from __future__ import annotations

import sys
import time
import timeit
from functools import partial, reduce

import numpy as np
from matplotlib.cbook import get_sample_data
from matplotlib.figure import Figure
from scipy.special import ndtr

import tracegrad as tg

COUNT, RATE, DAY = 10_000, 0.02, 1 / 252
GREEKS = {  # differentiated arguments: spot, volatility, rate, age
    "delta": "s", "vega": "v", "rho": "r", "theta": "a",
    "gamma": "ss", "vanna": "sv", "volga": "vv", "charm": "sa", "veta": "va",
    "speed": "sss", "zomma": "ssv", "color": "ssa", "ultima": "vvv",
}  # fmt: skip


def price(spot, volatility, rate, age, option):
    """Black and Scholes's value of each option; a call has the sign 1, a put -1."""
    left = option["years"] - age
    spread = volatility * np.sqrt(left)
    d1 = (np.log(spot / option["strike"]) + rate * left) / spread + spread / 2
    sign = option["sign"]
    return sign * (spot * ndtr(sign * d1) - option["strike"] * np.exp(-rate * left) * ndtr(sign * (d1 - spread)))


def slope(f, k):
    """Derivative of each option's value. Options are independent, so the gradient of the sum has all of them."""
    return tg.grad(lambda *args: np.sum(f(*args)), argnums=k)


@tg.trace(tiered=False)
def greeks(spot, volatility, rate, age, option):
    found = {"price": price(spot, volatility, rate, age, option)}
    for name, letters in GREEKS.items():
        f = reduce(slope, ["svra".index(letter) for letter in letters], price)
        found[name] = f(spot, volatility, rate, age, option)
    return found


def textbook(spot, volatility, rate, age, option):
    """Formulas of Hull and Haug for some greeks."""
    left, sign = option["years"] - age, option["sign"]
    spread = volatility * np.sqrt(left)
    d1 = (np.log(spot / option["strike"]) + rate * left) / spread + spread / 2
    d2 = d1 - spread
    density = np.exp(-(d1**2) / 2) / np.sqrt(2 * np.pi)
    vega, gamma = spot * density * np.sqrt(left), density / (spot * spread)
    return {
        "delta": sign * ndtr(sign * d1), "vega": vega, "gamma": gamma,
        "rho": sign * option["strike"] * left * np.exp(-rate * left) * ndtr(sign * d2),
        "vanna": -density * d2 / volatility,
        "speed": -gamma / spot * (d1 / spread + 1),
        "ultima": -vega / volatility**2 * (d1 * d2 * (1 - d1 * d2) + d1**2 + d2**2),
    }  # fmt: skip


def far(a, b):
    return np.max(np.abs(a - b)) / np.max(np.abs(b))


def main():
    shares = get_sample_data("goog.npz")["price_data"]
    spots, moves = shares["adj_close"], np.diff(np.log(shares["adj_close"]))
    rng = np.random.default_rng(0)
    first = len(spots) - 32
    option = {
        "strike": spots[first] * rng.uniform(0.6, 1.4, COUNT),
        "years": rng.uniform(0.25, 2, COUNT),
        "sign": rng.choice([-1.0, 1.0], COUNT),
    }
    held = rng.integers(-10, 11, COUNT)

    def market(day):
        """The market of a day; the volatility is that of the 60 days before."""
        known = spots[day], np.std(moves[day - 60 : day]) / np.sqrt(DAY), RATE, (day - first) * DAY
        return [np.full(COUNT, x) for x in known]

    now = market(first)
    clock = time.perf_counter()
    found, known = greeks(*now, option), textbook(*now, option)
    compiling = time.perf_counter() - clock
    elapsed, other = (min(timeit.repeat(partial(f, *now, option), number=1, repeat=20)) for f in (greeks, textbook))
    wrong = max(far(found[name], value) for name, value in known.items())

    # each greek by finite differences of the greek whose derivative it is
    named, off = {letters: name for name, letters in GREEKS.items()}, 0.0
    for name, letters in GREEKS.items():
        k = "svra".index(letters[-1])
        above, below = market(first), market(first)
        step = 1e-5 * above[k][0] + 1e-6
        above[k], below[k] = above[k] + step, below[k] - step
        of = named.get(letters[:-1], "price")
        off = max(off, far(found[name], (greeks(*above, option)[of] - greeks(*below, option)[of]) / (2 * step)))

    rows = []
    for day in range(first, len(spots) - 1):
        print(f"\rday {day - first + 1} of {len(spots) - 1 - first}", end="", file=sys.stderr, flush=True)
        today, tomorrow = market(day), market(day + 1)
        g = {name: held @ value for name, value in greeks(*today, option).items()}
        s, v, _, a = (after[0] - before[0] for after, before in zip(tomorrow, today))
        linear = g["delta"] * s + g["vega"] * v + g["theta"] * a
        curved = (g["gamma"] * s / 2 + g["vanna"] * v + g["charm"] * a) * s + (g["volga"] * v / 2 + g["veta"] * a) * v
        rows.append([held @ price(*tomorrow, option) - g["price"], linear, linear + curved])
    print(file=sys.stderr)
    profit, linear, explained = np.transpose(rows)

    print(f"first call (compiles or loads)          {compiling:6.2f} s")
    print(f"price and 13 greeks of {COUNT:,} options   {1e3 * elapsed:6.2f} ms")
    print(f"7 of them by formulas in NumPy          {1e3 * other:6.2f} ms, differ by {wrong:.1e} of the largest")
    print(f"greeks from those by differences        {off:.1e} of the largest")
    print(f"a day's profit, root of mean square     {np.sqrt(np.mean(profit**2)):,.0f} dollars")
    print(f"  not explained by delta, vega, theta   {np.sqrt(np.mean((profit - linear) ** 2)):,.1f} dollars")
    print(f"  nor by the second derivatives         {np.sqrt(np.mean((profit - explained) ** 2)):,.1f} dollars")

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    spot = np.linspace(200, 700, 200)
    call = {"strike": np.full(200, 400.0), "years": np.full(200, 0.25), "sign": np.ones(200)}
    curves = greeks(spot, np.full(200, 0.35), np.full(200, RATE), np.zeros(200), call)
    for name in ("delta", "gamma", "vega", "vanna", "speed", "zomma"):
        left.plot(spot, curves[name] / np.max(np.abs(curves[name])), label=name)
    left.set(title="A call for 400 dollars in three months, parts of the greatest", xlabel="share, dollars")
    left.legend()
    days = range(1, len(profit) + 1)
    right.bar(days, profit / 1000, color="lightgray", label="valued again")
    right.plot(days, linear / 1000, "x", label="by delta, vega, theta")
    right.plot(days, explained / 1000, ".", label="and second derivatives")
    right.set(title="Each day's profit, thousand dollars", xlabel=f"day since {shares['date'][first]}")
    right.legend()
    figure.savefig("option_greeks.png", dpi=120)
    return 0 if wrong < 1e-12 and off < 1e-6 and np.std(profit - explained) < 0.01 * np.std(profit) else 1


if __name__ == "__main__":
    sys.exit(main())
