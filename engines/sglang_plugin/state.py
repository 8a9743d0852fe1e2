"""What travels with a request between rounds, in a class of SGLang's that its batches and its relay know how to carry.

A round drafts for the next one, right after it knows what it keeps. So when it ends the drafter's cache holds all that
the target's holds, also where the request ends with it and a later one finds its tokens in the radix cache. Fields:

    bonus_tokens  [B]           the last token; in no cache yet
    topk_index    [B, R - 1] or [B, 2 * (R - 1)]  drafted tokens, and for a tree the parents' rows behind them
    topk_p        [B, 1]        nothing; the relay wants it
"""

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.eagle_info import EagleDraftInput, EagleVerifyInput
from torch import Tensor


def carried(bonus: Tensor, drafted: Tensor) -> Any:
    """The state of a batch: last tokens [B] and drafts."""
    return EagleDraftInput(
        bonus_tokens=bonus.to(torch.int32),
        topk_index=drafted.to(torch.int64),
        topk_p=torch.zeros(bonus.numel(), 1, device=bonus.device),
        hidden_states=None,
        capture_hidden_mode=CaptureHiddenMode.NULL,
    )


def forward_input(*, rows: int, window: int, branches: int, mask: Tensor, positions: Tensor, tokens: Tensor) -> Any:
    """What SGLang's attention needs of a forward of `rows` rows per request under a mask of its own."""
    return EagleVerifyInput(
        draft_token=tokens,
        custom_mask=mask,
        positions=positions,
        retrieve_index=None,
        retrieve_next_token=None,
        retrieve_next_sibling=None,
        retrieve_cum_len=None,
        spec_steps=window,
        topk=branches,
        draft_token_num=rows,
        capture_hidden_mode=CaptureHiddenMode.NULL,
        seq_lens_sum=None,
        seq_lens_cpu=None,
    )
