"""The diffusion drafter: bidirectional forwards over the window give the marginals of all its places at once.

Knows a decoder and token ids; no rule and no clock. Two ways to look at the prefix:
`causal` (ours): committed tokens before the bonus token are causal rows, so their keys and values never depend on a
window and are cached exactly; the bonus token and the masks see the cache, the committed rows and each other. A round
costs O(window), whatever the length of the text.
`full` (stock checkpoints of Dream, DiffuCoder, DiffuLLaMA): every row sees every row, so each round starts anew.
With a logits shift of 1 the row before a place predicts it, so the bonus token's row takes part and the last mask is
not needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.cache import HIDDEN, KVCache, stack_masks
from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder, prefill
from engines.drafters.contract import Draft, Prefix, choose_draft, shape_draft
from engines.pace import Pace
from engines.speculation import Speculation

TYPICAL_COMMITTED = 6
"""Rows that a round adds to the drafter's prefix, where it is rehearsed: about an accepted streak."""


def window_mask(committed: int, width: int, visible: int, dtype: torch.dtype) -> Tensor:
    """Additive mask of a drafter forward: `committed` causal rows, then `width` window rows that see everything.

    Returns:
        [committed + width, visible + committed + width]
    """
    rows = committed + width
    mask = torch.zeros(rows, visible + rows, dtype=dtype)
    mask[:committed, visible:] = torch.full((committed, rows), HIDDEN, dtype=dtype).triu_(1)
    return mask


@dataclass(slots=True, kw_only=True)
class Denoising:
    """The windows of all lanes while they are denoised. B lanes, G places, V vocabulary.

    shown:  [B, G] places whose token is settled
    tokens: [B, G] these tokens, masks elsewhere
    scores: [B, G, V] marginals; of a settled place those that settled it
    """

    shown: Tensor
    tokens: Tensor
    scores: Tensor

    def settle(self, share: float) -> None:
        """Settle the surest places, until `share` of all are, on their most likely token."""
        sure = torch.softmax(self.scores, dim=-1).amax(dim=-1).masked_fill(self.shown, 2.0)
        places = sure.topk(round(share * sure.shape[1]), dim=-1).indices
        self.shown.scatter_(1, places, True)
        self.tokens = torch.where(self.shown, self.scores.argmax(dim=-1), self.tokens)

    def update(self, scores: Tensor) -> None:
        """Take the scores of another forward for the places that are not settled."""
        self.scores = torch.where(self.shown[..., None], self.scores, scores)


