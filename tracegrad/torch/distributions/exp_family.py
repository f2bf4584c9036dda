"""Exponential families, whose entropy is a derivative of the log normalizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.torch.autograd import grad
from tracegrad.torch.distributions.distribution import Distribution

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = ["ExponentialFamily"]


def differentiable(parameter: Tensor) -> Tensor:
    """Return the parameter, or a copy without history that requires grad."""
    return parameter if parameter.requires_grad else parameter.detach().requires_grad_()


class ExponentialFamily(Distribution):
    """Base class of exponential families: densities exp(t(x) . theta - F(theta) + k(x)).

    A subclass has the natural parameters `_natural_params`, the log normalizer `_log_normalizer` and the mean of k,
    `_mean_carrier_measure`.

    >>> from tracegrad.distributions import Gamma
    >>> isinstance(Gamma(1.0, 1.0), ExponentialFamily)
    True
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Tensor | float:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Return the entropy: F(theta) - theta . dF(theta) - E[k(x)].

        F. Nielsen and R. Nock, "Entropies and cross-entropies of exponential families", ICIP 2010.
        """
        parameters = [differentiable(p) for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(parameters, grad(normalizer.sum(), parameters, create_graph=True)):
            result = result - (p * g).reshape((*self._batch_shape, -1)).sum(-1)
        return result
