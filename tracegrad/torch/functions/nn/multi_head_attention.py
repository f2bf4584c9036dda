"""Multi-head attention with input and output projections: the function, and the form that the module calls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.elementwise.table import add, multiply, where
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.shape.linear import broadcast_to, pad, reshape, transpose
from tracegrad.torch.functions.core.registry import FUNCTIONS
from tracegrad.torch.functions.math import reductions
from tracegrad.torch.functions.nn.activations import softmax
from tracegrad.torch.functions.nn.attention import scaled_dot_product_attention
from tracegrad.torch.functions.nn.dropout import dropout
from tracegrad.torch.functions.nn.linear_layers import linear
from tracegrad.typing import Array, DTypeLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def multi_head_attention_forward(
    query: Array,
    key: object,
    value: Array,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: object,
    in_proj_bias: object,
    bias_k: object,
    bias_v: object,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: object,
    out_proj_bias: object,
    training: bool = True,
    key_padding_mask: object = None,
    need_weights: bool = True,
    attn_mask: object = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: object = None,
    k_proj_weight: object = None,
    v_proj_weight: object = None,
    static_k: object = None,
    static_v: object = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Compute attention of several heads with input and output projections (Vaswani et al. 2017).

    The output has the shape of the query. The weights are (N, L, S) or (L, S) with `average_attn_weights`, (N, heads,
    L, S) otherwise, and None without `need_weights`. UnsupportedError for `static_k` and `static_v`.
    """
    if static_k is not None or static_v is not None:
        raise refuse("multi_head_attention_forward with static_k or static_v", "project keys and values by weights")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else in_proj_weight
    return attention_in_batches(
        query,
        key,
        value,
        embed_dim_to_check,
        num_heads,
        weights,
        in_proj_bias,
        (bias_k, bias_v),
        add_zero_attn,
        dropout_p if training else 0.0,
        (out_proj_weight, out_proj_bias),
        key_padding_mask,
        need_weights,
        attn_mask,
        average_attn_weights,
        is_causal,
        batch_first=False,
    )


def attention_in_batches(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_heads: int,
    weights: Any,
    bias: Any,
    extra: tuple[Any, Any],
    add_zero: bool,
    dropout_p: float,
    out: tuple[object, object],
    key_padding_mask: Any,
    need_weights: bool,
    attn_mask: Any,
    average: bool,
    is_causal: bool,
    batch_first: bool,
) -> tuple[Array, Array | None]:
    """Compute `multi_head_attention_forward`, of (N, L, E) if `batch_first`; `weights` is one matrix or three."""
    _check_attention(query, key, value, embed_dim, num_heads, key_padding_mask, attn_mask, is_causal, weights)
    unbatched = len(query.shape) == 2
    args = (query,) if query is key and key is value else (query, key, value)
    moved = [_batched(x, unbatched, batch_first) for x in arrays(*args)]
    projected = _projections(moved, weights, bias)
    mask = None if is_causal and key_padding_mask is None and not need_weights else attn_mask
    causal = is_causal and mask is None
    q, k, v = (_heads(x, num_heads) for x in _longer(projected, extra, add_zero))
    n, _, length, size = q.shape
    mask = _mask(mask, key_padding_mask, (n, num_heads, length, k.shape[2]), q.dtype)
    attended, shares = _attended(q, k, v, mask, dropout_p, causal, need_weights)
    joined = reshape(transpose(attended, perm=(0, 2, 1, 3)), shape=(n, length, num_heads * size))
    result = linear(joined, *out)
    if not batch_first or unbatched:
        result = result[0] if unbatched else transpose(result, perm=(1, 0, 2))
    if shares is not None:
        shares = reductions.mean(shares, 1) if average else shares
        shares = shares[0] if unbatched else shares
    return result, shares


