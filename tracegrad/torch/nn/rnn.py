"""Recurrent networks: `RNN`, `LSTM` and `GRU` over sequences, and their cells, which compute one step.

A step multiplies the state with `weight_hh`; the contribution of the inputs is one matrix product for all steps. The
parameters of layer k are `weight_ih_lk`, `weight_hh_lk`, `bias_ih_lk` and `bias_hh_lk`; parameters of the reverse
direction have the suffix `_reverse`. Initial values are uniform between ±1 / sqrt(hidden_size).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.errors import UnsupportedError
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.init import uniform_
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.nn.utils.rnn import PackedSequence, packed, padded
from tracegrad.torch.tape.tensors.factories import empty, tensor, zeros
from tracegrad.typing import Array, DTypeLike

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike


__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell"]

_cat, _stack, _chunk, _where = (FUNCTIONS[name] for name in ("cat", "stack", "chunk", "where"))
_relu, _tanh, _sigmoid = FUNCTIONS["relu"], FUNCTIONS["tanh"], FUNCTIONS["sigmoid"]


# -- one step ---------------------------------------------------------------------------------------------------------
def _step_tanh(projected: Array, state: Array, weight: Array, bias: Array) -> tuple[Tensor, ...]:
    return (_tanh(projected + F.linear(state[0], weight, bias)),)


def _step_relu(projected: Array, state: Array, weight: Array, bias: Array | None) -> tuple[Tensor, ...]:
    return (_relu(projected + F.linear(state[0], weight, bias)),)


def _step_lstm(projected: Array, state: Array, weight: Array, bias: Array) -> tuple[Tensor, ...]:
    h, c = state
    i, f, g, o = _chunk(projected + F.linear(h, weight, bias), 4, -1)
    c = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
    return _sigmoid(o) * _tanh(c), c


def _step_gru(projected: Array, state: Array, weight: Array, bias: Array) -> tuple[Tensor, ...]:
    (h,) = state
    r, z, n = _chunk(projected, 3, -1)
    of_r, of_z, of_n = _chunk(F.linear(h, weight, bias), 3, -1)
    update = _sigmoid(z + of_z)
    new = _tanh(n + _sigmoid(r + of_r) * of_n)
    return ((1 - update) * new + update * h,)


# Mode -> number of gates, number of parts of the state, and the step function.
_KINDS: dict[str, Any] = {
    "RNN_TANH": (1, 1, _step_tanh),
    "RNN_RELU": (1, 1, _step_relu),
    "LSTM": (4, 2, _step_lstm),
    "GRU": (3, 1, _step_gru),
}


def _kind_of(nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
    return f"RNN_{nonlinearity.upper()}"


# -- sequences --------------------------------------------------------------------------------------------------------
def _until(time: int, lengths: list[int], following: Sequence[Array], state: Any) -> list[Array]:
    """Return the following states of sequences that have an element at this time, and the old ones of the others."""
    inside = tensor([[length > time] for length in lengths])
    return [_where(inside, new, old) for new, old in zip(following, state)]


class RNNBase(Module):
    """Base class of recurrent networks.

    >>> import tracegrad as tg
    >>> RNNBase("GRU", 3, 4).hidden_size
    4
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size:
            raise UnsupportedError("proj_size is not supported; put a Linear behind the network")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        gates, directions = _KINDS[mode][0], 2 if bidirectional else 1
        for k in range(num_layers):
            width = input_size if k == 0 else hidden_size * directions
            for suffix in self._suffixes(k):
                shapes: dict[str, Any] = {
                    "weight_ih": (gates * hidden_size, width),
                    "weight_hh": (gates * hidden_size, hidden_size),
                }
                if bias:
                    shapes |= {"bias_ih": (gates * hidden_size,), "bias_hh": (gates * hidden_size,)}
                for name, shape in shapes.items():
                    setattr(self, f"{name}_{suffix}", Parameter(empty(*shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: the memory layout of parameters makes no difference here."""

    def _suffixes(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"] if self.bidirectional else [f"l{layer}"]

    def forward(self, input: Tensor, hx: Array | None = None) -> Any:
        """Compute the states of the last layer at all steps, and of all layers after the last step.

        `input` is (L, N, input_size), (N, L, input_size) if `batch_first`, or (L, input_size). `hx`, by default zeros,
        is (layers times directions, N, hidden_size), or (layers times directions, hidden_size), or for an LSTM a pair
        of both states. The results have the same forms. RuntimeError for other sizes, ValueError for other numbers of
        dimensions.
        """
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        name, rank = self._get_name(), len(input.shape)
        if rank not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {rank}D instead")
        self._require_width(input)
        x = input.reshape(input.shape[0], 1, input.shape[1]) if rank == 2 else input
        x = x.transpose(0, 1) if self.batch_first and rank == 3 else x
        output, states = self._run(x, self._begin(hx, x, rank == 2))
        if self.batch_first and rank == 3:
            output = output.transpose(0, 1)
        if rank == 2:
            output, states = output.squeeze(1), [s.squeeze(1) for s in states]
        return output, tuple(states) if self.mode == "LSTM" else states[0]

    def _require_width(self, x: Array) -> None:
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )

    def _packed(self, sequence: PackedSequence, hx: Any) -> tuple[PackedSequence, Array | tuple[Array, ...]]:
        """Run packed sequences as padded ones, whose states stay the same after their ends."""
        self._require_width(sequence.data)
        sizes = sequence.batch_sizes.tolist()
        x, order = padded(sequence.data, sizes), sequence.sorted_indices
        if hx is not None and order is not None:
            hx = tuple([h[:, order] for h in hx]) if self.mode == "LSTM" else hx[:, order]
        output, states = self._run(x, self._begin(hx, x, False), sequence.lengths())
        if order is not None:
            states = [state[:, sequence.unsorted_indices] for state in states]
        return sequence._replace(data=packed(output, sizes)), tuple(states) if self.mode == "LSTM" else states[0]

    def _begin(self, hx: Any, x: Array, unbatched: bool) -> list[Array]:
        """Return the states before the first step, one for each part."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        shape = (count, x.shape[1], self.hidden_size)
        if hx is None:
            return [zeros(*shape, dtype=x.dtype) for _ in range(_KINDS[self.mode][1])]
        args = list(hx) if self.mode == "LSTM" else [hx]
        if self.mode == "LSTM" and len(args) != 2:
            raise RuntimeError("LSTM: the state is a pair (h_0, c_0)")
        for state, label in zip(args, ("hidden[0]", "hidden[1]") if self.mode == "LSTM" else ("hidden",)):
            wanted = (count, self.hidden_size) if unbatched else shape
            if tuple(state.shape) != wanted:
                raise RuntimeError(f"Expected {label} size {wanted}, got {list(state.shape)}")
        return [state.reshape(*shape) for state in args]

    def _run(self, x: Array, states: list[Array], lengths: list[int] | None = None) -> tuple[Any, list[Any]]:
        """Return the outputs at all steps, and the states after the last; sequences may have lengths."""
        last: list[list[Any]] = [[] for _ in states]
        state_index = 0
        for k in range(self.num_layers):
            results = []
            for suffix in self._suffixes(k):
                outputs, ended = self._pass(x, [state[state_index] for state in states], suffix, lengths)
                results.append(outputs)
                for part, state in zip(last, ended):
                    part.append(state)
                state_index += 1
            x = _cat(results, -1) if len(results) == 2 else results[0]
            if self.dropout and self.training and k < self.num_layers - 1:
                x = F.dropout(x, self.dropout)
        return x, [_stack(part) for part in last]

    def _pass(self, x: Array, state: object, suffix: str, lengths: list[int] | None = None) -> tuple[Any, Any]:
        """Return the outputs at all steps in one direction of one layer, and the state after the last."""
        step, length = _KINDS[self.mode][2], x.shape[0]
        bias_ih = getattr(self, f"bias_ih_{suffix}") if self.bias else None
        bias_hh = getattr(self, f"bias_hh_{suffix}") if self.bias else None
        weight = getattr(self, f"weight_hh_{suffix}")
        args = F.linear(x, getattr(self, f"weight_ih_{suffix}"), bias_ih)
        backwards = suffix.endswith("_reverse")
        outputs = []
        for k in range(length):
            at = length - 1 - k if backwards else k
            following = step(args[at], state, weight, bias_hh)
            state = following if lengths is None else _until(at, lengths, following, state)
            outputs.append(state[0])
        return _stack(outputs[::-1] if backwards else outputs), state

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        parts += [f"num_layers={self.num_layers}"] if self.num_layers != 1 else []
        parts += [f"bias={self.bias}"] if not self.bias else []
        parts += [f"batch_first={self.batch_first}"] if self.batch_first else []
        parts += [f"dropout={self.dropout}"] if self.dropout else []
        parts += [f"bidirectional={self.bidirectional}"] if self.bidirectional else []
        return ", ".join(parts)


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu, step by step (Elman 1990).

    >>> import tracegrad as tg
    >>> output, h = RNN(3, 4, num_layers=2)(tg.randn(5, 2, 3))
    >>> output.shape, h.shape
    (torch.Size([5, 2, 4]), torch.Size([2, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(
            _kind_of(nonlinearity),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997).

    c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o) tanh(c'), for the gates i, f, g, o of W_ih x + b_ih +
    W_hh h + b_hh. UnsupportedError for `proj_size`.

    >>> import tracegrad as tg
    >>> output, (h, c) = LSTM(3, 4, batch_first=True, bidirectional=True)(tg.randn(2, 5, 3))
    >>> output.shape, h.shape, c.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 2, 4]), torch.Size([2, 2, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """Gated recurrent units (Cho et al. 2014).

    h' = (1 - sigmoid(z)) n + sigmoid(z) h and n = tanh(n_x + sigmoid(r) n_h), for the gates r, z, n of W_ih x + b_ih
    and of W_hh h + b_hh.

    >>> import tracegrad as tg
    >>> output, h = GRU(3, 4)(tg.randn(5, 3))
    >>> output.shape, h.shape
    (torch.Size([5, 4]), torch.Size([1, 4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )


# -- cells ------------------------------------------------------------------------------------------------------------
class _RNNCellBase(Module):
    """One step of a network; the parameters are `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`."""

    _mode: str

    def __init__(self, input_size: int, hidden_size: int, bias: bool, device: DeviceLike, dtype: DTypeLike):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = _KINDS[self._mode][0]
        for name, width in (("weight_ih", input_size), ("weight_hh", hidden_size)):
            setattr(self, name, Parameter(empty(gates * hidden_size, width, device=device, dtype=dtype)))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(gates * hidden_size, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            uniform_(parameter, -bound, bound)

    def forward(self, input: Array, hx: Any = None) -> Any:
        """Compute the state after the step.

        `input` is (N, input_size) or (input_size); the states, by default zeros, are (N, hidden_size) or (hidden_size).
        ValueError for other numbers of dimensions, RuntimeError for other sizes.
        """
        name, rank = self._get_name(), len(input.shape)
        if rank not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {rank}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        _, parts, step = _KINDS[self._mode]
        if hx is None:
            hx = tuple([zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype) for _ in range(parts)])
        elif parts == 1:
            hx = (hx,)
        for k, state in enumerate(hx):
            if len(state.shape) not in (1, 2):
                raise ValueError(f"{name}: Expected hidden to be 1D or 2D, got {len(state.shape)}D instead")
            if state.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{k} has inconsistent hidden_size: got {state.shape[-1]}, expected {self.hidden_size}"
                )
        args = F.linear(input, self.weight_ih, self.bias_ih)
        result = step(args, hx, self.weight_hh, self.bias_hh)
        return result if parts == 2 else result[0]

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}"
            if self.bias
            else (f"{self.input_size}, {self.hidden_size}, bias={self.bias}")
        )


class RNNCell(_RNNCellBase):
    """One step of an `RNN`.

    >>> import tracegrad as tg
    >>> RNNCell(3, 4)(tg.randn(2, 3)).shape
    torch.Size([2, 4])
    """

    _mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        self.__dict__["_mode"] = _kind_of(nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        other = f", nonlinearity={self.nonlinearity}" if self.nonlinearity != "tanh" else ""
        return super().extra_repr() + other


class LSTMCell(_RNNCellBase):
    """One step of an `LSTM`, from a pair (h, c) to the next.

    >>> import tracegrad as tg
    >>> h, c = LSTMCell(3, 4)(tg.randn(2, 3))
    >>> h.shape, c.shape
    (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    _mode = "LSTM"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)


class GRUCell(_RNNCellBase):
    """One step of a `GRU`.

    >>> import tracegrad as tg
    >>> GRUCell(3, 4)(tg.randn(2, 3)).shape
    torch.Size([2, 4])
    """

    _mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike = None, dtype: DTypeLike = None
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype)
