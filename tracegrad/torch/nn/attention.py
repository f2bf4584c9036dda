"""Module of multi-head attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.torch.functions.nn.multi_head_attention import attention_in_batches
from tracegrad.torch.nn.init import xavier_normal_, xavier_uniform_, zeros_
from tracegrad.torch.nn.linear import Linear
from tracegrad.torch.nn.module import Module
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape.tensors.factories import empty
from tracegrad.typing import DTypeLike

if TYPE_CHECKING:
    from tracegrad.typing import Array, DeviceLike


__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads, with projections before and after it (Vaswani et al. 2017).

    In training, weights are dropped with the probability `dropout`. AssertionError if the heads do not divide the
    features.

    >>> import tracegrad as tg
    >>> x = tg.randn(5, 7, 8)
    >>> output, weights = MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([5, 7, 8]), torch.Size([5, 7, 7]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
    ):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def parameter(*shape: int, wanted: bool = True) -> Parameter | None:
            return Parameter(empty(*shape, device=device, dtype=dtype)) if wanted else None

        same = self._qkv_same_embed_dim
        self.register_parameter("q_proj_weight", parameter(embed_dim, embed_dim, wanted=not same))
        self.register_parameter("k_proj_weight", parameter(embed_dim, self.kdim, wanted=not same))
        self.register_parameter("v_proj_weight", parameter(embed_dim, self.vdim, wanted=not same))
        self.register_parameter("in_proj_weight", parameter(3 * embed_dim, embed_dim, wanted=same))
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim, wanted=bias))
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self.register_parameter("bias_k", parameter(1, 1, embed_dim, wanted=add_bias_kv))
        self.register_parameter("bias_v", parameter(1, 1, embed_dim, wanted=add_bias_kv))
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            zeros_(self.in_proj_bias)
            zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            xavier_normal_(self.bias_k)
            xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Array, Array | None]:
        """Compute the output, in the shape of the query, and the weights, (N, L, S).

        The weights are (N, num_heads, L, S) unless `average_attn_weights`, and None unless `need_weights`, which is
        faster.

        Boolean masks are true where attention is not allowed, floating masks are added: `key_padding_mask`, (N, S), and
        `attn_mask`, (L, S) or (N num_heads, L, S). `is_causal` says that the mask is causal.
        """
        weights = self.in_proj_weight
        if not self._qkv_same_embed_dim:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return attention_in_batches(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            weights,
            self.in_proj_bias,
            (self.bias_k, self.bias_v),
            self.add_zero_attn,
            self.dropout if self.training else 0.0,
            (self.out_proj.weight, self.out_proj.bias),
            key_padding_mask,
            need_weights,
            attn_mask,
            average_attn_weights,
            is_causal,
            self.batch_first,
        )
