"""The diffusion drafter: one bidirectional forward over the window gives the marginals of all its places at once.

Knows a decoder and token ids; no sampling, rule or clock. Committed tokens before the bonus token are causal rows, so
their keys and values never depend on a window and are cached exactly; the bonus token and the masks see the cache, the
committed rows and each other. A round costs O(window), whatever the length of the text. With a logits shift of 1 the
row before a place predicts it, so the bonus token's row takes part and the last mask is not needed.
"""

import torch
from torch import Tensor

from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder, KVCache

HIDDEN = float("-inf")


def window_mask(committed: int, width: int, visible: int, dtype: torch.dtype) -> Tensor:
    """Additive mask of a drafter forward: `committed` causal rows, then `width` window rows that see everything.

    Returns:
        [committed + width, visible + committed + width]
    """
    rows = committed + width
    mask = torch.zeros(rows, visible + rows, dtype=dtype)
    mask[:committed, visible:] = torch.full((committed, rows), HIDDEN, dtype=dtype).triu_(1)
    return mask


class DiffusionDrafter:
    """Serves one sequence at a time: `reset` before the first round, then `marginals` once per round."""

    def __init__(self, decoder: Decoder, config: DrafterConfig, window: int, capacity: int) -> None:
        self.decoder = decoder
        self.config = config
        self.window = window
        self.dtype = decoder.embed.weight.dtype
        self.cache = KVCache(decoder.config, 1, capacity + window + 1, self.dtype)
        self.masks = [config.mask_token_id] * (window - config.logits_shift)

    def reset(self) -> None:
        """Start a new sequence."""
        self.cache.reset()

    def marginals(self, tokens: list[int]) -> Tensor:
        """Scores of the window's places after `tokens`, whose last one is the bonus token.

        Shapes:
            returns: [G, V] logits in float32; the mask token can never be proposed
        """
        known = self.cache.length
        committed, width = len(tokens) - 1 - known, 1 + len(self.masks)
        ids = torch.tensor([tokens[known:] + self.masks])
        positions = torch.arange(known, known + committed + width)
        hidden = self.decoder(ids, positions, window_mask(committed, width, known, self.dtype), self.cache)
        self.cache.commit(committed)
        scores = self.decoder.logits(hidden[0, -self.window :]).float()
        scores[:, self.config.mask_token_id] = HIDDEN
        return scores
