"""A training example: a prompt and a response as token ids, and perhaps the target's laws of the response."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.alignment.divergences import TargetLaws

SHORTEST_CONTEXT = 4


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the response to learn, as token ids; a finished response ends with the end token.

    laws: the target's law of every token of the response, [len(response_ids), n]; None where it is not needed
    """

    prompt_ids: list[int]
    response_ids: list[int]
    laws: TargetLaws | None = None

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


def trimmed(example: Example, context: int) -> list[Example]:
    """The example in pieces of at most `context` tokens, whose responses follow each other without overlap.

    The prefix of a later piece is the half of the context that lies before it, and so is that of the first one where
    its prompt leaves no room. A last piece of one token is left out: a window begins within a response.
    """
    if context < SHORTEST_CONTEXT:
        raise ValueError(f"context = {context} is not allowed; allowed: a whole number >= {SHORTEST_CONTEXT}")
    if len(example) <= context:
        return [example]
    text, start, half = example.prompt_ids + example.response_ids, len(example.prompt_ids), context // 2
    before = start if start <= context - half else half
    pieces = []
    while len(text) - start > 1:
        end = min(start + context - before, len(text))
        pieces.append(Example(text[start - before : start], text[start:end], part(example, start, end)))
        start, before = end, half
    return pieces


def part(example: Example, start: int, end: int) -> TargetLaws | None:
    """The laws of the tokens from `start` to `end` of the whole text."""
    if example.laws is None:
        return None
    first, last = start - len(example.prompt_ids), end - len(example.prompt_ids)
    return TargetLaws(tokens=example.laws.tokens[first:last], logs=example.laws.logs[first:last])


def padded_laws(examples: Sequence[Example]) -> TargetLaws:
    """The target's laws of every place of whole sequences, [B, L, n]; even laws where none is known.

    Raises ValueError for an example without laws, or with laws of another size than the others.
    """
    laws = [example.laws for example in examples]
    known = [each for each in laws if each is not None]
    sizes = sorted({each.tokens.shape[-1] for each in known})
    if len(known) < len(laws) or len(sizes) != 1:
        raise ValueError(f"{len(laws) - len(known)} of {len(laws)} examples have no target laws; sizes: {sizes}")
    n, length = sizes[0], max(map(len, examples))
    tokens = torch.arange(n).expand(len(examples), length, n).clone()
    logs = torch.full((len(examples), length, n), -float(torch.tensor(float(n)).log()))
    for row, (example, own) in enumerate(zip(examples, known, strict=True)):
        places = slice(len(example.prompt_ids), len(example))
        tokens[row, places], logs[row, places] = own.tokens.long(), own.logs.float()
    return TargetLaws(tokens=tokens, logs=logs)


def at_places(laws: TargetLaws, places: Tensor) -> TargetLaws:
    """Laws [B, L, n] at places [B, A, G], those behind the end being the last one: [B, A, G, n]."""
    inside = places.clamp(max=laws.tokens.shape[1] - 1)
    flat = inside.flatten(1)[..., None].expand(-1, -1, laws.tokens.shape[-1])
    shape = (*inside.shape, laws.tokens.shape[-1])
    return TargetLaws(tokens=laws.tokens.gather(1, flat).view(shape), logs=laws.logs.gather(1, flat).view(shape))
