"""Attention of a forward's rows over its keys: one function for verifier, drafters and training.

Knows tensors only. Letters: B batch, T rows, S key slots, H heads, D head width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST_SCORES = 10_000
"""Scores of one key head from which plain products in bfloat16 are faster on a CPU than torch's fused attention."""
MOST_ROWS = 256
"""Rows up to which all scores are held at once; a long prompt's would be too many."""


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax attention; several query heads may share one of keys and values.

    Shapes:
        q:       [B, H, T, D]
        k, v:    [B, H_kv, S, D]
        mask:    additive, broadcast to [B, H, T, M], for the last M slots; every row sees those before them, and
                 without a mask all
        returns: [B, H, T, D]
    """
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
