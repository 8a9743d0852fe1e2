"""Attention by plain products against torch's fused one, which takes all that is small."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engines.attention import LEAST_SCORES, attend

BFLOAT16_STEP = 2**-8
"""Relative distance of two neighbouring numbers; values here are about 1, and means of many of them smaller."""


def drawn(lanes: int, heads: int, kv_heads: int, rows: int, slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, and keys and values as slices of a longer cache."""
    torch.manual_seed(0)
    q = torch.randn(lanes, heads, rows, 16)
    k, v = torch.randn(2, lanes, kv_heads, slots + 9, 16)
    return q.bfloat16(), k.bfloat16()[:, :, :slots], v.bfloat16()[:, :, :slots]


def exact(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """The same numbers attended to in float64."""
    mask = None if mask is None else mask.double()
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask, enable_gqa=True)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_plain_products_give_what_exact_arithmetic_gives(heads: int, kv_heads: int, masked: bool) -> None:
    rows, slots = 16, LEAST_SCORES // 8
    q, k, v = drawn(1, heads, kv_heads, rows, slots)
    mask = torch.full((rows, slots), float("-inf"), dtype=q.dtype).triu_(1 + slots - rows) if masked else None

    attended = attend(q, k, v, mask)

    assert (attended - exact(q, k, v, mask)).abs().max() < 4 * BFLOAT16_STEP


@pytest.mark.parametrize("rows", [4, 16])
def test_slots_before_a_narrow_mask_are_seen_by_every_row(rows: int) -> None:
    slots = LEAST_SCORES // 8
    q, k, v = drawn(1, 4, 4, rows, slots)
    narrow = torch.full((rows, rows), float("-inf"), dtype=q.dtype).triu_(1)

    attended = attend(q, k, v, narrow)

    whole = torch.cat((torch.zeros(rows, slots - rows, dtype=q.dtype), narrow), dim=1)
    assert (attended - exact(q, k, v, whole)).abs().max() < 4 * BFLOAT16_STEP


def test_every_lane_has_its_own_mask() -> None:
    rows, slots = 16, LEAST_SCORES // 8
    q, k, v = drawn(3, 4, 2, rows, slots)
    mask = torch.zeros(3, 1, rows, slots, dtype=q.dtype)
    mask[1, ..., 100:] = mask[2, ..., 50:] = float("-inf")

    attended = attend(q, k, v, mask)

    assert (attended - exact(q, k, v, mask)).abs().max() < 4 * BFLOAT16_STEP
