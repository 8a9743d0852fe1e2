"""The decode loop: speculative decoding of several sequences at once, in torch.

`admit` prefills a sequence; `step` is one round for all of them: draft, verify, accept, commit. Plain decoding is the
same loop with empty drafts. Knows a target, a drafter and a rule; laws and rules are in engines/speculative/, drafts
come from engines/drafters/. Every sequence holds a lane of the caches, and sequence i holds lane i.
"""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from engines.cache import KVCache, stack_masks
from engines.decoder import Decoder, prefill
from engines.drafters.contract import NOTHING, Draft, Drafter
from engines.draws import RoundCoins
from engines.live import Live
from engines.speculation import LARGEST_WINDOW, Rule
from engines.speculative.distributions import are_numbers
from engines.speculative.drafts import ancestors_mask, trie
from engines.speculative.rejection import block, leviathan, specinfer, traversal
from engines.speculative.verification import Verdict, paper, walk

REJECTION_RULES = {"leviathan": leviathan, "block": block, "specinfer": specinfer, "traversal": traversal}


class Decoding:
    """One target with its cache, perhaps a drafter, and the rule between them."""

    def __init__(self, target: Decoder, cache: KVCache, drafter: Drafter | None, rule: Rule) -> None:
        self.target, self.cache = target, cache
        self.drafter, self.rule = drafter, rule

    @torch.inference_mode()
    def admit(self, live: Live) -> None:
        """Prefill: fill the sequence's lane with its prompt, and keep its first token."""
        self.cache.lengths[live.lane] = 0
        scores = self.target.logits(prefill(self.target, self.cache, live.lane, live.prompt)).float()
        verdict = self.judge(live, NOTHING, scores)
        if verdict is None:
            return
        live.keep([verdict.bonus], drafted=0)
        if self.drafter:
            try:
                self.drafter.start(live)
            except ValueError as error:
                live.answer.fail(str(error))
        live.note(draft=0.0, verify=0.0)

    @torch.inference_mode()
    def step(self, lives: Sequence[Live]) -> None:
        """One round of every sequence."""
        begun = time.perf_counter()
        drafts = self.draft(lives)
        drafted = time.perf_counter()
        scores = self.verify(lives, drafts)
        verified = time.perf_counter()
        verdicts = [self.judge(*each) for each in zip(lives, drafts, scores, strict=True)]
        for live, draft, verdict in zip(lives, drafts, verdicts, strict=True):
            if verdict:
                run = [draft.tree.tokens[node] for node in verdict.accepted] + [verdict.bonus]
                live.keep(run, drafted=len(draft.tree.tokens))
                self.cache.commit_path(live.lane, [0] + [node + 1 for node in verdict.accepted])
        for live, verdict in zip(lives, verdicts, strict=True):
            if verdict:
                live.note(draft=drafted - begun, verify=verified - drafted)

    def move(self, live: Live, lane: int) -> None:
        """Put a sequence into another lane, whose own has ended."""
        self.cache.move(live.lane, lane)
        if self.drafter:
            self.drafter.move(live.lane, lane)
        live.lane = lane

    def draft(self, lives: Sequence[Live]) -> list[Draft]:
        """Candidates for what follows each sequence."""
        return self.drafter.propose(lives) if self.drafter else [NOTHING] * len(lives)

    def verify(self, lives: Sequence[Live], drafts: Sequence[Draft]) -> list[Tensor]:
        """One target forward over all bonus tokens and nodes: for each sequence scores [1 + N, V]."""
        cache, rows = self.cache, 1 + max(len(draft.tree.tokens) for draft in drafts)
        cache.active = range(len(lives))
        ids, positions, masks = [], [], []
        for live, (tree, *_) in zip(lives, drafts, strict=True):
            start, padding = cache.lengths[live.lane], [0] * (rows - 1 - len(tree.tokens))
            ids.append([live.answer.tokens[-1], *tree.tokens, *padding])
            positions.append([start, *(start + depth for depth in tree.depths), *padding])
            if rows > 1 or len(lives) > 1:
                masks.append(ancestors_mask(tree, start, cache.dtype))
        mask = stack_masks(masks, cache.end + rows) if len(lives) > 1 else masks[0] if masks else None
        hidden = self.target(torch.tensor(ids), torch.tensor(positions), mask, cache)
        scores = self.target.logits(hidden).float()
        return [own[: 1 + len(draft.tree.tokens)] for own, draft in zip(scores, drafts, strict=True)]

    def judge(self, live: Live, draft: Draft, scores: Tensor) -> Verdict | None:
        """The verdict on one sequence's draft; None where scores are not numbers, which ends its answer."""
        error = draft.error or (None if are_numbers(scores) else "the target's scores are not numbers")
        if error:
            live.answer.fail(error)
            self.cache.clear(live.lane)
            if self.drafter:
                self.drafter.clear(live.lane)
            return None
        verdict = self.accept(live, draft, scores)
        if draft.learn:
            draft.learn(verdict.accepted)
        return verdict

    def accept(self, live: Live, draft: Draft, scores: Tensor) -> Verdict:
        """Apply the arm's rule to the target's scores at every node [1 + N, V]."""
        draws, tree = live.draws, draft.tree
        scores = draws.adjusted(scores, tree)
        coins = RoundCoins(draws.tokens(scores, tree, len(live.answer.tokens)), draws.generator)
        if self.rule == "walk" or not tree.tokens:
            return walk(tree, coins)
        if self.rule == "paper":
            return paper(tree, draws.log_laws(scores), coins)
        if draft.laws is None:
            raise ValueError(f"rule {self.rule!r} needs the laws that its drafts were drawn from")
        laws = draws.log_laws(scores.double()).exp()
        return REJECTION_RULES[self.rule](tree, laws, draft.laws.double(), coins)

    @torch.inference_mode()
    def rehearse(self, context: int, nodes: int) -> None:
        """The forward that verifies `nodes` drafted tokens after `context` tokens of no meaning, to be timed."""
        cache = self.cache
        cache.lengths[0], cache.active = context, range(1)
        mask = ancestors_mask(trie([[0] * nodes]), context, cache.dtype) if nodes else None
        ids, positions = torch.zeros(1, 1 + nodes, dtype=torch.long), torch.arange(1 + nodes).clamp(max=LARGEST_WINDOW)
        hidden = self.target(ids, context + positions, mask, cache)
        self.target.logits(hidden)
