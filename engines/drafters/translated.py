"""A drafter with another tokenizer: it reads the answer's text in its own tokens, and its draft's text becomes ours.

Knows two tokenizers and the drafter inside. For rules that follow the target's own draws, which are exact whatever the
drafts are and however their text was cut into tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.chat import ChatTokenizer
from engines.drafters.contract import NOTHING, Draft, Drafter, Prefix
from engines.draws import Draws
from engines.speculative.drafts import trie

TAIL = 8
"""Tokens of ours before the draft that are cut anew with its text, so that words that go on are cut as a whole."""


class RewindableDrafter(Drafter, Protocol):
    """A drafter that can forget the end of what it has read."""

    def rewind(self, lane: int, length: int) -> None:
        """Keep at most the first `length` tokens of a lane."""
        ...


@dataclass(slots=True)
class Translation:
    """One lane's sequence in the drafter's tokens."""

    lane: int
    draws: Draws
    prompt: list[int]
    messages: Sequence[Mapping[str, str]]
    text: list[int]
    fits: bool = True


class TranslatedDrafting:
    """Puts sequences into the drafter's tokens and its drafts into the target's."""

    def __init__(
        self,
        inner: RewindableDrafter,
        theirs: ChatTokenizer,
        ours: ChatTokenizer,
        *,
        window: int,
        nodes: int,
        room: int,
    ) -> None:
        """window, nodes: most tokens of a draft and of a tree, in the target's tokens; room: the drafter's context."""
        self.inner, self.theirs, self.ours = inner, theirs, ours
        self.window, self.nodes, self.room = window, nodes, room
        self.lanes: dict[int, Translation] = {}

    def start(self, prefix: Prefix) -> None:
        """A new sequence takes its lane, its chat written by the drafter's own template."""
        prompt = self.theirs.prompt_ids(prefix.messages)[: self.room]
        self.lanes[prefix.lane] = Translation(prefix.lane, prefix.draws, prompt, prefix.messages, list(prompt))
        self.inner.start(self.lanes[prefix.lane])

    def move(self, source: int, target: int) -> None:
        """A lane's sequence goes on in another lane."""
        self.inner.move(source, target)
        self.lanes[target] = self.lanes.pop(source)
        self.lanes[target].lane = target

    def clear(self, lane: int) -> None:
        """Forget a lane whose scores were not numbers."""
        self.inner.clear(lane)
        self.lanes.pop(lane, None)

    def propose(self, prefixes: Sequence[Prefix]) -> list[Draft]:
        """The drafts of the inner drafter in the target's tokens."""
        translations = [self.translate(prefix) for prefix in prefixes]
        drafts = self.inner.propose(translations)
        return [self.back(prefix, t, draft) for prefix, t, draft in zip(prefixes, translations, drafts, strict=True)]

    def translate(self, prefix: Prefix) -> Translation:
        """The sequence in the drafter's tokens; what was cut otherwise before is forgotten."""
        translation = self.lanes[prefix.lane]
        answer = self.theirs.encode(self.ours.decode(answer_of(prefix)))
        before, text = translation.text, translation.prompt + answer
        same = next((at for at, (old, new) in enumerate(zip(before, text, strict=False)) if old != new), len(before))
        # A text that has outgrown the drafter's context keeps its lane with a token of it, and its drafts are not used.
        translation.fits = len(text) <= self.room
        translation.text = text if translation.fits else text[:1]
        self.inner.rewind(prefix.lane, min(same, len(translation.text) - 1))
        return translation

    def back(self, prefix: Prefix, translation: Translation, draft: Draft) -> Draft:
        """A draft in the target's tokens; where it ends the answer, so does ours."""
        if draft.error:
            return draft
        if not translation.fits:
            return NOTHING
        answer = translation.text[len(translation.prompt) :]
        known = self.theirs.decode(answer)
        drafts: list[list[int]] = []
        for leaf in draft.tree.leaves:
            tokens = [draft.tree.tokens[node] for node in draft.tree.path(leaf)]
            ends = next((at for at, token in enumerate(tokens) if token in self.theirs.stop_ids), None)
            text = self.theirs.decode(answer + tokens[:ends])
            # A character that the draft completes may change what stood before it; such a draft is not used.
            own = self.in_our_tokens(prefix, text[len(known) :]) if text.startswith(known) else []
            stop = [min(self.ours.stop_ids)] if ends is not None else []
            drafts.append((own + stop)[: self.window])
        return Draft(trie(drafts).first(self.nodes))

    def in_our_tokens(self, prefix: Prefix, text: str) -> list[int]:
        """The draft's text behind the answer, in the target's tokens."""
        tail = answer_of(prefix)[-TAIL:]
        whole = self.ours.encode(self.ours.decode(tail) + text)
        return whole[len(tail) :] if whole[: len(tail)] == tail else self.ours.encode(text)

    def rehearse(self, context: int) -> None:
        """One round's forwards after `context` tokens."""
        self.inner.rehearse(context)


def answer_of(prefix: Prefix) -> list[int]:
    """Tokens of the answer so far."""
    return prefix.text[len(prefix.prompt) :]
