"""From scores to laws to tokens: penalties, temperature and cut-offs; draws fixed by the request's seed and position.

Knows tensors only; target and drafter share it. A token is drawn by the Gumbel trick, argmax(log law + noise), noise
fixed by (seed, position). So the token at a position is a function of the target's law there: every rule that follows
the target's own draws gives, seed for seed, the very text that decoding without drafts gives.
Sources: top-p Holtzman et al. (2020); min-p Nguyen et al. (2024); repetition penalty Keskar et al. (2019), section 4.1.
"""

import hashlib
import math

import torch
from torch import Tensor

from engines.sampling import Sampling

BLOCK = 64
NEVER = float("-inf")


def stream_seed(seed: int, stream: str) -> int:
    """The seed of one stream of a request's random numbers: streams of one request have nothing in common.

    32 bits, which is what torch's generator on the CPU makes use of.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:4], "big")


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
        generator = torch.Generator().manual_seed(stream_seed(self.seed, f"noise/{index}"))
        exponential = torch.empty(BLOCK, self.vocab_size).exponential_(generator=generator)
        return -exponential.log()


class Seen:
    """How often each token is in prompt and answer, for the penalties. `rows` adds what stands on a node's path."""

    def __init__(self, prompt: list[int], vocab_size: int) -> None:
        self.prompt = torch.bincount(torch.tensor(prompt, dtype=torch.long), minlength=vocab_size)
        self.answer = torch.zeros_like(self.prompt)

    def add(self, tokens: list[int]) -> None:
        """Take note of tokens that joined the answer."""
        for token in tokens:
            self.answer[token] += 1

    def rows(self, paths: list[list[int]]) -> Tensor:
        """Counts in the answer as each path would leave it: [len(paths), V]."""
        counts = self.answer.repeat(len(paths), 1)
        for row, path in enumerate(paths):
            for token in path:
                counts[row, token] += 1
        return counts


def are_numbers(scores: Tensor) -> bool:
    """Whether scores can be a law: no NaN and no +inf; -inf is a token that cannot come."""
    return bool(scores.amax() < float("inf"))


def adjust(scores: Tensor, sampling: Sampling, prompt: Tensor | None = None, answer: Tensor | None = None) -> Tensor:
    """Scores after logit bias and penalties, before the temperature.

    Shapes:
        scores:  [..., V]
        prompt:  [V] counts in the prompt; needed, as `answer` is, where sampling.penalizes
        answer:  [..., V] counts in the answer before each row
    """
    if sampling.logit_bias:
        tokens, biases = zip(*sampling.logit_bias, strict=True)
        scores = scores.index_add(
            -1, torch.tensor(tokens), torch.tensor(biases).expand(*scores.shape[:-1], len(biases))
        )
    if not sampling.penalizes:
        return scores
    if prompt is None or answer is None:
        raise ValueError("penalties need the counts of the tokens in prompt and answer")
    repeated = (prompt > 0) | (answer > 0)
    weight = torch.full_like(scores, sampling.repetition_penalty)
    scores = torch.where(repeated, torch.where(scores > 0, scores / weight, scores * weight), scores)
    return scores - sampling.presence_penalty * (answer > 0) - sampling.frequency_penalty * answer


def log_law(scores: Tensor, sampling: Sampling) -> Tensor:
    """Log-probabilities of the law that scores stand for: temperature, then top-k, top-p and min-p, each renormalised.

    At temperature 0 the law is the one-hot of the argmax.

    Shapes:
        scores:  [..., V], bias and penalties applied
        returns: [..., V] float32, or float64 for scores of float64
    """
    if sampling.temperature == 0:
        one_hot = torch.full_like(scores, NEVER, dtype=torch.promote_types(scores.dtype, torch.float32))
        return one_hot.scatter(-1, scores.argmax(dim=-1, keepdim=True), 0.0)
    precise = scores if scores.dtype == torch.float64 else scores.float()
    logs = torch.log_softmax(precise / sampling.temperature, dim=-1)
    for cut in (keep_top_k, keep_top_p, keep_min_p):
        logs = cut(logs, sampling)
    return logs


def keep_top_k(logs: Tensor, sampling: Sampling) -> Tensor:
    """The k most likely tokens; of equals at the border the first, as topk has them."""
    if not 0 < sampling.top_k < logs.shape[-1]:
        return logs
    kept = logs.topk(sampling.top_k, dim=-1)
    return torch.full_like(logs, NEVER).scatter(-1, kept.indices, torch.log_softmax(kept.values, dim=-1))


def keep_top_p(logs: Tensor, sampling: Sampling) -> Tensor:
    """The fewest most likely tokens that hold p of the probability."""
    if sampling.top_p == 1:
        return logs
    ordered, order = logs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    kept = ordered.masked_fill(before >= sampling.top_p, NEVER)
    return torch.full_like(logs, NEVER).scatter(-1, order, torch.log_softmax(kept, dim=-1))


def keep_min_p(logs: Tensor, sampling: Sampling) -> Tensor:
    """Tokens of at least min_p times the probability of the most likely one."""
    if sampling.min_p == 0:
        return logs
    floor = logs.amax(dim=-1, keepdim=True).exp() * sampling.min_p
    return torch.log_softmax(logs.masked_fill(logs.exp() < floor, NEVER), dim=-1)


def border_gap(scores: Tensor, sampling: Sampling, token: int) -> float:
    """How far log-probabilities would have to move for a cut-off to keep a token that it drops, or drop one it keeps.

    That is the distance to the nearest token beyond the border, or, where it is nearer, to the border itself: the floor
    of min-p; in top-p the place of a token above which the probability is near p. Moving every score by e moves the
    log-odds of that probability by 2 e at most. Infinite without a cut-off.

    Shapes:
        scores: [V], bias and penalties applied
    """
    if sampling.temperature == 0:
        return math.inf
    logs = torch.log_softmax(scores.double() / sampling.temperature, dim=-1)
    gaps = [math.inf]
    for cut in (keep_top_k, keep_top_p, keep_min_p):
        if cut is keep_top_p and sampling.top_p < 1:
            ordered = logs.sort(descending=True).values
            above = (ordered.exp().cumsum(dim=-1) - ordered.exp()).clamp(0.0, 1.0)
            to_border = (torch.logit(above) - math.log(sampling.top_p / (1 - sampling.top_p))).abs() / 2
            gaps += torch.maximum(to_border, (ordered - logs[token]).abs()).tolist()
        if cut is keep_min_p and sampling.min_p > 0:
            gaps.append(abs(float(logs[token] - logs.amax()) - math.log(sampling.min_p)))
        left = cut(logs, sampling)
        beyond = logs[((left > NEVER) != (left[token] > NEVER)) & (logs > NEVER)]
        gaps += (logs[token] - beyond).abs().tolist()
        logs = left
    return min(gaps)


def perturbed(scores: Tensor, sampling: Sampling, noise: Tensor | None) -> Tensor:
    """Scores whose argmax is a draw from the law of every row.

    Shapes:
        scores:  [N, V], bias and penalties applied
        noise:   [N, V] Gumbel noise; not used at temperature 0, where a draw is the argmax
        returns: [N, V]
    """
    if sampling.temperature == 0:
        return scores
    if noise is None:
        raise ValueError("temperature > 0 needs noise")
    plain = sampling.top_k == 0 and sampling.top_p == 1 and sampling.min_p == 0
    # The argmax does not care for a law's normalisation.
    logs = scores.float() / sampling.temperature if plain else log_law(scores, sampling)
    return logs + noise
