"""Loss modules: each applies a function of `nn.functional` with its parameters.

`reduction` is "mean", "sum" or "none" in all; `size_average` and `reduce`, which PyTorch has deprecated, choose one of
the three if they are passed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.functions.nn.losses import checked, mean_or_sum
from tracegrad.torch.nn.function_module import FunctionModule
from tracegrad.torch.nn.module import Module
from tracegrad.typing import Array

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor


__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PairwiseDistance",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _Loss(FunctionModule):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"):
        super().__init__()
        if size_average is not None or reduce is not None:
            reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
            warnings.warn(
                f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
                stacklevel=3,
            )
        self.reduction = reduction


class _PlainLoss(_Loss):
    """A loss without other parameters."""

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return self._function(input, target, reduction=self.reduction)


class _PairLoss(_Loss):
    """A loss of two inputs, with a margin."""

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Array, input2: Array, target: Array) -> Array:
        """Return the loss."""
        return self._function(input1, input2, target, margin=self.margin, reduction=self.reduction)


class _WeightedLoss(_Loss):
    """A loss with a buffer `weight`."""

    def __init__(
        self,
        weight: Array | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


# -- of differences ---------------------------------------------------------------------------------------------------
class MSELoss(_PlainLoss, function=F.mse_loss):
    """(input - target)**2.

    >>> import tracegrad as tg
    >>> MSELoss()(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0]))
    tensor(2.)
    """


class L1Loss(_PlainLoss, function=F.l1_loss):
    """abs(input - target).

    >>> import tracegrad as tg
    >>> L1Loss()(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0]))
    tensor(1.)
    """


class SmoothL1Loss(_Loss):
    """d**2 / (2 * beta) if d = abs(input - target) is below `beta`, and d - beta / 2 otherwise.

    >>> import tracegrad as tg
    >>> SmoothL1Loss()(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0]))
    tensor(0.7500)
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """d**2 / 2 if d = abs(input - target) is below `delta`, and delta * (d - delta / 2) otherwise.

    >>> import tracegrad as tg
    >>> HuberLoss()(tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0]))
    tensor(0.7500)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


# -- of probabilities -------------------------------------------------------------------------------------------------
class CrossEntropyLoss(_WeightedLoss):
    """The negative logarithm of the softmax of scores, at the target classes.

    The target may also have probabilities of the classes, with the shape of the scores.

    >>> import tracegrad as tg
    >>> CrossEntropyLoss()(tg.zeros(2, 4), tg.tensor([0, 3]))
    tensor(1.3863)
    """

    def __init__(
        self,
        weight: Array | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """The negative of log-probabilities, at the target classes.

    >>> import tracegrad as tg
    >>> NLLLoss()(tg.tensor([[-0.5, -1.0]]), tg.tensor([1]))
    tensor(1.)
    """

    def __init__(
        self,
        weight: Array | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """The cross-entropy of probabilities and targets from 0 to 1.

    >>> import tracegrad as tg
    >>> BCELoss()(tg.tensor([0.5, 0.5]), tg.tensor([1.0, 0.0]))
    tensor(0.6931)
    """

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """The cross-entropy of sigmoid(input) and targets from 0 to 1, without overflow.

    >>> import tracegrad as tg
    >>> BCEWithLogitsLoss()(tg.zeros(2), tg.tensor([1.0, 0.0]))
    tensor(0.6931)
    """

    def __init__(
        self,
        weight: Array | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ):
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """target * (log(target) - input), for log-probabilities `input`.

    `reduction` may also be "batchmean": the sum divided by the size of dimension 0.

    >>> import tracegrad as tg
    >>> KLDivLoss(reduction="sum")(tg.zeros(2), tg.tensor([0.5, 0.5]))
    tensor(-0.6931)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """The negative logarithm of a Poisson probability of the target, whose mean is exp(input).

    >>> import tracegrad as tg
    >>> PoissonNLLLoss()(tg.zeros(2), tg.ones(2))
    tensor(1.)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """The negative logarithm of a Gaussian density of the target, with mean `input` and variance `var`.

    >>> import tracegrad as tg
    >>> GaussianNLLLoss()(tg.zeros(2), tg.ones(2), tg.ones(2))
    tensor(0.5000)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Array, target: Array, var: Array) -> Array:
        """Return the loss."""
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


