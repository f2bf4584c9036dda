"""A Gaussian process on scikit-learn's diabetes data: 442 patients, ten measurements, one length scale for each.

The hyperparameters, a dictionary, maximise the marginal likelihood (Rasmussen and Williams, equation 2.30), through
NumPy's Cholesky factor and SciPy's triangular solver. `tg.scipy.minimize` has the gradient. The exit code is 1 unless
likelihood, gradient and predictions are those of scikit-learn's GaussianProcessRegressor. It prints the time of a
gradient for both, saves `gaussian_process.png`, and takes 5 s.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import solve_triangular
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import tracegrad as tg


def kernel(p, a, b):
    """Squared exponential kernel; p has the logarithms of variances and length scales."""
    scaled_a, scaled_b = a / np.exp(p["lengths"]), b / np.exp(p["lengths"])
    squares = np.sum(scaled_a**2, axis=1)[:, None] + np.sum(scaled_b**2, axis=1) - 2 * scaled_a @ scaled_b.T
    return np.exp(p["signal"] - 0.5 * np.maximum(squares, 0))


def factor(p, x, y):
    """Cholesky factor of the covariance of the measurements, and the inverse covariance times `y`."""
    lower = np.linalg.cholesky(kernel(p, x, x) + np.exp(p["noise"]) * np.eye(len(x)))
    return lower, solve_triangular(lower.T, solve_triangular(lower, y, lower=True), lower=False)


def negative_log_likelihood(p, x, y):
    lower, weights = factor(p, x, y)
    return 0.5 * y @ weights + np.sum(np.log(np.diag(lower))) + 0.5 * len(x) * np.log(2 * np.pi)


@tg.trace
def predict(p, x, y, new):
    """Mean and standard deviation of measurements at `new`."""
    lower, weights = factor(p, x, y)
    between = kernel(p, x, new)
    explained = solve_triangular(lower, between, lower=True)
    variance = np.exp(p["signal"]) + np.exp(p["noise"]) - np.sum(explained**2, axis=0)
    return between.T @ weights, np.sqrt(variance)


def main():
    data = load_diabetes()
    x = data.data / np.std(data.data, axis=0)
    y = (data.target - np.mean(data.target)) / np.std(data.target)
    order = np.random.default_rng(0).permutation(len(x))
    train, held_out = order[:342], order[342:]
    start = {"signal": 0.0, "noise": 0.0, "lengths": np.full(10, np.log(3.0))}
    bounds = ({name: np.log(1e-3) for name in start}, {name: np.log(1e3) for name in start})

    clock = time.perf_counter()
    fit = tg.scipy.minimize(
        negative_log_likelihood, start, (x[train], y[train]), method="L-BFGS-B", bounds=bounds, disp=True
    )
    elapsed = time.perf_counter() - clock
    mean, deviation = predict(fit.x, x[train], y[train], x[held_out])

    value_and_grad = tg.value_and_grad(negative_log_likelihood, tiered=False)  # the first call compiles
    value_and_grad(fit.x, x[train], y[train])
    clock = time.perf_counter()
    value, gradient = value_and_grad(fit.x, x[train], y[train])
    ours = time.perf_counter() - clock

    signal, noise, lengths = (np.exp(fit.x[name]) for name in ("signal", "noise", "lengths"))
    peer = GaussianProcessRegressor(ConstantKernel(signal) * RBF(lengths) + WhiteKernel(noise), alpha=0, optimizer=None)
    peer.fit(x[train], y[train])
    clock = time.perf_counter()
    likelihood, slopes = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    theirs = time.perf_counter() - clock
    # scikit-learn orders derivatives like its kernel: signal, lengths, noise
    wrong = np.max(np.abs(slopes + np.hstack([gradient["signal"], gradient["lengths"], gradient["noise"]])))
    apart = np.max(np.abs(peer.predict(x[held_out]) - mean))

    explained = 1 - np.mean((mean - y[held_out]) ** 2) / np.var(y[held_out])
    inside = np.mean(np.abs(mean - y[held_out]) < 1.96 * deviation)
    print(f"L-BFGS-B, first call and all            {elapsed:6.2f} s, {fit.nit} iterations, {fit.nfev} gradients")
    print(f"one likelihood with its gradient        {1e3 * ours:6.2f} ms; scikit-learn {1e3 * theirs:.2f} ms")
    print(f"log likelihood                          {-value:.6f}; scikit-learn {likelihood:.6f}")
    print(f"greatest difference of a slope          {wrong:.1e}")
    print(f"greatest difference of a prediction     {apart:.1e}")
    print(f"variance explained of 100 held out      {explained:.1%}; {inside:.0%} within their 95 % intervals")

    relevance = np.exp(-fit.x["lengths"])
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.barh(data.feature_names, relevance)
    left.set(title="Relevance: 1 / length scale", xlabel="per standard deviation")
    right.errorbar(y[held_out], mean, 1.96 * deviation, fmt="o", ms=4, elinewidth=0.5)
    right.plot([-2, 3], [-2, 3], color="black", lw=1)
    right.set(title="Held-out patients, 95 % intervals", xlabel="measured", ylabel="predicted")
    figure.savefig("gaussian_process.png", dpi=120)
    return 0 if fit.success and abs(value + likelihood) < 1e-8 and wrong < 1e-5 and apart < 1e-8 else 1


if __name__ == "__main__":
    sys.exit(main())
