"""Optimizers of PyTorch: their hyperparameters with checks, and their rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracegrad.errors import UnsupportedError, located
from tracegrad.torch.optim.docs import OPTIM_DOCS
from tracegrad.torch.optim.optimizer import Optimizer
from tracegrad.torch.optim.update_rules import RULES
from tracegrad.torch.tape import Tensor

__all__ = ["ASGD", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"]

Betas = tuple[float, float]
Settings = dict[str, Any]


# What PyTorch's errors call a hyperparameter that must not be negative.
_NOT_NEGATIVE = {
    "lr": "learning rate",
    "eps": "epsilon value",
    "momentum": "momentum value",
    "lr_decay": "lr_decay value",
    "weight_decay": "weight_decay value",
    "momentum_decay": "momentum_decay value",
    "initial_accumulator_value": "initial_accumulator_value value",
}


def _checked(cls: type[Optimizer], arguments: Settings) -> Settings:
    """Return the hyperparameters among the arguments of a constructor; ValueError for one that is out of range.

    `foreach`, `fused` and `capturable` have no effect here.
    """
    names = cls.saved_order.split() or [name for name in arguments if name not in ("self", "params", "__class__")]
    settings = {name: arguments[name] for name in names}
    for name, text in _NOT_NEGATIVE.items():
        if name in settings and not settings[name] >= 0.0:  # nan is invalid too
            raise ValueError(located(f"Invalid {text}: {settings[name]}"))
    for k, beta in enumerate(settings.get("betas", ())):
        if not 0.0 <= beta < 1.0:
            raise ValueError(located(f"Invalid beta parameter at index {k}: {beta}"))
    if not 0.0 <= settings.get("rho", 0.0) <= 1.0:
        raise ValueError(located(f"Invalid rho value: {settings['rho']}"))
    if settings.get("differentiable"):
        raise UnsupportedError(
            located(
                f"{cls.__name__}(differentiable=True): steps update parameters in place; for derivatives of training "
                "use the pure functions, as tracegrad.optim.sgd, in a function of what is differentiated"
            )
        )
    if settings.get("fused") and settings.get("foreach"):
        raise RuntimeError(located("`fused` and `foreach` cannot be `True` together."))
    rate = settings["lr"]
    if isinstance(rate, Tensor) and rate.numel() != 1:
        raise ValueError(located("Tensor lr must be 1-element"))
    return settings


class SGD(Optimizer):
    """Gradient descent, with momentum and weight decay.

    Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> sgd = SGD([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> sgd.step()
    >>> w
    tensor([ 0.5000, -1.0000], requires_grad=True)
    """

    rule = RULES["sgd"]

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        settings = _checked(type(self), locals())
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(located("Nesterov momentum requires a momentum and zero dampening"))
        super().__init__(params, settings)


class Adam(Optimizer):
    """Adam: the mean of past gradients, divided by the root of the mean of their squares.

    Source: Kingma and Ba 2015. Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as
    for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> adam = Adam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> adam.step()
    >>> w
    tensor([ 0.7500, -1.7500], requires_grad=True)
    """

    rule = RULES["adam"]
    saved_order = (
        "lr betas eps weight_decay amsgrad maximize foreach capturable differentiable fused decoupled_weight_decay"
    )

    def __init__(
        self, params: Iterable[object], lr: Tensor | float = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None, decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class AdamW(Adam):
    """Adam with weight decay that is taken from the parameter instead of added to the gradient.

    Source: Loshchilov and Hutter 2019. Steps are as in PyTorch. Errors are those of `Adam`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> adam = AdamW([w], lr=0.25, weight_decay=0.1)
    >>> (w * w).sum().backward()
    >>> adam.step()
    >>> w
    tensor([ 0.7250, -1.7000], requires_grad=True)
    """

    def __init__(
        self, params: Iterable[object], lr: Tensor | float = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False,
        differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip


class Adamax(Optimizer):
    """Adam with the largest gradient, which decays, in place of the root of the mean of squares.

    Source: Kingma and Ba 2015. Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as
    for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> adamax = Adamax([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> adamax.step()
    >>> w
    tensor([ 0.7500, -1.7500], requires_grad=True)
    """

    rule = RULES["adamax"]

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ):
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class NAdam(Optimizer):
    """Adam with Nesterov's momentum.

    Source: Dozat 2016. Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as for
    `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> nadam = NAdam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> nadam.step()
    >>> w
    tensor([ 0.7359, -1.7359], requires_grad=True)
    """

    rule = RULES["nadam"]
    saved_order = (
        "lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize foreach capturable differentiable"
    )

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 2e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ):
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class RAdam(Optimizer):
    """Adam with rectified variance: the first steps use the mean of the gradients alone.

    Source: Liu et al. 2020. Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as for
    `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> radam = RAdam([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> radam.step()
    >>> w
    tensor([ 0.5000, -1.0000], requires_grad=True)
    """

    rule = RULES["radam"]
    saved_order = "lr betas eps weight_decay maximize foreach capturable decoupled_weight_decay differentiable"

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-3,
        betas: Betas = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ):
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class RMSprop(Optimizer):
    """The gradient, divided by the root of the mean of its squares, with momentum.

    Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> rmsprop = RMSprop([w], lr=0.025)
    >>> (w * w).sum().backward()
    >>> rmsprop.step()
    >>> w
    tensor([ 0.7500, -1.7500], requires_grad=True)
    """

    rule = RULES["rmsprop"]
    saved_order = "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable"

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        settings = _checked(type(self), locals())
        if not alpha >= 0.0:
            raise ValueError(located(f"Invalid alpha value: {alpha}"))
        super().__init__(params, settings)


class Adagrad(Optimizer):
    """The gradient, divided by the root of the sum of all its squares.

    Source: Duchi, Hazan and Singer 2011. Steps are as in PyTorch. ValueError for hyperparameters out of range; other
    errors as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> adagrad = Adagrad([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> adagrad.step()
    >>> w
    tensor([ 0.7500, -1.7500], requires_grad=True)
    """

    rule = RULES["adagrad"]
    saved_order = "lr lr_decay eps weight_decay initial_accumulator_value foreach maximize differentiable fused"

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class Adadelta(Optimizer):
    """The gradient times the ratio of the root mean squares of past steps and past gradients.

    Source: Zeiler 2012. Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors as for
    `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> adadelta = Adadelta([w], eps=0.01)
    >>> (w * w).sum().backward()
    >>> adadelta.step()
    >>> w
    tensor([ 0.6877, -1.6848], requires_grad=True)
    """

    rule = RULES["adadelta"]
    saved_order = "lr rho eps weight_decay maximize capturable foreach differentiable"

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class ASGD(Optimizer):
    """Gradient descent with a falling rate, and the mean of the parameter from step `t0` on in `state[p]["ax"]`.

    Source: Polyak and Juditsky 1992. Steps are as in PyTorch. ValueError for hyperparameters out of range; other errors
    as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> asgd = ASGD([w], lr=0.25, lambd=0.0)
    >>> (w * w).sum().backward()
    >>> asgd.step()
    >>> w
    tensor([ 0.5000, -1.0000], requires_grad=True)
    """

    rule = RULES["asgd"]

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ):
        settings = _checked(type(self), locals())
        super().__init__(params, settings)


class Rprop(Optimizer):
    """Steps against the sign of the gradient, which grow while the sign stays and shrink when it changes.

    Source: Riedmiller and Braun 1993. Steps are as in PyTorch. ValueError for hyperparameters out of range; other
    errors as for `Optimizer`.

    >>> from tracegrad import tensor
    >>> w = tensor([1.0, -2.0], requires_grad=True)
    >>> rprop = Rprop([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> rprop.step()
    >>> w
    tensor([ 0.7500, -1.7500], requires_grad=True)
    """

    rule = RULES["rprop"]
    saved_order = "lr etas step_sizes foreach maximize differentiable capturable"

    def __init__(
        self,
        params: Iterable[object],
        lr: Tensor | float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        settings = _checked(type(self), locals())
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(located(f"Invalid eta values: {etas[0]}, {etas[1]}"))
        super().__init__(params, settings)


OPTIM_DOCS.document(globals(), __all__)
