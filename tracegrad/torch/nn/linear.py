"""Modules with weight matrices: `Linear`, `Bilinear`, embeddings, which select rows, and the adaptive softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.errors import UnsupportedError, located
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.modes import no_grad
from tracegrad.torch.nn import init
from tracegrad.torch.nn.container import ModuleList, Sequential
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape.tensors.factories import empty
from tracegrad.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike, DTypeLike


__all__ = ["AdaptiveLogSoftmaxWithLoss", "Bilinear", "Embedding", "EmbeddingBag", "Identity", "Linear"]


class Identity(Module):
    """The input itself. All parameters are ignored.

    >>> Identity(54)(1.5)
    1.5
    """

    def __init__(self, *args: object, **kwargs: object):
        super().__init__()

    def forward(self, input: Array) -> Array:
        """Return the input."""
        return input


class Linear(Module):
    """input @ weight.T + bias.

    The parameters `weight`, (out_features, in_features), and `bias`, (out_features,) or None, begin as uniform numbers
    between ±1 / sqrt(in_features).

    >>> import tracegrad as tg
    >>> layer = Linear(3, 2)
    >>> layer, layer(tg.ones(5, 3)).shape
    (Linear(in_features=3, out_features=2, bias=True), torch.Size([5, 2]))
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Array) -> Array:
        """Return the output."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """x1 @ weight[k] @ x2 + bias[k] for each k.

    The parameters `weight`, (out_features, in1_features, in2_features), and `bias`, (out_features,) or None, begin as
    uniform numbers between ±1 / sqrt(in1_features).

    >>> import tracegrad as tg
    >>> Bilinear(3, 4, 2)(tg.ones(5, 3), tg.ones(5, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Array, input2: Array) -> Array:
        """Return the output."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class RowTable(Module):
    """Base class of modules with a parameter `weight` of rows, (num_embeddings, embedding_dim)."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float

    def _begin_rows(self, weight: object, requires_grad: bool, device: DeviceLike, dtype: DTypeLike) -> None:
        """Set the weight, or draw one."""
        if weight is None:
            self.weight = Parameter(
                empty(self.num_embeddings, self.embedding_dim, device=device, dtype=dtype), requires_grad
            )
            self.reset_parameters()
        else:
            self.weight = Parameter(weight, requires_grad)

    def reset_parameters(self) -> None:
        """Draw the rows anew; the row `padding_idx` becomes zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _norm_repr(self) -> str:
        text = "" if self.max_norm is None else f", max_norm={self.max_norm}"
        return text if self.norm_type == 2 else f"{text}, norm_type={self.norm_type}"

    def _padding_repr(self) -> str:
        return "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"


class Embedding(RowTable):
    """Rows of the parameter `weight`, (num_embeddings, embedding_dim), at integer indices.

    The rows begin as standard normal numbers. With `max_norm`, rows are scaled down when they are looked up.
    UnsupportedError for `scale_grad_by_freq` and `sparse`.

    >>> import tracegrad as tg
    >>> Embedding(10, 3)(tg.tensor([[1, 2], [0, 9]])).shape
    torch.Size([2, 2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Array | None = None,
        _freeze: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if scale_grad_by_freq or sparse:
            raise UnsupportedError("Embedding: scale_grad_by_freq and sparse are not supported")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("Padding_idx must be within num_embeddings")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if _weight is not None and tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self._begin_rows(_weight, not _freeze, device, dtype)

    def forward(self, input: Array) -> Array:
        """Return the rows."""
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type)

    @classmethod
    def from_pretrained(cls, embeddings: Array, freeze: bool = True, padding_idx: int | None = None) -> Self:
        """Make an Embedding of the rows of `embeddings`, which require no grad if frozen.

        `embeddings` is (num_embeddings, embedding_dim).
        """
        if len(embeddings.shape) != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, _weight=embeddings, _freeze=freeze)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}{self._padding_repr()}{self._norm_repr()}"