class DiffusionDrafter:
    """A masked-diffusion model with one cache lane per sequence; without prefix_cache each forward starts anew."""

    def __init__(
        self,
        decoder: Decoder,
        config: DrafterConfig,
        window: int,
        capacity: int,
        lanes: int = 1,
        *,
        prefix_cache: bool = True,
    ) -> None:
        self.decoder, self.config, self.window = decoder, config, window
        self.prefix_cache = prefix_cache
        # A lane far ahead of others is padded to their rows: an accepted run and a window at most.
        # In the weights' number format: rows by the dozen over long texts are faster in bfloat16 (docs/LOG.md).
        self.cache = KVCache(decoder.config, lanes, capacity + 2 * window + 2, decoder.embed.weight.dtype)

    @property
    def is_cached(self) -> bool:
        """Whether committed tokens are read once."""
        return self.prefix_cache and self.config.prefix == "causal"

    def start(self, lane: int, prompt: list[int]) -> None:
        """A new sequence takes the lane: its prompt is read."""
        self.cache.lengths[lane] = 0
        if self.is_cached:
            prefill(self.decoder, self.cache, lane, prompt)

    def marginals(self, texts: Sequence[list[int]], steps: int = 1) -> Tensor:
        """Scores of the window's places after each text, whose last token is the bonus token.

        Shapes:
            returns: [B, G, V] logits in float32; the mask token can never be proposed
        """
        shape = (len(texts), self.window)
        masks = torch.full(shape, self.config.mask_token_id)
        windows = Denoising(shown=torch.zeros(shape, dtype=torch.bool), tokens=masks, scores=self.scores(texts, masks))
        for step in range(1, steps):
            windows.settle(step / steps)
            windows.update(self.scores(texts, windows.tokens))
        return windows.scores

    def scores(self, texts: Sequence[list[int]], places: Tensor) -> Tensor:
        """One denoising forward with the given tokens in the window's places [B, G]: [B, G, V]."""
        window = places[:, : self.window - self.config.logits_shift].tolist()
        if self.config.prefix == "causal":
            hidden = self.forward_cached(texts, window)
        else:
            hidden = torch.stack([self.forward_all(text + row) for text, row in zip(texts, window, strict=True)])
        scores = self.decoder.logits(hidden).float()
        scores[..., self.config.mask_token_id] = HIDDEN
        return scores

    def forward_cached(self, texts: Sequence[list[int]], window: list[list[int]]) -> Tensor:
        """Hidden states that predict the window's places, [B, G, hidden]; commits all tokens but the bonus token."""
        cache, width = self.cache, 1 + len(window[0])
        cache.active = range(len(texts))
        if not self.is_cached:
            cache.lengths[: len(texts)] = [0] * len(texts)
        known = cache.lengths[: len(texts)]
        ids = [text[before:] + places for text, before, places in zip(texts, known, window, strict=True)]
        lengths = torch.tensor([len(row) for row in ids])
        rows = int(lengths.max())
        padded = torch.tensor([row + [self.config.mask_token_id] * (rows - len(row)) for row in ids])
        positions = torch.tensor(known)[:, None] + torch.arange(rows)
        # One lane's rows all see what is cached, so their mask leaves that out.
        visible = known if len(texts) > 1 else [0]
        masks = [
            window_mask(len(row) - width, width, seen, cache.dtype) for row, seen in zip(ids, visible, strict=True)
        ]
        mask = stack_masks(masks, cache.end + rows) if len(texts) > 1 else masks[0]
        skip = int(lengths.min()) - self.window
        hidden: Tensor = self.decoder(padded, positions, mask, cache, skip=skip)
        for lane, row in enumerate(ids):
            cache.lengths[lane] += len(row) - width
        if len(ids) == 1:
            return hidden
        wanted = lengths[:, None] - skip + torch.arange(-self.window, 0)
        return torch.take_along_dim(hidden, wanted[..., None], dim=1)

    def forward_all(self, ids: list[int]) -> Tensor:
        """The same for one text without a cache, [G, hidden]."""
        rows = len(ids)
        hidden: Tensor = self.decoder(torch.tensor([ids]), torch.arange(rows), skip=rows - self.window)[0]
        return hidden


class DiffusionDrafting:
    """A diffusion drafter at work for an arm (engines/drafters/contract.py). `pace` is for arms with `auto`."""

    def __init__(self, drafter: DiffusionDrafter, speculation: Speculation) -> None:
        self.drafter, self.speculation = drafter, speculation
        self.pace: Pace | None = None

    def start(self, prefix: Prefix) -> None:
        """A new sequence takes its lane."""
        self.drafter.start(prefix.lane, prefix.prompt)

    def move(self, source: int, target: int) -> None:
        """A lane's sequence goes on in another lane."""
        self.drafter.cache.move(source, target)

    def clear(self, lane: int) -> None:
        """Forget a lane whose scores were not numbers."""
        self.drafter.cache.clear(lane)

    def rewind(self, lane: int, length: int) -> None:
        """Keep at most the first `length` tokens of a lane."""
        self.drafter.cache.lengths[lane] = min(length, self.drafter.cache.lengths[lane])

    def propose(self, prefixes: Sequence[Prefix]) -> list[Draft]:
        """A draft of the arm's shape for each sequence."""
        marginals = self.drafter.marginals([prefix.text for prefix in prefixes], self.speculation.steps)
        return [self.shape(prefix, scores) for prefix, scores in zip(prefixes, marginals, strict=True)]

    def shape(self, prefix: Prefix, marginals: Tensor) -> Draft:
        """The draft that marginals [G, V] make for one sequence."""
        if self.pace:
            return choose_draft(marginals, self.speculation, self.pace, prefix.draws.sampling.temperature)
        return shape_draft(marginals, self.speculation, prefix.draws)

    def rehearse(self, context: int) -> None:
        """One round's forwards after `context` tokens."""
        self.drafter.cache.lengths[0] = max(0, context - 1 - TYPICAL_COMMITTED)
        self.drafter.marginals([[0] * context], self.speculation.steps)
