"""The frozen verifier's own continuations of prompts, decoded in batches.

Knows a decoder and prompts as token ids. A batch holds prompts of any lengths, padded on the left; prompts of about one
length in a row waste the least.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engines.alignment.examples import Example
from engines.cache import KVCache
from engines.decoder import Decoder, causal_mask
from engines.sampling import Sampling
from engines.speculative.distributions import perturbed

HIDDEN = float("-inf")


def left_padded(prompts: Sequence[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Prompts as one tensor [B, P] and the number of padding tokens of each [B]."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad_id] * (longest - len(prompt)) + prompt for prompt in prompts])
    return ids, torch.tensor([longest - len(prompt) for prompt in prompts])


def draw(scores: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One token per row of scores [B, V]."""
    noise = -torch.empty(scores.shape).exponential_(generator=generator).log() if temperature else None
    return perturbed(scores, Sampling(temperature=temperature), noise).argmax(dim=-1)


@torch.inference_mode()
def continue_batch(
    decoder: Decoder,
    prompts: Sequence[list[int]],
    *,
    temperature: float,
    max_tokens: int,
    generator: torch.Generator,
    pad_id: int,
    end_id: int,
) -> list[list[int]]:
    """Continuations of the prompts, each with its end token where it has one within `max_tokens`."""
    ids, padding = left_padded(prompts, pad_id)
    batch, width = ids.shape
    dtype = decoder.embed.weight.dtype
    cache = KVCache(decoder.config, batch, width + max_tokens, dtype)
    slots = torch.arange(width + max_tokens)
    visible = torch.zeros(batch, 1, 1, len(slots), dtype=dtype).masked_fill_(
        (slots < padding[:, None])[:, None, None], HIDDEN
    )
    # A padding row sees itself alone: a row that saw nothing would be undefined, and spoil what is cached.
    prefill = (visible[..., :width] + causal_mask(width, dtype)).masked_fill_(torch.eye(width, dtype=torch.bool), 0.0)
    hidden = decoder(ids, (slots[:width] - padding[:, None]).clamp(min=0), prefill, cache)
    cache.commit(width)
    tokens = draw(decoder.logits(hidden[:, -1]).float(), temperature, generator)
    drawn, ended = [tokens], tokens == end_id
    while len(drawn) < max_tokens and not bool(ended.all()):
        positions = (cache.end - padding)[:, None]
        hidden = decoder(tokens[:, None], positions, visible[..., : cache.end + 1], cache)
        cache.commit(1)
        tokens = draw(decoder.logits(hidden[:, -1]).float(), temperature, generator)
        drawn.append(tokens)
        ended |= tokens == end_id
    rows = torch.stack(drawn, dim=1).tolist()
    return [row[: row.index(end_id) + 1] if end_id in row else row for row in rows]


def sample_rollouts(
    decoder: Decoder,
    prompts: Sequence[list[int]],
    *,
    temperature: float,
    max_tokens: int,
    batch: int,
    seed: int,
    pad_id: int,
    end_id: int,
) -> Iterator[Example]:
    """One continuation per prompt, in order; temperature 0 is greedy.

    Every batch has a seed of its own, so a caller may go on at any multiple of `batch` by adding it to `seed`.
    """
    for start in range(0, len(prompts), batch):
        generator = torch.Generator().manual_seed(seed + start)
        chunk = prompts[start : start + batch]
        continuations = continue_batch(
            decoder,
            chunk,
            temperature=temperature,
            max_tokens=max_tokens,
            generator=generator,
            pad_id=pad_id,
            end_id=end_id,
        )
        yield from (Example(prompt, row) for prompt, row in zip(chunk, continuations, strict=True))
