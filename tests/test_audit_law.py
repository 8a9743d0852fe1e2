"""The law audit: the real loop emits the tiny target's law, and an engine with another law is found out.

All draws are seeded, so that each verdict repeats; the audit's own threshold, 1e-4, is the tolerance throughout.
"""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import ClassVar

import pytest
from torch import Tensor

from engines import decoding
from engines.contract import Engine, Request
from engines.speculation import EXACT_FOR, RULES, Speculation
from engines.speculative.drafts import DraftTree
from engines.speculative.verification import Coins, Verdict, walk
from engines.tiny import TINY, exact_law, write_tiny_models
from fake_engine import FakeEngine, failure
from harness.audit_law import LENGTH, MESSAGES, PAIRS, SIZES, Law, LawCheck, Pair, check_law, check_laws
from results.records import Completion, Round

WALK: Pair = ("walk", "chain")
SHARES = (0.6, 0.3, 0.1)
INDEPENDENT: Law = {
    text: math.prod(SHARES[token] for token in text) for text in product(range(len(SHARES)), repeat=LENGTH)
}


class Drawing(FakeEngine):
    """Draws whole answers from a law; half of its drafts are accepted."""

    law: ClassVar[Law] = INDEPENDENT
    accepted: ClassVar[int] = 1

    def answer(self, request: Request) -> Completion:
        rng = random.Random(request.sampling.seed)
        (tokens,) = rng.choices(list(self.law), weights=list(self.law.values()))
        rounds = (Round(seconds=1.0, kept=LENGTH, chars=LENGTH, drafted=2, accepted=self.accepted),)
        return replace(failure(request), token_ids=tokens, finish_reason="length", rounds=rounds, error=None)


class NeverAccepting(Drawing):
    """Writes what the law wants, but no draft was of any use: the rule was not tested."""

    accepted: ClassVar[int] = 0


class MatchingArgmax(Drawing):
    """Mutant: a later token is the most likely one, whenever the first was."""

    def answer(self, request: Request) -> Completion:
        completion = super().answer(request)
        first, second, *rest = completion.token_ids
        return replace(completion, token_ids=(first, 0 if first == 0 else second, *rest))


class Flattened(Drawing):
    """Mutant: draws at a temperature of 1.2."""

    law: ClassVar[Law] = {text: weight ** (1 / 1.2) for text, weight in INDEPENDENT.items()}


class Inventing(Drawing):
    """Mutant: once in a thousand answers there is a token that does not exist."""

    def answer(self, request: Request) -> Completion:
        completion = super().answer(request)
        return replace(completion, token_ids=(9,) * LENGTH) if request.sampling.seed == 500 else completion


class Dropping(Drawing):
    """Mutant: ends its stream early."""

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        yield from super().stream(list(requests)[:-1])


def checked(engine: Engine, samples: int = 1000) -> LawCheck:
    return check_law(WALK, engine, INDEPENDENT, range(samples))


def test_an_engine_that_draws_from_the_law_passes() -> None:
    assert checked(Drawing("fake")).holds


@pytest.mark.parametrize("mutant", [MatchingArgmax, Flattened, Inventing, NeverAccepting])
def test_an_engine_with_another_law_does_not(mutant: type[Drawing]) -> None:
    assert not checked(mutant("fake")).holds


def test_a_failed_request_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match="rule walk x shape chain: a request on the tiny models failed: the prompt"):
        checked(FakeEngine("fake", fails_on="abc"))


def test_an_answer_that_never_comes_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match="rule walk x shape chain: 999 answers to 1000 requests"):
        checked(Dropping("fake"))


def test_every_rule_is_checked_on_every_shape_that_it_is_exact_for() -> None:
    assert {rule for rule, _ in PAIRS} == set(RULES)
    assert [shape for rule, shape in PAIRS if rule == "walk"] == list(EXACT_FOR["walk"])


@pytest.mark.parametrize("pair", PAIRS)
def test_the_contract_allows_every_pair(pair: Pair) -> None:
    rule, shape = pair
    sizes = dict(SIZES[shape])

    assert Speculation(drafter="tiny", window=2, shape=shape, rule=rule, **sizes).rule == rule  # type: ignore[arg-type]  # sizes are whole numbers


def test_the_exact_law_holds_all_answers(tmp_path: Path) -> None:
    law = exact_law(write_tiny_models(tmp_path).target, MESSAGES, 2)
    end = 1

    assert math.fsum(law.values()) == pytest.approx(1.0)
    assert len(law) == 1 + (TINY.vocab_size - 1) * TINY.vocab_size
    assert {text for text in law if len(text) < 2} == {(end,)}


@pytest.mark.parametrize("pair", [WALK, ("block", "chain"), ("traversal", "iid")])
def test_the_reference_engine_emits_the_law_of_the_target(pair: Pair) -> None:
    (check,) = check_laws([pair], samples=400)

    assert check.holds
    assert check.tau > 0.5


def without_surplus(tree: DraftTree, laws: Tensor, draft_laws: Tensor, coins: Coins) -> Verdict:
    """Mutant of `leviathan`: after a rejection it draws from p, not from what p has above q."""
    for depth, token in enumerate(tree.tokens):
        if not coins.accept(min(1.0, float(laws[depth, token] / draft_laws[depth, token]))):
            return Verdict(list(range(depth)), coins.draw(laws[depth]))
    return Verdict(list(range(len(tree.tokens))), coins.token(len(tree.tokens)))


def test_a_rule_that_draws_from_the_wrong_rest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decoding.REJECTION_RULES, "leviathan", without_surplus)
    (check,) = check_laws([("leviathan", "chain")], samples=400)

    assert not check.holds


def with_the_first_bonus(tree: DraftTree, coins: Coins) -> Verdict:
    """Mutant of `walk`: the token after the accepted run is the draw of the first place."""
    return Verdict(walk(tree, coins).accepted, coins.token(0))


def test_a_rule_that_takes_its_bonus_token_from_the_wrong_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "walk", with_the_first_bonus)
    (check,) = check_laws([WALK], samples=400)

    assert not check.holds