def _check_attention(
    query: Array,
    key: Array,
    value: Array,
    embed_dim: int,
    num_heads: int,
    key_padding_mask: Array | None,
    attn_mask: Operand | None,
    is_causal: bool,
    weights: Array | tuple[Array, ...],
) -> None:
    rank = len(query.shape)
    if rank not in (2, 3):
        raise AssertionError(
            located(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
        )
    if len(key.shape) != rank or len(value.shape) != rank:
        kind = "batched" if rank == 3 else "unbatched"
        raise AssertionError(
            located(
                f"For {kind} ({rank}-D) `query`, expected `key` and `value` to be {rank}-D but found "
                f"{len(key.shape)}-D and {len(value.shape)}-D tensors respectively"
            )
        )
    if query.shape[-1] != embed_dim:
        raise AssertionError(located(f"was expecting embedding dimension of {embed_dim}, but got {query.shape[-1]}"))
    if embed_dim % num_heads:
        raise AssertionError(located(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}"))
    if key.shape[:-1] != value.shape[:-1] or (not isinstance(weights, tuple) and key.shape != value.shape):
        raise AssertionError(located(f"key shape {key.shape} does not match value shape {value.shape}"))
    if key_padding_mask is not None and len(key_padding_mask.shape) != rank - 1:
        raise AssertionError(
            located(
                f"For {'batched' if rank == 3 else 'unbatched'} ({rank}-D) `query`, expected `key_padding_mask` to be "
                f"`None` or {rank - 1}-D but found {len(key_padding_mask.shape)}-D tensor instead"
            )
        )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            located(
                "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                "`generate_square_subsequent_mask` to create this mask."
            )
        )


def _batched(x: Array, unbatched: bool, batch_first: bool) -> Array:
    if unbatched:
        return reshape(x, shape=(1, *x.shape))
    return x if batch_first else transpose(x, perm=(1, 0, 2))


def _projections(inputs: list[Array], weights: Array | tuple[Array, ...], bias: Array) -> list[Operand]:
    """Project query, key and value; identical arguments are projected together."""
    size = (bias if bias is not None else weights[0] if isinstance(weights, tuple) else weights).shape[0]
    third = size // 3 if bias is not None or not isinstance(weights, tuple) else size
    if len(inputs) == 1 and not isinstance(weights, tuple):
        whole = linear(inputs[0], weights, bias)
        return [whole[..., k * third : (k + 1) * third] for k in range(3)]
    sections = [slice(k * third, (k + 1) * third) for k in range(3)]
    each = weights if isinstance(weights, tuple) else [weights[section] for section in sections]
    biases = [None] * 3 if bias is None else [bias[section] for section in sections]
    return [linear(x, w, b) for x, w, b in zip(inputs if len(inputs) == 3 else inputs * 3, each, biases)]


def _longer(projected: list[Any], extra: tuple[Any, Any], add_zero: bool) -> list[Array]:
    """Append positions to key and value: one of parameters, and one of zeros."""
    q, k, v = projected
    if extra[0] is not None:
        k, v = (
            FUNCTIONS["cat"]([x, broadcast_to(extra_row, shape=(x.shape[0], 1, x.shape[2]))], 1)
            for x, extra_row in zip((k, v), extra)
        )
    if add_zero:
        k, v = (FUNCTIONS["cat"]([x, multiply(x[:, :1], 0.0)], 1) for x in (k, v))
    return [q, k, v]


def _heads(x: Array, count: int) -> Array:
    """Split (N, L, E) into heads: (N, heads, L, E / heads)."""
    n, length, size = x.shape
    return transpose(reshape(x, shape=(n, length, count, size // count)), perm=(0, 2, 1, 3))


def _mask(attn_mask: object, key_padding_mask: Operand | None, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
    """Return the mask that is added to the scores, of the shape (N, heads, L, S) or one that broadcasts to it."""
    n, heads, length, count = shape
    terms = []
    if attn_mask is not None:
        (mask,) = arrays(attn_mask)
        args = mask.shape[-1]
        if mask.shape not in ((length, args), (n * heads, length, args)):
            wanted = (length, count) if len(mask.shape) == 2 else (n * heads, length, count)
            raise RuntimeError(
                located(f"The shape of the {len(mask.shape)}D attn_mask is {mask.shape}, but should be {wanted}.")
            )
        batch_shape = (1, 1) if len(mask.shape) == 2 else (n, heads)
        terms.append(reshape(mask, shape=(*batch_shape, length, args)))
    if key_padding_mask is not None:
        (mask,) = arrays(key_padding_mask)
        terms.append(reshape(mask, shape=(n, 1, 1, mask.shape[-1])))
    result = None
    for term in terms:
        term = where(term, np.array(-math.inf, dtype), np.array(0, dtype)) if term.dtype.kind == "b" else term
        missing = count - term.shape[-1]
        if missing:
            term = pad(term, low=(0, 0, 0, 0), high=(0, 0, 0, missing), interior=(0, 0, 0, 0), value=0.0)
        result = term if result is None else add(result, term)
    return result


def _attended(q: Array, k: Array, v: Array, mask: Array, dropout_p: float, causal: bool, need_weights: bool) -> Any:
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, dropout_p, causal), None
    scores = matmul(multiply(q, math.sqrt(1.0 / q.shape[-1])), matrix_transpose(k))
    shares = softmax(scores if mask is None else add(scores, mask), -1)
    shares = dropout(shares, dropout_p) if dropout_p else shares
    return matmul(shares, v), shares