class EmbeddingBag(RowTable):
    """Sums, means or maxima of rows of the parameter `weight`, (num_embeddings, embedding_dim), at indices in bags.

    The weight begins as standard normal numbers. UnsupportedError for `scale_grad_by_freq` and `sparse`.

    >>> import tracegrad as tg
    >>> EmbeddingBag(10, 3, mode="sum")(tg.tensor([1, 2, 4, 5]), tg.tensor([0, 2])).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Array | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if scale_grad_by_freq or sparse:
            raise UnsupportedError("EmbeddingBag: scale_grad_by_freq and sparse are not supported")
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.max_norm, self.norm_type, self.include_last_offset = max_norm, norm_type, include_last_offset
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("padding_idx must be within num_embeddings")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self._begin_rows(_weight, True, device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Self:
        """Make a module whose weight is a Tensor (num_embeddings, embedding_dim), which is not trained if `freeze`."""
        rows, columns = embeddings.shape
        bag = cls(rows, columns, _weight=embeddings, **options)
        bag.weight.requires_grad = not freeze
        return bag

    def forward(self, input: Array, offsets: Array | None = None, per_sample_weights: Array | None = None) -> Array:
        """Return the reduced rows of each bag."""
        result: Array = F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
        return result

    def extra_repr(self) -> str:
        sizes = f"{self.num_embeddings}, {self.embedding_dim}"
        return f"{sizes}{self._norm_repr()}, mode={self.mode!r}{self._padding_repr()}"


# -- many classes ------------------------------------------------------------------------------------------------------
class AdaptiveSoftmaxOutput(NamedTuple):
    """Log probabilities of the targets, and the mean of their negatives."""

    output: Array
    loss: Array


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log softmax over many classes, of which the frequent ones come first; rare ones have smaller matrices.

    `cutoffs` divide the classes into a shortlist and clusters. Cluster i is computed from in_features / div_value**i
    features, and only if a target belongs to it. The result of a call is the log probabilities of the targets and their
    negative mean. Source: E. Grave, A. Joulin, M. Cisse, D. Grangier, H. Jegou, "Efficient softmax approximation for
    GPUs", 2017. ValueError for cutoffs that do not ascend between 1 and n_classes - 1; RuntimeError for targets that do
    not fit the input, or are no classes.

    >>> import tracegrad as tg
    >>> layer = AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs=[3, 6], div_value=2.0)
    >>> layer(tg.ones(2, 8), tg.tensor([1, 9])).output.shape
    torch.Size([2])
    >>> layer.log_prob(tg.ones(2, 8)).exp().sum(1).detach().round(decimals=4)
    tensor([1., 1.])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        limits = list(cutoffs)
        if not limits:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        ascends = all(a < b for a, b in zip([0, *limits], [*limits, n_classes]))
        if not ascends or any(int(limit) != limit for limit in limits):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*limits, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = limits[0], len(limits)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail: Any = ModuleList()
        for k, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            features = int(in_features // div_value ** (k + 1))
            first, second = (in_features, features), (features, high - low)
            self.tail.append(Sequential(*[Linear(*sizes, False, device, dtype) for sizes in (first, second)]))

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.head.reset_parameters()
        for projection in self.tail:
            for layer in projection:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> AdaptiveSoftmaxOutput:
        """Return the log probabilities of the targets, () or (N,), and their negative mean."""
        _check_targets(input_, target_)
        is_batched = len(target_.shape) > 0
        input, target = (input_, target_) if is_batched else (input_[None], target_[None])
        where = FUNCTIONS["where"]
        if not bool(((target >= 0) & (target < self.n_classes)).all()):
            low, high = target.min().item(), target.max().item()
            text = f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were"
            raise RuntimeError(located(f"{text} found. "))
        columns, inside = target, 0.0
        for k, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            mask = (target >= low) & (target < high)
            if not bool(mask.any()):
                continue
            of_cluster: Any = F.log_softmax(self.tail[k](input), 1)
            places = where(mask, target - low, 0)
            inside = where(mask, of_cluster.gather(1, places[:, None])[:, 0], inside)
            columns = where(mask, self.shortlist_size + k, columns)
        of_head: Any = F.log_softmax(self.head(input), 1)
        output = of_head.gather(1, columns[:, None])[:, 0] + inside
        loss = (-output).mean()
        return AdaptiveSoftmaxOutput(output if is_batched else output[0], loss)

    def log_prob(self, input: Array) -> Array:
        """Return the log probabilities of all classes, (N, n_classes)."""
        return self._log_prob(input, self.head(input))

    def _log_prob(self, input: Array, head: Array) -> Array:
        of_head = F.log_softmax(head, 1)
        parts = [of_head[:, : self.shortlist_size]]
        for k, projection in enumerate(self.tail):
            column = self.shortlist_size + k
            parts.append(F.log_softmax(projection(input), 1) + of_head[:, column : column + 1])
        result: Array = FUNCTIONS["cat"](parts, 1)
        return result

    def predict(self, input: Array) -> Array:
        """Return the class with the highest probability, (N,)."""
        result: Array = FUNCTIONS["argmax"](self.log_prob(input), 1)
        return result


def _check_targets(input: Array, target: Array) -> None:
    rank = len(target.shape)
    if rank > 1:
        raise RuntimeError(located("0D or 1D target tensor expected, multi-target not supported"))
    if rank == 1 and input.shape[0] != target.shape[0]:
        raise RuntimeError(located("Input and target should have the same size in the batch dimension."))
    if len(input.shape) != rank + 1:
        text = f"{rank}D target tensor expects {rank + 1}D input tensors, but found inputs with size {input.shape}"
        raise RuntimeError(located(text))
