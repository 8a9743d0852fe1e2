"""From scores to tokens: temperature, and draws that depend on the request's seed and the position alone.

Knows tensors only. A token is drawn by the Gumbel trick, argmax(score / T + noise), noise fixed by (seed, position).
So the token at a position is a function of the target's law there: any lossless rule gives, seed for seed, the very
text that decoding without drafts gives.
"""

import torch
from torch import Tensor

BLOCK = 64


class PositionNoise:
    """Gumbel noise per position of one request: rows [V], made in blocks of positions as they are needed."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.seed = seed
        self.vocab_size = vocab_size
        self.blocks: dict[int, Tensor] = {}

    def rows(self, positions: list[int]) -> Tensor:
        """Noise of the given positions, counted from the first generated token: [len(positions), V].

        Blocks before the smallest position are forgotten: decoding does not go back, and a large V makes them heavy.
        """
        first, last = min(positions) // BLOCK, max(positions) // BLOCK
        known = self.blocks
        self.blocks = {index: known[index] if index in known else self.block(index) for index in range(first, last + 1)}
        if first == last:
            return self.blocks[first][[position % BLOCK for position in positions]]
        return torch.stack([self.blocks[position // BLOCK][position % BLOCK] for position in positions])

    def block(self, index: int) -> Tensor:
        """Noise of BLOCK positions, a function of the seed and the block's place alone."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + index) % 2**63)
        exponential = torch.empty(BLOCK, self.vocab_size).exponential_(generator=generator)
        return -exponential.log()


def target_tokens(scores: Tensor, temperature: float, noise: Tensor | None) -> Tensor:
    """One token drawn from the law of every row.

    Shapes:
        scores:  [N, V] logits
        noise:   [N, V] Gumbel noise; not used at temperature 0, where the token is the argmax
        returns: [N]
    """
    if temperature == 0:
        return scores.argmax(dim=-1)
    if noise is None:
        raise ValueError("temperature > 0 needs noise")
    return (scores.float() / temperature + noise).argmax(dim=-1)


def log_law(scores: Tensor, temperature: float) -> Tensor:
    """Log-probabilities of the law at a temperature > 0, or at 0 of its one-hot limit: [..., V] -> [..., V]."""
    if temperature == 0:
        one_hot = torch.full_like(scores, float("-inf"), dtype=torch.float32)
        return one_hot.scatter(-1, scores.argmax(dim=-1, keepdim=True), 0.0)
    return torch.log_softmax(scores.float() / temperature, dim=-1)
