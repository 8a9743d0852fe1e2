"""Whether training prompts carry evaluation problems: 13 words in a row that both have, or equal short texts.

Knows texts and their ids; no task, file or model. Give the questions without the instructions that a task adds to each
of them, or every prompt with the same instructions will count as overlap. Words are what is left when case,
punctuation and spacing are gone. Texts of fewer than 13 words are compared as wholes, with the signs of arithmetic
(3 + 5 is not 3 - 5): one that stands inside a longer text is not found, and neither is a paraphrase.
Source: Brown et al. (2020), arXiv 2005.14165, appendix C (13-gram overlap).
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

NGRAM = 13
WORD = re.compile(r"[^\W_]+")
# A hyphen is a minus sign only before a digit; an asterisk is more often bold type than a product.
WORD_OR_SIGN = re.compile(r"[^\W_]+|[+/=<>^\u00d7\u00f7]|-(?=\s*\d)")

WHOLE = ""

Gram = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A training prompt and an evaluation problem that share a passage, given as its normalised words."""

    training_id: str
    evaluation_id: str
    passage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contamination:
    """What was compared, and every pair that overlaps, in the order of the training prompts."""

    overlaps: tuple[Overlap, ...]
    training_count: int
    evaluation_count: int
    compared_as_wholes: int
    """Evaluation texts of fewer than 13 words, which only an equal text hits, and one without words nothing."""

    @property
    def contaminated(self) -> dict[str, tuple[str, ...]]:
        """For every training id with an overlap the evaluation ids that it hits."""
        hits: dict[str, dict[str, None]] = {}
        for overlap in self.overlaps:
            hits.setdefault(overlap.training_id, {})[overlap.evaluation_id] = None
        return {training_id: tuple(evaluation_ids) for training_id, evaluation_ids in hits.items()}


def normalised(text: str) -> str:
    """The text in one form of characters and case."""
    return unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")


def passages(text: str) -> Iterable[Gram]:
    """What is looked up: all runs of 13 words, or the whole of a shorter text; nothing where there is nothing to read.

    An entry in front of a whole, which may have 13 entries with its signs, tells it from a run.
    """
    plain = normalised(text)
    words = WORD.findall(plain)
    if len(words) >= NGRAM:
        return zip(*(words[first:] for first in range(NGRAM)), strict=False)
    whole = WORD_OR_SIGN.findall(plain)
    return [(WHOLE, *whole)] if whole else []


def contamination(training: Iterable[tuple[str, str]], evaluation: Iterable[tuple[str, str]]) -> Contamination:
    """Compare training prompts with evaluation questions, both as (id, text); training prompts are read once, in turn.

    The passages of the evaluation are held in memory as they are, so no pair is reported by a collision of hashes.
    """
    owners: dict[Gram, list[str]] = {}
    evaluation_count = wholes = 0
    for evaluation_id, text in evaluation:
        found = set(passages(text))
        evaluation_count += 1
        wholes += all(gram[0] == WHOLE for gram in found)
        for gram in found:
            owners.setdefault(gram, []).append(evaluation_id)
    overlaps: list[Overlap] = []
    training_count = 0
    for training_id, text in training:
        training_count += 1
        overlaps += overlaps_of(training_id, text, owners)
    return Contamination(
        overlaps=tuple(overlaps),
        training_count=training_count,
        evaluation_count=evaluation_count,
        compared_as_wholes=wholes,
    )


def overlaps_of(training_id: str, text: str, owners: dict[Gram, list[str]]) -> list[Overlap]:
    """One overlap for every evaluation problem that the text hits, with the first passage they share."""
    # Nearly every prompt is clean, and this says so without a step of Python per passage.
    if owners.keys().isdisjoint(passages(text)):
        return []
    shared: dict[str, Gram] = {}
    for gram in passages(text):
        if gram in owners:
            for evaluation_id in owners[gram]:
                shared.setdefault(evaluation_id, gram)
    return [
        Overlap(training_id=training_id, evaluation_id=evaluation_id, passage=" ".join(gram).strip())
        for evaluation_id, gram in shared.items()
    ]
