"""Bayesian logistic regression by Hamiltonian Monte Carlo on scikit-learn's breast cancer data.

Sixteen chains of 31 parameters move at once. One `@tg.trace` is a whole transition: 12 leapfrog steps with gradients,
NumPy's random generator, and acceptance. The exit code is 1 unless all checks hold. The chains agree (Gelman and
Rubin's R-hat). The means of theta times the derivative of the potential are 1, as for any density. scikit-learn's
penalised fit, the mode, lies within the samples. It saves `bayesian_regression.png`.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import tracegrad as tg

CHAINS, WARM_UP, SAMPLES, LEAPS = 16, 300, 1000, 12
SPREAD = 1.0  # standard deviation of the coefficients before the data are seen


def potential(theta, x, y):
    """Negative logarithm of the posterior density, for each row of theta: coefficients, then the intercept."""
    z = theta[:, :-1] @ x.T + theta[:, -1:]
    return np.sum(np.logaddexp(0, z) - y * z, axis=1) + np.sum(theta**2, axis=1) / (2 * SPREAD**2)


# the chains are independent, so each row of the gradient of the sum is the gradient of one chain
slopes = tg.grad(lambda theta, x, y: np.sum(potential(theta, x, y)))


@tg.trace
def transition(theta, step, rng, x, y):
    """Neal (2011), figure 2: the chains after one proposal each, and whether each accepted it."""
    momentum = rng.standard_normal(theta.shape)
    before = potential(theta, x, y) + 0.5 * np.sum(momentum**2, axis=1)
    new = theta
    momentum = momentum - 0.5 * step * slopes(new, x, y)
    for leap in range(LEAPS):
        new = new + step * momentum
        momentum = momentum - step * (1.0 if leap < LEAPS - 1 else 0.5) * slopes(new, x, y)
    after = potential(new, x, y) + 0.5 * np.sum(momentum**2, axis=1)
    accepted = np.log(rng.random(len(theta))) < before - after
    return np.where(accepted[:, None], new, theta), accepted


def disagreement(samples):
    """Gelman and Rubin's R-hat of each parameter; `samples` has iterations, chains and parameters."""
    within = np.mean(np.var(samples, axis=0, ddof=1), axis=0)
    between = np.var(np.mean(samples, axis=0), axis=0, ddof=1)
    return np.sqrt(1 + between / within)


def main():
    data = load_breast_cancer()
    x = (data.data - np.mean(data.data, axis=0)) / np.std(data.data, axis=0)
    y = data.target.astype(float)
    rng = np.random.default_rng(0)
    theta = 0.1 * rng.standard_normal((CHAINS, x.shape[1] + 1))
    samples = np.empty((SAMPLES, *theta.shape))

    clock = time.perf_counter()
    transition(theta, 0.01, np.random.default_rng(1), x, y)
    first = time.perf_counter() - clock
    clock = time.perf_counter()
    step, rate = 0.02, 0.0
    for turn in range(WARM_UP + SAMPLES):
        theta, accepted = transition(theta, step, rng, x, y)
        if turn < WARM_UP:  # adapt the step so that four of five proposals are accepted
            step *= np.exp(0.05 * (np.mean(accepted) - 0.8))
        else:
            samples[turn - WARM_UP] = theta
            rate += np.mean(accepted) / SAMPLES
        if turn % 50 == 49:
            print(f"\r{turn + 1} of {WARM_UP + SAMPLES}, step {step:.4f}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    elapsed = time.perf_counter() - clock

    # by integration by parts, E[theta_i dU/dtheta_i] is 1 for any density exp(-U)
    some = samples[::5].reshape(-1, theta.shape[1])
    virial = np.mean(some * slopes(some, x, y), axis=0)
    r_hat = np.max(disagreement(samples))
    mode = LogisticRegression(C=SPREAD**2, tol=1e-8, max_iter=10_000).fit(x, y)
    low, middle, high = np.quantile(samples.reshape(-1, theta.shape[1]), [0.025, 0.5, 0.975], axis=0)
    inside = np.mean((low[:-1] < mode.coef_[0]) & (mode.coef_[0] < high[:-1]))
    print(f"first call (op by op, or loaded)        {first:6.2f} s")
    print(f"{WARM_UP + SAMPLES} transitions of {CHAINS} chains           {elapsed:6.2f} s, ", end="")
    print(f"{CHAINS * LEAPS * (WARM_UP + SAMPLES) / elapsed:,.0f} gradients a second, {rate:.0%} accepted")
    print(f"R-hat of the worst parameter            {r_hat:.4f}")
    print(f"means of theta dU/dtheta                {np.mean(virial):.3f}, ", end="")
    print(f"{np.min(virial):.3f} to {np.max(virial):.3f}")
    print(f"scikit-learn's mode within 95 %         {inside:.0%} of the coefficients")

    order = np.argsort(middle[:-1])
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(
        range(30),
        middle[order],
        [middle[order] - low[order], high[order] - middle[order]],
        fmt="o",
        ms=4,
        label="posterior: median, 95 %",
    )
    axes.plot(range(30), mode.coef_[0][order], "x", label="scikit-learn's LogisticRegression")
    axes.axhline(0, color="black", lw=0.5)
    axes.set_xticks(range(30), data.feature_names[order], rotation=90)
    axes.set(title="Coefficients: benign above 0, malignant below")
    axes.legend(loc="upper left")
    figure.savefig("bayesian_regression.png", dpi=120)
    return 0 if r_hat < 1.02 and abs(np.mean(virial) - 1) < 0.05 and inside > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
