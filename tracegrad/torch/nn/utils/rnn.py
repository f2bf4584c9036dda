"""Namespace of `torch.nn.utils.rnn`: sequences of different lengths, padded or packed step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.nn.docs import MODULE_DOCS
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.factories import tensor

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]

_where, _cat, _index_select = FUNCTIONS["where"], FUNCTIONS["cat"], FUNCTIONS["index_select"]


class PackedSequence(NamedTuple):
    """Sequences in descending order of length, packed step by step: the first elements of all, the second, and so on.

    Parameters
    ----------
    data : Tensor
        Elements, (sum of the lengths, *).
    batch_sizes : Tensor
        Number of sequences that have an element, for each step.
    sorted_indices, unsorted_indices : Tensor, optional
        Permutation from the order of the caller, and its inverse.

    Examples
    --------
    >>> import tracegrad as tg
    >>> pack_sequence([tg.tensor([1, 2]), tg.tensor([3])]).data
    tensor([1, 3, 2])
    """

    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None

    @property
    def is_cuda(self) -> bool:
        """Whether the data are on a GPU: always False."""
        return False

    def to(self, *args: object, **kwargs: object) -> PackedSequence:
        """Convert the data, as `Tensor.to` does."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """Return the sequence."""
        return self

    def lengths(self) -> list[int]:
        """Return the lengths, in descending order."""
        return _conjugate(self.batch_sizes.tolist())


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Return the inverse of a permutation, or None for None.

    >>> import tracegrad as tg
    >>> invert_permutation(tg.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    return None if permutation is None else permutation.argsort()


def _conjugate(counts: Sequence[int]) -> list[int]:
    """Return the conjugate partition: the numbers of sequences at each step from their lengths, and the inverse."""
    return [sum(count > k for count in counts) for k in range(max(counts))]


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences (T, N, *), or (N, T, *) if `batch_first`, of these lengths.

    RuntimeError for lengths that are not positive, or not in descending order if `enforce_sorted`.

    >>> import tracegrad as tg
    >>> pack_padded_sequence(tg.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True).data
    tensor([1, 3, 2])
    """
    sizes: list[int] = lengths.tolist() if isinstance(lengths, Tensor) else [int(length) for length in lengths]
    order = None
    x = input.transpose(0, 1) if batch_first else input
    if len(sizes) != x.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={x.shape[1]})"
        )
    if min(sizes) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if enforce_sorted:
        if sizes != sorted(sizes, reverse=True):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if "
                "you do not need ONNX exportability."
            )
    else:
        order = sorted(range(len(sizes)), key=lambda k: -sizes[k])
        x, sizes = _index_select(x, 1, tensor(order)), [sizes[k] for k in order]
    steps = _conjugate(sizes)
    indices = None if order is None else tensor(order)
    return PackedSequence(packed(x, steps), tensor(steps), indices, invert_permutation(indices))


def packed(x: Array, sizes: Sequence[int]) -> Array:
    """Return padded sequences (T, N, *) step by step, from the number of sequences at each step."""
    places = [(t, n) for t, size in enumerate(sizes) for n in range(size)]
    return x[[t for t, _ in places], [n for _, n in places]]


def padded(data: Tensor, sizes: Sequence[int], padding_value: float = 0.0, total_length: int | None = None) -> Tensor:
    """Return packed data as padded sequences (T, N, *), from the number of sequences at each step."""
    time = len(sizes) if total_length is None else total_length
    starts = [0, *itertools.accumulate(sizes)]
    rows = [[starts[t] + n if t < len(sizes) and n < sizes[t] else -1 for n in range(sizes[0])] for t in range(time)]
    places = tensor(rows)
    inside = (places >= 0).reshape((time, sizes[0], *(1,) * (len(data.shape) - 1)))
    result: Tensor = _where(inside, data[places.clamp(min=0)], padding_value)
    return result


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return packed sequences as padded ones, (T, N, *) or (N, T, *), and their lengths.

    ValueError if `total_length` is smaller than the longest sequence.

    >>> import tracegrad as tg
    >>> pad_packed_sequence(pack_sequence([tg.tensor([1, 2]), tg.tensor([3])]), batch_first=True)
    (tensor([[1, 2],
            [3, 0]]), tensor([2, 1]))
    """
    sizes = sequence.batch_sizes.tolist()
    if total_length is not None and total_length < len(sizes):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got total_length="
            f"{total_length} and max sequence length being {len(sizes)}"
        )
    value = int(padding_value) if sequence.data.dtype.kind in "iu" else padding_value
    result, lengths = padded(sequence.data, sizes, value, total_length), tensor(sequence.lengths())
    if sequence.unsorted_indices is not None:
        result = _index_select(result, 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return result.transpose(0, 1) if batch_first else result, lengths


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack sequences of different lengths, filled with `padding_value` at the right or left side.

    The result is (T, N, *), or (N, T, *) if `batch_first`. RuntimeError for another side.

    >>> import tracegrad as tg
    >>> pad_sequence([tg.tensor([1, 2]), tg.tensor([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side should be either 'left' or 'right', but got {padding_side}")
    parts = list(sequences)
    longest = max(x.shape[0] for x in parts)
    rows = []
    for x in parts:
        filling = x.new_full((longest - x.shape[0], *x.shape[1:]), padding_value)
        rows.append(_cat([x, filling] if padding_side == "right" else [filling, x]))
    result: Tensor = FUNCTIONS["stack"](rows, 0 if batch_first else 1)
    return result


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Array]:
    """Return a list of sequences without their padding; undoes `pad_sequence`.

    >>> import tracegrad as tg
    >>> unpad_sequence(tg.tensor([[1, 2], [3, 0]]), tg.tensor([2, 1]), batch_first=True)
    [tensor([1, 2]), tensor([3])]
    """
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    return [row[:length] for row, length in zip(x.unbind(0), sizes)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences.

    RuntimeError if they are not in descending order of length and `enforce_sorted`.

    >>> import tracegrad as tg
    >>> pack_sequence([tg.tensor([3]), tg.tensor([1, 2])], enforce_sorted=False).batch_sizes
    tensor([2, 1])
    """
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Array]:
    """Return a list of the packed sequences.

    >>> import tracegrad as tg
    >>> unpack_sequence(pack_sequence([tg.tensor([1, 2]), tg.tensor([3])]))
    [tensor([1, 2]), tensor([3])]
    """
    result, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(result, lengths, batch_first=True)


MODULE_DOCS.document(globals(), [name for name in __all__ if name != "PackedSequence"])
