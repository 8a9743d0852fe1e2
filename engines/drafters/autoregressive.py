"""The small causal drafter of speculative sampling (SpS): one forward per drafted token.

Knows a decoder and token ids; no rule and no clock. Source: Leviathan et al. (2023), Chen et al. (2023).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engines.cache import HIDDEN, KVCache, stack_masks
from engines.decoder import Decoder, causal_mask, prefill
from engines.drafters.contract import NOT_NUMBERS, Draft, Prefix
from engines.speculation import Speculation
from engines.speculative.distributions import are_numbers
from engines.speculative.drafts import trie


class AutoregressiveDrafting:
    """A causal model that drafts a chain; its cache keeps what the text and the last draft have in common."""

    def __init__(self, decoder: Decoder, speculation: Speculation, window: int, capacity: int, lanes: int) -> None:
        self.decoder, self.speculation, self.window = decoder, speculation, window
        # A lane far ahead of others is padded to their rows: an accepted run at most.
        self.cache = KVCache(decoder.config, lanes, capacity + 2 * window + 2)
        self.held: list[list[int]] = [[] for _ in range(lanes)]

    def start(self, prefix: Prefix) -> None:
        """A new sequence takes its lane."""
        self.cache.lengths[prefix.lane] = 0
        prefill(self.decoder, self.cache, prefix.lane, prefix.prompt)
        self.held[prefix.lane] = list(prefix.prompt)

    def move(self, source: int, target: int) -> None:
        """A lane's sequence goes on in another lane."""
        self.held[target] = self.held[source]
        self.cache.move(source, target)

    def clear(self, lane: int) -> None:
        """Forget a lane whose scores were not numbers."""
        self.cache.clear(lane)
        self.held[lane] = []

    def rewind(self, lane: int, length: int) -> None:
        """Keep at most the first `length` tokens of a lane."""
        self.held[lane] = self.held[lane][:length]
        self.cache.lengths[lane] = len(self.held[lane])

    def propose(self, prefixes: Sequence[Prefix]) -> list[Draft]:
        """A chain for each sequence, with the laws that its tokens were drawn from."""
        pending = [self.forget_rejected(prefix) for prefix in prefixes]
        tokens: list[list[int]] = [[] for _ in prefixes]
        laws: list[list[Tensor]] = [[] for _ in prefixes]
        broken: set[int] = set()
        for _ in range(self.window):
            scores = self.extend(pending)
            for lane, prefix in enumerate(prefixes):
                # Scores that are no numbers are told below; until then the other lanes go on beside this one.
                if not are_numbers(scores[lane]):
                    broken.add(lane)
                law = prefix.draws.draft_laws(torch.nan_to_num(scores[lane], neginf=HIDDEN), self.speculation)
                laws[lane].append(law)
                tokens[lane].append(int(torch.multinomial(law, 1, generator=prefix.draws.generator)))
            pending = [drafted[-1:] for drafted in tokens]
        weighs = self.speculation.weighs_draft_law
        drafts = [
            Draft(trie([drafted]), torch.stack(law) if weighs else None)
            for drafted, law in zip(tokens, laws, strict=True)
        ]
        return [NOT_NUMBERS if lane in broken else draft for lane, draft in enumerate(drafts)]

    def forget_rejected(self, prefix: Prefix) -> list[int]:
        """Cut the lane's cache back to what the text confirms; returns the tokens that it has not seen."""
        text, held = prefix.text, self.held[prefix.lane]
        shared = min(len(held), len(text) - 1)
        begun = min(len(prefix.prompt), shared)
        same = next((at for at in range(begun, shared) if held[at] != text[at]), shared)
        self.held[prefix.lane] = held[:same]
        self.cache.lengths[prefix.lane] = same
        return text[same:]

    def extend(self, pending: list[list[int]]) -> Tensor:
        """Feed each lane its tokens and commit them; scores after the last of each: [B, V]."""
        cache, rows = self.cache, max(map(len, pending))
        cache.active = range(len(pending))
        known = cache.lengths[: len(pending)]
        ids = torch.tensor([tokens + [0] * (rows - len(tokens)) for tokens in pending])
        masks = [
            causal_mask(len(tokens), cache.dtype, before=before) for tokens, before in zip(pending, known, strict=True)
        ]
        mask = masks[0] if len(pending) == 1 else stack_masks(masks, cache.end + rows)
        hidden = self.decoder(ids, torch.tensor(known)[:, None] + torch.arange(rows), mask, cache)
        for lane, tokens in enumerate(pending):
            self.held[lane] = self.held[lane] + tokens
            cache.lengths[lane] += len(tokens)
        last = torch.tensor([len(tokens) - 1 for tokens in pending])
        return self.decoder.logits(hidden[torch.arange(len(pending)), last]).float()

    def rehearse(self, context: int) -> None:
        """One round's forwards after `context` tokens."""
        self.cache.lengths[0] = context - 1
        for _ in range(self.window):
            self.extend([[0]])
        self.held[0] = []
