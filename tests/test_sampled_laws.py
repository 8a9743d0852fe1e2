"""Every rule on sampled drafts at a vocabulary of 50, where no enumeration reaches: the law of the first token."""

import pytest
import torch

from engines.draws import RoundCoins
from engines.speculation import EXACT_FOR, RULES
from engines.speculative.drafts import draft_samples
from engines.speculative.rejection import leviathan
from enumeration import Rule, random_laws
from test_verification import BY_NAME, leviathan_with_the_plain_law_after_a_rejection

VOCAB_SIZE, WINDOW, ROUNDS = 50, 2, 6000
PAIRS = [(rule, shape) for rule in RULES for shape in EXACT_FOR[rule] if shape != "tree"]


def first_token_distance(rule: Rule, drafts: int, seed: int) -> float:
    """Total variation between the first emitted tokens of ROUNDS rounds and the target's law."""
    generator = torch.Generator().manual_seed(seed)
    law, draft_laws = random_laws(1, VOCAB_SIZE, seed)[0], random_laws(WINDOW, VOCAB_SIZE, seed + 1)
    counts = torch.zeros(VOCAB_SIZE)
    for _ in range(ROUNDS):
        tree = draft_samples(draft_laws, drafts, generator)
        laws = law.expand(1 + len(tree.tokens), -1)
        own = torch.multinomial(laws, 1, generator=generator)[:, 0].tolist()
        accepted, bonus = rule(tree, laws, draft_laws, RoundCoins(own, generator))
        counts[tree.tokens[accepted[0]] if accepted else bonus] += 1
    return float(0.5 * (counts / ROUNDS - law).abs().sum())


@pytest.mark.parametrize(("rule", "shape"), PAIRS)
def test_the_first_token_follows_the_targets_law(rule: str, shape: str) -> None:
    """Seed 3; about 0.03 is expected of 6,000 true draws, limit 0.05."""
    assert first_token_distance(BY_NAME[rule], 1 if shape == "chain" else 3, seed=3) < 0.05


def test_a_broken_rule_is_beyond_the_limit() -> None:
    assert first_token_distance(leviathan_with_the_plain_law_after_a_rejection, 1, seed=3) > 0.08


def test_all_rules_are_there() -> None:
    assert {rule for rule, _ in PAIRS} == set(RULES)
    assert BY_NAME["leviathan"] is leviathan
