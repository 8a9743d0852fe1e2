"""Packed windows: one forward trains many windows of a sequence, each seeing just the prefix that it would see in use.

Knows token ids only. Behind the L rows of the sequences (causal) stand A blocks, one per anchor. A block is laid out as
the drafter's window is (engines/drafters/diffusion.py): the bonus token at the anchor, then masks; its rows see the
sequence before the anchor and the block itself. Letters: B sequences, A anchors, G window, W rows of a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.alignment.examples import Example
from engines.attention import WindowMask
from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Windows:
    """Sequences [B, L] right-padded, their lengths [B], and the anchors [B, A]: places of the bonus tokens."""

    ids: Tensor
    lengths: Tensor
    anchors: Tensor


def pad_sequences(examples: Sequence[Example], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token ids of whole sequences [B, L] and their lengths [B]."""
    rows = [torch.tensor(example.prompt_ids + example.response_ids) for example in examples]
    lengths = torch.tensor([len(row) for row in rows])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id), lengths


def uniform_anchors(examples: Sequence[Example], count: int, generator: torch.Generator) -> Tensor:
    """Anchors drawn evenly from every place of the responses that has a token after it: [B, count]."""
    drawn = torch.rand(len(examples), count, generator=generator)
    first = torch.tensor([len(example.prompt_ids) for example in examples])[:, None]
    places = torch.tensor([len(example.response_ids) - 1 for example in examples])[:, None]
    return first + (drawn * places).long()


def window_targets(windows: Windows, window: int) -> tuple[Tensor, Tensor]:
    """The G tokens after every anchor and whether each lies within the sequence: both [B, A, G]."""
    places = window_places(windows, window)
    valid = places < windows.lengths[:, None, None]
    inside = places.clamp(max=windows.ids.shape[1] - 1)
    return windows.ids.gather(1, inside.flatten(1)).view_as(places), valid


def window_places(windows: Windows, window: int) -> Tensor:
    """Where the G tokens after every anchor stand in their sequence: [B, A, G]."""
    return windows.anchors[..., None] + torch.arange(1, window + 1, device=windows.anchors.device)


def window_log_probs(decoder: Decoder, drafter: DrafterConfig, windows: Windows, window: int, shown: Tensor) -> Tensor:
    """Log-probabilities of all window places in one packed forward.

    Shapes:
        shown:   [B, A, G] bool, places whose token is given in place of a mask (all False in use)
        returns: [B, A, G, V] in float32
    """
    batch, count = windows.anchors.shape
    length, width = windows.ids.shape[1], 1 + window - drafter.logits_shift
    targets, _ = window_targets(windows, window)
    filled = torch.where(shown, targets, drafter.mask_token_id)[..., : width - 1]
    bonus = windows.ids.gather(1, windows.anchors)[..., None]
    blocks = torch.cat((bonus, filled), dim=-1).flatten(1)
    device = windows.ids.device
    places = (windows.anchors[..., None] + torch.arange(width, device=device)).flatten(1)
    positions = torch.cat((torch.arange(length, device=device).expand(batch, length), places), dim=1)
    mask = WindowMask(windows.anchors, length)
    hidden = decoder(torch.cat((windows.ids, blocks), dim=1), positions, mask, skip=length)
    rows = hidden.view(batch, count, width, -1)[:, :, width - window :]
    return torch.log_softmax(decoder.logits(rows).float(), dim=-1)
