"""The random side of one request: the target's draws by position, and a generator for drafts and coins.

Knows laws and seeds; no model. The target's token at a position depends on the request's seed and that position alone.
"""

import random
from dataclasses import replace

import torch
from torch import Tensor

from engines.sampling import Sampling
from engines.speculation import Speculation
from engines.speculative.distributions import PositionNoise, Seen, adjust, log_law, perturbed, stream_seed
from engines.speculative.drafts import DraftTree


class Draws:
    """What one request draws, and the law that it draws from."""

    def __init__(self, sampling: Sampling, prompt: list[int], vocab_size: int) -> None:
        seed = random.SystemRandom().getrandbits(32) if sampling.seed is None else sampling.seed
        self.sampling = sampling
        self.noise = PositionNoise(seed, vocab_size)
        self.generator = torch.Generator().manual_seed(stream_seed(seed, "drafts"))
        self.seen = Seen(prompt, vocab_size) if sampling.penalizes else None

    def adjusted(self, scores: Tensor, tree: DraftTree) -> Tensor:
        """Scores [1 + N, V] of the bonus token's row and every node's, with bias and penalties."""
        if self.seen is None:
            return adjust(scores, self.sampling)
        paths = [[tree.tokens[on] for on in tree.path(node)] for node in range(len(tree.tokens))]
        return adjust(scores, self.sampling, self.seen.prompt, self.seen.rows([[], *paths]))

    def compared(self, scores: Tensor, tree: DraftTree, generated: int) -> Tensor:
        """What a draw takes the argmax of, from adjusted scores [1 + N, V]; row 0 follows `generated` tokens."""
        noise = None
        if self.sampling.temperature > 0:
            noise = self.noise.rows([generated, *(generated + depth for depth in tree.depths)])
        return perturbed(scores, self.sampling, noise)

    def tokens(self, scores: Tensor, tree: DraftTree, generated: int) -> list[int]:
        """The target's own token after each row of adjusted scores [1 + N, V]."""
        tokens: list[int] = self.compared(scores, tree, generated).argmax(dim=-1).tolist()
        return tokens

    def log_laws(self, scores: Tensor) -> Tensor:
        """Log-probabilities of the target's law, from adjusted scores."""
        return log_law(scores, self.sampling)

    def draft_laws(self, scores: Tensor, speculation: Speculation) -> Tensor:
        """Probabilities [G, V] from which drafts are drawn: the request's cut-offs at the drafts' temperature."""
        temperature = speculation.drafting_temperature(self.sampling.temperature)
        return log_law(scores, replace(self.sampling, temperature=temperature)).exp()

    def keep(self, tokens: list[int]) -> None:
        """Take note of tokens that joined the answer."""
        if self.seen is not None:
            self.seen.add(tokens)


class RoundCoins:
    """The coins of one round (engines/speculative/verification.py)."""

    def __init__(self, tokens: list[int], generator: torch.Generator) -> None:
        self.tokens = tokens
        self.generator = generator

    def token(self, row: int) -> int:
        """The target's own draw after a row."""
        return self.tokens[row]

    def accept(self, probability: float) -> bool:
        """True with this probability."""
        return float(torch.rand((), generator=self.generator)) < probability

    def draw(self, law: Tensor) -> int:
        """A token from the law [V]."""
        return int(torch.multinomial(law, 1, generator=self.generator))
