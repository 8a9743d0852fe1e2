"""What packing is worth: the packed forward against one window a row, which is what it replaces.

Knows decoders and token ids. One window a row: every window is a sequence of its own, its prefix and its block, padded
to the longest of the batch; the prefix is computed as often as there are windows behind it.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engines.alignment.examples import Example
from engines.alignment.objectives import log_streak
from engines.alignment.publish import open_parent
from engines.alignment.stages import DrafterSetup
from engines.alignment.windows import Windows, pad_sequences, uniform_anchors, window_log_probs, window_targets
from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder
from engines.drafters.diffusion import window_mask

TEXT_TOKENS, PROMPT_TOKENS = 300, 60
TIMED, UNTIMED = 5, 1


def one_window_a_row(decoder: Decoder, drafter: DrafterConfig, windows: Windows, window: int) -> Tensor:
    """The same laws as window_log_probs, all places masked, each window in a row of its own: [B, A, G, V]."""
    batch, count = windows.anchors.shape
    width = 1 + window - drafter.logits_shift
    longest = int(windows.anchors.max())
    ids, positions, masks = [], [], []
    for row in range(batch):
        for anchor in windows.anchors[row].tolist():
            padding = longest - anchor
            block = torch.full((width,), drafter.mask_token_id)
            block[0] = windows.ids[row, anchor]
            ids.append(torch.cat((torch.full((padding,), drafter.mask_token_id), windows.ids[row, :anchor], block)))
            places = torch.arange(anchor + width)
            positions.append(torch.cat((torch.zeros(padding, dtype=torch.long), places)))
            masks.append(padded_mask(anchor, width, padding))
    hidden = decoder(torch.stack(ids), torch.stack(positions), torch.stack(masks)[:, None])
    rows = hidden[:, -window:].view(batch, count, window, -1)
    return torch.log_softmax(decoder.logits(rows).float(), dim=-1)


def padded_mask(prefix: int, width: int, padding: int) -> Tensor:
    """The mask of the drafter in use behind `padding` rows that nobody sees: [padding + prefix + width, same]."""
    mask = window_mask(prefix, width, padding, torch.float32)
    mask[:, :padding] = float("-inf")
    # A padding row sees itself alone: one that saw nothing would be undefined.
    alone = torch.full((padding, mask.shape[1]), float("-inf"))
    alone[:, :padding].fill_diagonal_(0.0)
    return torch.cat((alone, mask))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingTimes:
    """Seconds of forward and backward over the same windows, medians of repeated calls."""

    windows: int
    packed_seconds: float
    row_seconds: float

    @property
    def ratio(self) -> float:
        """Windows per second, packed over one a row."""
        return self.row_seconds / self.packed_seconds

    def describe(self) -> str:
        """One line for people."""
        packed, row = self.windows / self.packed_seconds, self.windows / self.row_seconds
        return f"{packed:.0f} windows/s packed, {row:.0f} one a row: {self.ratio:.1f} x ({self.windows} windows a step)"


def time_packing(setup: DrafterSetup, verifier: Path, *, texts: int = 4) -> PackingTimes:
    """Both ways on texts of random tokens, with the setup's parent, window and anchors, in bfloat16 autocast."""
    plan = setup.plan
    start = open_parent(
        setup.parent, verifier, layers=setup.layers, mask_token_id=setup.mask_token_id, window=plan.window
    )
    generator = torch.Generator().manual_seed(plan.seed)
    rows = torch.randint(start.decoder.config.vocab_size, (texts, TEXT_TOKENS), generator=generator).tolist()
    examples = [Example(row[:PROMPT_TOKENS], row[PROMPT_TOKENS:]) for row in rows]
    ids, lengths = pad_sequences(examples, plan.pad_id)
    windows = Windows(ids, lengths, uniform_anchors(examples, plan.anchors, generator))
    targets, valid = window_targets(windows, plan.window)
    shown = torch.zeros(*targets.shape, dtype=torch.bool)

    def seconds(forward: Callable[[], Tensor]) -> float:
        taken = []
        for _ in range(UNTIMED + TIMED):
            begun = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16):
                log_probs = forward()
            log_streak(log_probs.gather(-1, targets[..., None]).squeeze(-1), valid).backward()
            start.decoder.zero_grad()
            taken.append(time.perf_counter() - begun)
        return statistics.median(taken[UNTIMED:])

    return PackingTimes(
        windows=windows.anchors.numel(),
        packed_seconds=seconds(lambda: window_log_probs(start.decoder, start.drafter, windows, plan.window, shown)),
        row_seconds=seconds(lambda: one_window_a_row(start.decoder, start.drafter, windows, plan.window)),
    )
