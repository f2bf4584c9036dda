"""The packages: which version, where its tests are, and what they need besides."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PACKAGES", "Package"]


@dataclass(frozen=True)
class Package:
    """A package on PyPI; `tests` is a folder or file in its source distribution, or installed with it, or one of
    `programs/` here, for packages that publish no tests."""

    name: str
    version: str
    about: str
    tests: str
    source: str = "sdist"  # or "installed", "programs"
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # for pytest
    only: tuple[str, ...] = (".",)  # the files, where all would take too long


PACKAGES = (
    Package("autograd", "1.9.1", "autograd itself", "tests", needs=("pytest-xdist",)),
    Package("lifelines", "0.30.3", "survival analysis", "lifelines/tests",
            needs=("flaky", "dill"), arguments=("--ignore=tests/test_plotting.py",)),
    Package("pymanopt", "2.2.1", "optimisation on manifolds", "tests",
            arguments=("--noconftest", "-k", "not torch and not jax and not tensorflow")),
    Package("surpyval", "0.25", "survival analysis", "surpyval/tests", "installed",
            only=("tests/test_autograd_gamma_compat_shapes.py", "tests/test_option_values.py",
                  "tests/univariate/parametric/test_fit_cost.py")),
    Package("reliability", "0.9.0", "reliability engineering", "tests", needs=("openpyxl",)),
    Package("grcwa", "0.1.2", "coupled waves in gratings", "tests", needs=("nlopt",)),
    Package("autoptim", "0.3", "SciPy's minimizers", "autoptim", "installed"),
    Package("mici", "0.4.1", "Hamiltonian Monte Carlo", "tests", needs=("multiprocess", "sympy"),
            arguments=("-k", "autograd or Autograd or autodiff or systems",)),
    Package("ceviche", "0.1.3", "electromagnetics", "ceviche_waves.py", "programs", needs=("matplotlib",)),
    Package("autograd-gamma", "0.5.0", "incomplete gamma functions", "autograd_gamma_slopes.py", "programs"),
    Package("paragami", "0.42", "parameters of models", "paragami_patterns.py", "programs"),
    Package("vittles", "0.173", "sensitivity of optima", "vittles_sensitivity.py", "programs", needs=("paragami",)),
    Package("sampyl-mcmc", "0.3", "chains of HMC and NUTS", "sampyl_chains.py", "programs"),
    # Written for NumPy; where tracegrad is not there, the programs compare differences with differences.
    Package("filterpy", "2.0.0", "Kalman filters", "filterpy_filters.py", "programs"),
    Package("pyhf", "0.7.6", "statistics of physics", "pyhf_models.py", "programs"),
    Package("anastruct", "1.7.0", "structures", "anastruct_frames.py", "programs"),
)  # fmt: skip
