"""Logistic regression by SciPy's L-BFGS-B, with the gradient from tracegrad.

The data are scikit-learn's breast cancer measurements (569 by 30, standardised). The exit code is 1 unless the
coefficients are those of scikit-learn's LogisticRegression with the same penalty.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import tracegrad as tg

STRENGTH = 1.0  # scikit-learn's C: the weight of the data against the penalty


@tg.trace
def loss(theta, x, y):
    """Penalised negative log-likelihood; theta has the coefficients, then the intercept, which has no penalty."""
    w, b = theta[:-1], theta[-1]
    z = x @ w + b
    # log(1 + exp(z)) without overflow
    softplus = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))
    return STRENGTH * np.sum(softplus - y * z) + 0.5 * np.sum(w**2)


def main():
    data = load_breast_cancer()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    y = data.target.astype(np.float64)
    theta = np.zeros(x.shape[1] + 1)
    value_and_grad = tg.value_and_grad(loss)

    clock = time.perf_counter()
    value_and_grad(theta, x, y)
    first = time.perf_counter() - clock
    clock = time.perf_counter()
    tight = {"method": "L-BFGS-B", "options": {"ftol": 1e-14, "gtol": 1e-7}}
    fit = tg.scipy.minimize(value_and_grad, theta, (x, y), jac=True, disp=True, **tight)
    elapsed = time.perf_counter() - clock

    clock = time.perf_counter()
    reference = LogisticRegression(C=STRENGTH, tol=1e-10, max_iter=10_000).fit(x, y)
    other = time.perf_counter() - clock
    distance = np.max(np.abs(fit.x - np.append(reference.coef_, reference.intercept_)))
    scores = x @ fit.x[:-1] + fit.x[-1]
    accuracy = np.mean((scores > 0) == y)

    print(f"first call (op by op, or loaded)        {1e3 * first:6.1f} ms")
    print(f"L-BFGS-B, gradient from tracegrad       {1e3 * elapsed:6.1f} ms, {fit.nit} iterations")
    print(f"scikit-learn's LogisticRegression       {1e3 * other:6.1f} ms, {reference.n_iter_[0]} iterations")
    print(f"accuracy on the training data           {accuracy:.1%}")
    print(f"greatest difference of a coefficient    {distance:.1e}")

    figure = Figure(figsize=(11, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    order = np.argsort(fit.x[:-1])
    left.barh(data.feature_names[order], fit.x[:-1][order], label="tracegrad")
    left.plot(reference.coef_[0, order], data.feature_names[order], "k|", label="scikit-learn")
    left.set(title="Coefficients of the standardised measurements")
    left.legend()
    right.hist([scores[y == k] for k in (0, 1)], bins=40, stacked=True, label=list(data.target_names))
    right.axvline(0, color="black", lw=1)
    right.set(title=f"Log odds of the tumours, {accuracy:.1%} on their side of 0", ylabel="tumours")
    right.legend()
    figure.savefig("logistic_regression.png", dpi=120)
    return 0 if fit.success and distance < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
