"""What a drafter would keep per round on texts that the target wrote without it: rounds played on recorded texts.

Knows a drafter, texts as token ids, and no target: under a rule that follows the target's own draws, a draft is
accepted exactly as far as it holds the recorded tokens, so a round on a recorded text is the round that the engine
would make. Rounds are played from the first to the last: they start behind a rejection, so averages over all places of
a text would be too high. `leviathan` accepts a drafted token x with min(1, p/q); given that the text goes on with x,
that is an acceptance with min(1, q/p), for which the target's probability of its own tokens is enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.decoder import Decoder, causal_mask
from engines.drafters.contract import Draft, Drafter
from engines.draws import Draws
from engines.sampling import Sampling
from engines.speculation import Speculation
from engines.speculative.distributions import log_law, stream_seed
from engines.speculative.drafts import ROOT, DraftTree
from results.records import Round


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedText:
    """A prompt and what the target wrote; `sampling` as it was drawn, its seed giving the drafts' draws too.

    log_p: the target's log-probabilities of its own tokens, [len(response_ids)]; needed for `leviathan` alone
    """

    prompt_ids: list[int]
    response_ids: list[int]
    sampling: Sampling
    log_p: Tensor | None = None


class Reader:
    """A recorded text while it is played: what a drafter sees of it, in lane 0."""

    def __init__(self, text: RecordedText, vocab_size: int) -> None:
        self.lane, self.prompt, self.kept = 0, text.prompt_ids, 1
        self.draws = Draws(text.sampling, text.prompt_ids, vocab_size)
        self.messages: tuple[dict[str, str], ...] = ()
        self.response = text.response_ids

    @property
    def text(self) -> list[int]:
        """Prompt and answer so far."""
        return self.prompt + self.response[: self.kept]


def refuse_unplayable(speculation: Speculation) -> None:
    """Raise ValueError for an arm whose rounds a recorded text does not settle."""
    several = speculation.shape != "chain" or len(speculation.drafters) > 1
    if speculation.rule not in ("walk", "paper", "leviathan") or (speculation.rule == "paper" and several):
        raise ValueError(
            f"rule {speculation.rule!r} with shape {speculation.shape!r} cannot be forecast: it weighs the target's "
            "law of drafts that are not in its texts; allowed: 'walk', 'leviathan', and 'paper' with one chain"
        )
    if speculation.is_auto:
        raise ValueError("window and nodes must be numbers to be forecast, not 'auto', which learns as it goes")
    if speculation.cross_tokenizer:
        raise ValueError("cross_tokenizer = true cannot be forecast: such a drafter reads the text anew as it grows")


@torch.inference_mode()
def play(
    drafter: Drafter, speculation: Speculation, texts: Iterable[RecordedText], vocab_size: int
) -> list[tuple[Round, ...]]:
    """The rounds of each text, the first one being its prefill; without seconds.

    Raises ValueError for an arm that cannot be forecast, a text that a drafter cannot take, or scores that are no
    numbers.
    """
    refuse_unplayable(speculation)
    played = []
    for text in texts:
        reader = Reader(text, vocab_size)
        drafter.start(reader)
        coins = torch.Generator().manual_seed(stream_seed(text.sampling.seed or 0, "forecast"))
        rounds = [Round(seconds=0.0, kept=1, chars=0)]
        while reader.kept < len(text.response_ids):
            (draft,) = drafter.propose([reader])
            if draft.error:
                raise ValueError(draft.error)
            rest = text.response_ids[reader.kept :]
            if speculation.rule == "leviathan":
                accepted = weighed(draft, text, reader.kept, coins)
            else:
                accepted = walked(draft.tree, rest)
            kept = min(accepted + 1, len(rest))
            reader.kept += kept
            reader.draws.keep(rest[:kept])
            drafted = len(draft.tree.tokens)
            rounds.append(Round(seconds=0.0, kept=kept, chars=0, drafted=drafted, accepted=min(accepted, kept)))
        played.append(tuple(rounds))
    return played


def walked(tree: DraftTree, tokens: Sequence[int]) -> int:
    """How many of the recorded tokens lie on one path of the tree from its root."""
    below, row = tree.children(), 0
    for depth, token in enumerate(tokens):
        node = below[row].get(token, ROOT)
        if node == ROOT:
            return depth
        row = node + 1
    return len(tokens)


def weighed(draft: Draft, text: RecordedText, start: int, coins: torch.Generator) -> int:
    """How many of the recorded tokens a chain that was drawn from its laws has accepted."""
    if draft.laws is None or text.log_p is None:
        raise ValueError("rule 'leviathan' needs the drafter's laws and the target's probabilities of its own tokens")
    rest = text.response_ids[start:]
    for place, token in enumerate(rest[: len(draft.tree.tokens)]):
        rate = float(draft.laws[place, token]) / float(text.log_p[start + place].exp())
        if float(torch.rand((), generator=coins)) >= rate:
            return place
    return min(len(rest), len(draft.tree.tokens))


@torch.inference_mode()
def own_log_probs(target: Decoder, text: RecordedText) -> Tensor:
    """The target's log-probabilities of the tokens that it drew, [len(response_ids)]."""
    ids = torch.tensor([text.prompt_ids + text.response_ids[:-1]])
    rows = ids.shape[1]
    hidden = target(ids, torch.arange(rows), causal_mask(rows, target.embed.weight.dtype))
    logs = log_law(target.logits(hidden[0, len(text.prompt_ids) - 1 :]).float(), text.sampling)
    return logs.gather(-1, torch.tensor(text.response_ids)[:, None])[:, 0]
