"""Fit the rates of the Kermack-McKendrick equations to a cold on Tristan da Cunha in 1967.

PINTS ships the data: the islanders who were ill and who had recovered on each of 21 days. The model calls
`scipy.integrate.solve_ivp`, and `tg.scipy.least_squares` has the Jacobian through it. The exit code is 1 unless the
solution is that of PINTS, and the fit is SciPy's with finite differences. It prints the number of solutions of both
fits, and saves `epidemic.png` with a 95 % band of the curves.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import scipy
from matplotlib.figure import Figure
from pints.toy import SIRModel

import tracegrad as tg

ACCURACY = {"rtol": 1e-8, "atol": 1e-8}


def outbreak(p, days):
    """Islanders who are ill and who have recovered, for each day; p holds logarithms."""
    infection, recovery, susceptible = (np.exp(p[name]) for name in ("infection", "recovery", "susceptible"))

    def rates(_, y):
        caught, healed = infection * y[0] * y[1], recovery * y[1]
        return np.stack([-caught, caught - healed, healed])

    start = np.stack([susceptible, 1.0, 0.0])  # on the first day one is ill
    return scipy.integrate.solve_ivp(rates, (days[0], days[-1]), start, t_eval=days, **ACCURACY).y[1:].T


def residuals(p, days, counts):
    return outbreak(p, days) - counts


def main():
    study = SIRModel([0.0, 1.0, 0.0])  # its default rounds to whole islanders
    days, counts = study.suggested_times().astype(float), study.suggested_values()
    start = {"infection": np.log(0.02), "recovery": np.log(0.2), "susceptible": np.log(45.0)}
    names = list(start)

    clock = time.perf_counter()
    fit = tg.scipy.least_squares(residuals, start, args=(days, counts), disp=True)
    elapsed = time.perf_counter() - clock

    # the same fit with finite differences, without tracegrad
    def plain(v):
        return residuals(dict(zip(names, v)), days, counts).ravel()

    clock = time.perf_counter()
    differences = scipy.optimize.least_squares(plain, list(start.values()), x_scale="jac", xtol=1e-10)
    other = time.perf_counter() - clock
    found = np.array([fit.x[name] for name in names])
    wrong = np.max(np.abs(found - differences.x))
    infection, recovery, susceptible = np.exp(found)
    apart = np.max(np.abs(study.simulate([infection, recovery, susceptible], days) - outbreak(fit.x, days)))

    # the uncertainty of the curves: the covariance of the parameters, propagated by the Jacobian of the model
    covariance = 2 * fit.cost / (counts.size - 3) * np.linalg.inv(fit.jac.T @ fit.jac)
    fine = np.linspace(1, 21, 101)
    curves = outbreak(fit.x, fine)
    slopes = tg.jacfwd(outbreak)(fit.x, fine)
    slopes = np.stack([slopes[name] for name in names], axis=-1)
    band = 1.96 * np.sqrt(np.einsum("tki,ij,tkj->tk", slopes, covariance, slopes))
    deviation = np.sqrt(np.diag(covariance))

    print(f"fit, first call and all                 {elapsed:6.2f} s, {fit.nfev} solutions, {fit.njev} Jacobians")
    print(f"SciPy's by differences                  {other:6.2f} s, ", end="")
    print(f"{differences.nfev + 3 * differences.njev} solutions")
    print(f"greatest difference of a parameter      {wrong:.1e}")
    print(f"greatest difference from PINTS          {apart:.1e} islanders")
    print(f"infection a day and pair                {infection:.4f}, within {100 * deviation[0]:.0f} %")
    print(f"ill for                                 {1 / recovery:.2f} days, within {100 * deviation[1]:.0f} %")
    print(f"islanders who could fall ill            {susceptible:.1f}, within {100 * deviation[2]:.0f} %")
    print(f"each infects at the start               {infection * susceptible / recovery:.2f}")

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for k, (name, colour) in enumerate([("ill", "tab:red"), ("recovered", "tab:green")]):
        axes.plot(days, counts[:, k], "o", color=colour, label=name)
        axes.plot(fine, curves[:, k], color=colour)
        axes.fill_between(fine, curves[:, k] - band[:, k], curves[:, k] + band[:, k], color=colour, alpha=0.2)
    axes.set(title="Tristan da Cunha, 1967", xlabel="day", ylabel="islanders")
    axes.legend()
    figure.savefig("epidemic.png", dpi=120)
    return 0 if fit.success and wrong < 1e-5 and apart < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