# -- of margins -------------------------------------------------------------------------------------------------------
class MarginRankingLoss(_PairLoss, function=F.margin_ranking_loss):
    """max(0, margin - target * (input1 - input2)), for targets 1 and -1.

    >>> import tracegrad as tg
    >>> MarginRankingLoss()(tg.zeros(2), tg.ones(2), tg.tensor([1, -1]))
    tensor(0.5000)
    """


class HingeEmbeddingLoss(_Loss):
    """`input` for the target 1, and max(0, margin - input) for the target -1.

    >>> import tracegrad as tg
    >>> HingeEmbeddingLoss()(tg.tensor([0.5, 0.5]), tg.tensor([1, -1]))
    tensor(0.5000)
    """

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ):
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_PlainLoss, function=F.soft_margin_loss):
    """log(1 + exp(-target * input)), for targets 1 and -1.

    >>> import tracegrad as tg
    >>> SoftMarginLoss()(tg.zeros(2), tg.ones(2))
    tensor(0.6931)
    """


class CosineEmbeddingLoss(_PairLoss, function=F.cosine_embedding_loss):
    """1 - cos for the target 1, and max(0, cos - margin) for the target -1.

    >>> import tracegrad as tg
    >>> CosineEmbeddingLoss()(tg.eye(2), tg.ones(2, 2), tg.tensor([1, -1]))
    tensor(0.5000)
    """


class MultiLabelMarginLoss(_PlainLoss, function=F.multilabel_margin_loss):
    """Sum of max(0, 1 - (x[j] - x[i])) over the target classes j and the other classes i, divided by their number.

    >>> import tracegrad as tg
    >>> MultiLabelMarginLoss()(tg.tensor([[0.1, 0.2, 0.4, 0.8]]), tg.tensor([[3, 0, -1, 1]]))
    tensor(0.8500)
    """


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Mean over the classes of the binary cross entropy of sigmoid(input) and the targets.

    >>> import tracegrad as tg
    >>> MultiLabelSoftMarginLoss()(tg.zeros(1, 2), tg.tensor([[1.0, 0.0]]))
    tensor(0.6931)
    """

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """Sum of max(0, margin - x[y] + x[i])**p over the classes i except the target y, divided by their number.

    ValueError unless p is 1 or 2.

    >>> import tracegrad as tg
    >>> MultiMarginLoss()(tg.tensor([[0.1, 0.2, 0.4, 0.8]]), tg.tensor([3]))
    tensor(0.3250)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Array | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        self.p, self.margin = p, margin

    def forward(self, input: Array, target: Array) -> Array:
        """Return the loss."""
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class CTCLoss(_Loss):
    """Connectionist temporal classification: `ctc_loss`.

    >>> import tracegrad as tg
    >>> logs = tg.full((2, 1, 2), 0.5).log()
    >>> CTCLoss()(logs, tg.tensor([[1]]), (2,), (1,)).neg().exp()
    tensor(0.7500)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Array, targets: Array, input_lengths: object, target_lengths: object) -> Array:
        """Return the loss."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class TripletMarginLoss(_Loss):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), for the p-norm d.

    >>> import tracegrad as tg
    >>> TripletMarginLoss()(tg.zeros(1, 2), tg.ones(1, 2), tg.ones(1, 2))
    tensor(1.)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ):
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Array, positive: Array, negative: Array) -> Array:
        """Return the loss."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), for any distance d.

    >>> import tracegrad as tg
    >>> TripletMarginWithDistanceLoss()(tg.zeros(1, 2), tg.ones(1, 2), tg.ones(1, 2))
    tensor(1.)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[..., Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ):
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Array, positive: Array, negative: Array) -> Array:
        """Return the loss."""
        near, far = self.distance_function(anchor, positive), self.distance_function(anchor, negative)
        if self.swap:
            far = far.minimum(self.distance_function(positive, negative))
        return mean_or_sum(F.relu(near - far + self.margin), checked(self.reduction))


# -- distances --------------------------------------------------------------------------------------------------------
class CosineSimilarity(Module):
    """The cosine of the angle between vectors along a dimension.

    >>> import tracegrad as tg
    >>> CosineSimilarity()(tg.eye(2), tg.ones(2, 2))
    tensor([0.7071, 0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Array, x2: Array) -> Array:
        """Return the cosines, without the dimension."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last dimension.

    >>> import tracegrad as tg
    >>> PairwiseDistance()(tg.zeros(1, 2), tg.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Array, x2: Array) -> Array:
        """Return the distances, without the last dimension unless `keepdim`."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
