"""Attention of a forward's rows over its keys: one function for verifier, drafters and training.

Knows tensors only. Letters: B batch, T rows, S key slots, H heads, D head width; A windows of W rows behind a sequence
of L rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engines.cache import HIDDEN

LEAST_SCORES = 10_000
"""Scores of one key head from which plain products in bfloat16 are faster on a CPU than torch's fused attention."""
MOST_ROWS = 256
"""Rows up to which all scores are held at once; a long prompt's would be too many."""


@dataclass(frozen=True, slots=True)
class WindowMask:
    """Causal rows of a sequence, then windows: each sees the sequence before its anchor, itself, and no other window.

    anchors:    [B, A] places of the sequence where the windows begin
    length:     L
    """

    anchors: Tensor
    length: int


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | WindowMask | None) -> Tensor:
    """Softmax attention; several query heads may share one of keys and values.

    Shapes:
        q:       [B, H, T, D]
        k, v:    [B, H_kv, S, D]
        mask:    additive, broadcast to [B, H, T, M], for the last M slots; every row sees those before them, and
                 without a mask all; or a WindowMask, where q may begin behind the sequence
        returns: [B, H, T, D]
    """
    if isinstance(mask, WindowMask):
        return attend_windows(q, k, v, mask)
    batch, heads, rows, width = q.shape
    kv_heads, slots = k.shape[1], k.shape[2]
    shared = heads // kv_heads
    if k.dtype != torch.bfloat16 or rows > MOST_ROWS or shared * rows * slots < LEAST_SCORES:
        if mask is not None and mask.shape[-1] < slots:
            mask = F.pad(mask, (slots - mask.shape[-1], 0))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared > 1)
    # Heads that share keys are rows of one product. It would copy a slice of a cache, and transposed: slower than now.
    scaled = (q * width**-0.5).reshape(batch, kv_heads, shared * rows, width)
    scores = (scaled @ k.contiguous().mT).view(batch, heads, rows, slots)
    if mask is not None:
        scores[..., -mask.shape[-1] :] += mask
    weights = torch.softmax(scores, dim=-1).view(batch, kv_heads, shared * rows, slots)
    return (weights @ v).view(batch, heads, rows, width)


def attend_windows(q: Tensor, k: Tensor, v: Tensor, mask: WindowMask) -> Tensor:
    """Attention of packed windows: no score is computed that the mask would take away, but for prefixes' ends."""
    length, (batch, count) = mask.length, mask.anchors.shape
    shared = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(shared, dim=1) for each in (k, v)) if shared > 1 else (k, v)
    heads, width = k.shape[1], k.shape[3]
    begun = q.shape[2] - (k.shape[2] - length)
    blocks = (batch, heads, count, -1, width)
    keys, values = k[:, :, length:].reshape(blocks), v[:, :, length:].reshape(blocks)
    scaled = q[:, :, begun:] * width**-0.5
    # One product for the prefixes of all windows, since they share their sequence; one a window for its own rows.
    before = (scaled @ k[:, :, :length].mT).view(*keys.shape[:-1], length)
    unseen = torch.arange(length, device=k.device) >= mask.anchors[:, None, :, None, None]
    own = scaled.reshape(blocks) @ keys.mT
    weights = torch.softmax(torch.cat((before.masked_fill(unseen, HIDDEN), own), dim=-1), dim=-1).to(v.dtype)
    read = weights[..., :length].reshape(batch, heads, -1, length) @ v[:, :, :length]
    attended = read + (weights[..., length:] @ values).view_as(read)
    if not begun:
        return attended
    sequence = F.scaled_dot_product_attention(q[:, :, :begun], k[:, :, :length], v[:, :, :length], is_causal=True)
    return torch.cat((sequence, attended), dim=2)
