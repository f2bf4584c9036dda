"""Transformer encoders and decoders: layers of attention and two linear layers (Vaswani et al. 2017).

Inputs are (L, N, d_model), with the batch first if `batch_first`, or without a batch. Masks are as for
`MultiheadAttention`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.nn import nn_functional as F
from tracegrad.torch.nn.attention import MultiheadAttention
from tracegrad.torch.nn.container import ModuleList
from tracegrad.torch.nn.dropout import Dropout
from tracegrad.torch.nn.init import xavier_uniform_
from tracegrad.torch.nn.linear import Linear
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.normalization import LayerNorm
from tracegrad.torch.tape.tensors.dtypes import get_default_dtype
from tracegrad.torch.tape.tensors.factories import from_numpy
from tracegrad.typing import Array

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import DeviceLike, DTypeLike


__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

_relu = FUNCTIONS["relu"]
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": _relu, "gelu": F.gelu}


def _activation(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    if not isinstance(activation, str):
        return activation
    if activation not in _ACTIVATIONS:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return _ACTIVATIONS[activation]


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


class _Layer(Module):
    """Common part of both kinds of layers: self-attention, and two linear layers."""

    _norms: int

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Array], Array] = _relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        attention = (d_model, nhead, dropout, bias)
        self.self_attn = MultiheadAttention(*attention, batch_first=batch_first, device=device, dtype=dtype)
        if self._norms == 3:
            self.multihead_attn = MultiheadAttention(*attention, batch_first=batch_first, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, dtype=dtype)
        self.norm_first = norm_first
        for k in range(1, self._norms + 1):
            setattr(self, f"norm{k}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        for k in range(1, self._norms + 1):
            setattr(self, f"dropout{k}", Dropout(dropout))
        self.activation = _activation(activation)

    def _feed_forward(self, x: Array) -> Array:
        result: Array = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return result

    def _attend(
        self, attention: Module, x: Array, memory: Array, masks: tuple[Array | None, Array | None, bool]
    ) -> Array:
        mask, padding, causal = masks
        result: Array = attention(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=causal
        )[0]
        return result

    def _attend_to_itself(self, x: Array, masks: tuple[Array | None, Array | None, bool]) -> Array:
        mask, padding, causal = masks
        result: Array = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=causal
        )[0]
        return result


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network; each is added to its input and normalized.

    Source: Vaswani et al. 2017.

    >>> import tracegrad as tg
    >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(tg.randn(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    _norms = 2

    def forward(
        self,
        src: Array,
        src_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
    ) -> Array:
        """Return the output, in the shape of `src`."""
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self.dropout1(self._attend_to_itself(self.norm1(src), masks))
            output: Array = x + self.dropout2(self._feed_forward(self.norm2(x)))
            return output
        x = self.norm1(src + self.dropout1(self._attend_to_itself(src, masks)))
        result: Array = self.norm2(x + self.dropout2(self._feed_forward(x)))
        return result


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward network.

    Each is added to its input and normalized. Source: Vaswani et al. 2017.

    >>> import tracegrad as tg
    >>> TransformerDecoderLayer(8, 2, 16, batch_first=True)(tg.randn(3, 5, 8), tg.randn(3, 7, 8)).shape
    torch.Size([3, 5, 8])
    """

    _norms = 3

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Array:
        """Return the output, in the shape of `tgt`."""
        self_masks = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        memory_masks = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = tgt + self.dropout1(self._attend_to_itself(self.norm1(tgt), self_masks))
            x = x + self.dropout2(self._attend(self.multihead_attn, self.norm2(x), memory, memory_masks))
            output: Array = x + self.dropout3(self._feed_forward(self.norm3(x)))
            return output
        x = self.norm1(tgt + self.dropout1(self._attend_to_itself(tgt, self_masks)))
        x = self.norm2(x + self.dropout2(self._attend(self.multihead_attn, x, memory, memory_masks)))
        result: Array = self.norm3(x + self.dropout3(self._feed_forward(x)))
        return result


class TransformerEncoder(Module):
    """Copies of an encoder layer one after the other, and a normalization if one is passed.

    >>> import tracegrad as tg
    >>> TransformerEncoder(TransformerEncoderLayer(8, 2, 16), 2)(tg.randn(5, 3, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(encoder_layer, num_layers), num_layers, norm

    def forward(
        self,
        src: Array,
        mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool | None = None,
    ) -> Array:
        """Return the output, in the shape of `src`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer one after the other, and a normalization if one is passed.

    >>> import tracegrad as tg
    >>> TransformerDecoder(TransformerDecoderLayer(8, 2, 16), 2)(tg.randn(5, 3, 8), tg.randn(7, 3, 8)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(decoder_layer, num_layers), num_layers, norm

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Array:
        """Return the output, in the shape of `tgt`."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                bool(tgt_is_causal),
                memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder, and decoder that attends to the encoder's output; both end with a normalization.

    Source: Vaswani et al. 2017.

    >>> import tracegrad as tg
    >>> model = Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(tg.randn(3, 7, 8), tg.randn(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Array], Array] = _relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        of_layer = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
        )

        def norm() -> Module:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(*of_layer), num_encoder_layers, norm())
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(*of_layer), num_decoder_layers, norm())
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if len(parameter.shape) > 1:
                xavier_uniform_(parameter)

    def forward(
        self,
        src: Array,
        tgt: Array,
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Array:
        """Return the output, in the shape of `tgt`. RuntimeError for another number of features, or of examples."""
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        batch = 0 if self.batch_first else 1
        if len(src.shape) == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        result: Array = self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )
        return result

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: DeviceLike = None, dtype: DTypeLike = None) -> Tensor:
        """Return the causal mask: 0 up to each position, and -inf after it."""
        kind = get_default_dtype() if dtype is None else dtype
        return from_numpy(np.triu(np.full((sz, sz), -math.inf, kind), 1))
