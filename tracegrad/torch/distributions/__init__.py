"""Namespace of `torch.distributions`: distributions, transforms, constraints and divergences."""

from tracegrad.torch.distributions import (
    categorical,
    constraints,
    counts,
    gamma,
    location_scale,
    matrix_distributions,
    multivariate_normal,
    normal,
    relaxed,
    transformed_distribution,
    transforms,
    utils,
)
from tracegrad.torch.distributions.categorical import *  # noqa: F403
from tracegrad.torch.distributions.constraint_registry import biject_to, transform_to
from tracegrad.torch.distributions.counts import *  # noqa: F403
from tracegrad.torch.distributions.distribution import Distribution
from tracegrad.torch.distributions.docs import DISTRIBUTION_DOCS
from tracegrad.torch.distributions.exp_family import ExponentialFamily
from tracegrad.torch.distributions.gamma import *  # noqa: F403
from tracegrad.torch.distributions.independent import Independent
from tracegrad.torch.distributions.kl import kl_divergence, register_kl
from tracegrad.torch.distributions.location_scale import *  # noqa: F403
from tracegrad.torch.distributions.matrix_distributions import *  # noqa: F403
from tracegrad.torch.distributions.mixture_same_family import MixtureSameFamily
from tracegrad.torch.distributions.multivariate_normal import *  # noqa: F403
from tracegrad.torch.distributions.normal import *  # noqa: F403
from tracegrad.torch.distributions.relaxed import *  # noqa: F403
from tracegrad.torch.distributions.transformed_distribution import *  # noqa: F403
from tracegrad.torch.distributions.transforms import *  # noqa: F403
from tracegrad.utils.lazy_import import second_name

__all__ = [
    "Distribution",
    "ExponentialFamily",
    "Independent",
    "MixtureSameFamily",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
]
__all__ += categorical.__all__
__all__ += counts.__all__
__all__ += gamma.__all__
__all__ += location_scale.__all__
__all__ += matrix_distributions.__all__
__all__ += multivariate_normal.__all__
__all__ += normal.__all__
__all__ += relaxed.__all__
__all__ += transformed_distribution.__all__
__all__ += transforms.__all__
__all__.remove("identity_transform")

DISTRIBUTION_DOCS.document(globals(), __all__)
DISTRIBUTION_DOCS.document(vars(constraints), ["MixtureSameFamilyConstraint", "is_dependent"])
DISTRIBUTION_DOCS.document(vars(utils), utils.__all__)

# PyTorch has a module for each distribution.
for _module, _names in {
    "categorical": "multinomial one_hot_categorical",
    "counts": "bernoulli binomial continuous_bernoulli geometric negative_binomial poisson",
    "gamma": "beta chi2 dirichlet exponential fishersnedecor inverse_gamma pareto weibull",
    "location_scale": "cauchy generalized_pareto gumbel half_cauchy laplace studentT uniform von_mises",
    "matrix_distributions": "lkj_cholesky wishart",
    "multivariate_normal": "lowrank_multivariate_normal",
    "normal": "half_normal",
    "relaxed": "relaxed_bernoulli relaxed_categorical",
    "transformed_distribution": "kumaraswamy log_normal logistic_normal",
}.items():
    for _name in _names.split():
        second_name(f"{__name__}.{_name}", f"{__name__}.{_module}")
