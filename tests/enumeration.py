"""Exact laws of randomized rules: every outcome of every coin is followed, none is sampled."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from math import prod

import torch
from torch import Tensor

from engines.speculative.drafts import DraftTree, trie
from engines.speculative.verification import Coins, Verdict

Law = dict[tuple[int, ...], float]
Rule = Callable[[DraftTree, Tensor, Tensor, Coins], Verdict]
"""A rule as the tests call it: tree, target's laws [1 + N, V], drafter's laws [G, V], coins."""


class ScriptedCoins:
    """Answers the first coins as its script says, the others with their first possible outcome.

    `choices` notes what else was possible, `weight` is the probability of the outcomes taken.
    """

    def __init__(self, laws: Tensor, script: tuple[int, ...]) -> None:
        self.laws, self.script = laws, script
        self.taken: list[int] = []
        self.choices: list[list[int]] = []
        self.weight = 1.0
        self.tokens: dict[int, int] = {}

    def choose(self, weights: list[float]) -> int:
        possible = [index for index, weight in enumerate(weights) if weight > 0]
        at = len(self.taken)
        chosen = self.script[at] if at < len(self.script) else possible[0]
        self.taken.append(chosen)
        self.choices.append(possible)
        self.weight *= weights[chosen]
        return chosen

    def token(self, row: int) -> int:
        if row not in self.tokens:
            self.tokens[row] = self.draw(self.laws[row])
        return self.tokens[row]

    def accept(self, probability: float) -> bool:
        return self.choose([1.0 - probability, probability]) == 1

    def draw(self, law: Tensor) -> int:
        return self.choose(law.tolist())


def outcomes(rule: Rule, tree: DraftTree, laws: Tensor, draft_laws: Tensor) -> Iterator[tuple[Verdict, float]]:
    """Every verdict that the rule can come to, with its probability."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        script = scripts.pop()
        coins = ScriptedCoins(laws, script)
        yield rule(tree, laws, draft_laws, coins), coins.weight
        for at in range(len(script), len(coins.taken)):
            done = tuple(coins.taken[:at])
            scripts.extend((*done, other) for other in coins.choices[at] if other != coins.taken[at])


class RandomTarget:
    """A target whose law after every prefix is random but fixed."""

    def __init__(self, seed: int, vocab_size: int = 3, scale: float = 1.5) -> None:
        self.seed, self.vocab_size, self.scale = seed, vocab_size, scale
        self.probs: Callable[[tuple[int, ...]], list[float]] = cache(lambda prefix: self.law_after(prefix).tolist())

    def law_after(self, prefix: tuple[int, ...]) -> Tensor:
        key = self.seed
        for token in prefix:
            key = key * 31 + token + 1
        generator = torch.Generator().manual_seed(key)
        scores = self.scale * torch.randn(self.vocab_size, generator=generator, dtype=torch.float64)
        return torch.softmax(scores, -1)

    def rows(self, tree: DraftTree) -> Tensor:
        paths = [(), *(tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree.tokens)))]
        return torch.stack([self.law_after(path) for path in paths])

    def law(self, length: int) -> Law:
        texts = itertools.product(range(self.vocab_size), repeat=length)
        return {text: prod(self.probs(text[:at])[token] for at, token in enumerate(text)) for text in texts}


def emitted_law(target: RandomTarget, tree: DraftTree, draft_laws: Tensor, rule: Rule, length: int) -> Law:
    """Law of the first `length` tokens: one round under `rule`, completed by the target where the round is shorter."""
    law: Law = defaultdict(float)
    for verdict, weight in outcomes(rule, tree, target.rows(tree), draft_laws):
        run = (*(tree.tokens[node] for node in verdict.accepted), verdict.bonus)[:length]
        for rest in itertools.product(range(target.vocab_size), repeat=length - len(run)):
            text = run + rest
            law[text] += weight * prod(target.probs(text[:at])[text[at]] for at in range(len(run), length))
    return law


def sampled_sets(draft_laws: Tensor, count: int) -> Iterator[tuple[DraftTree, float]]:
    """Every set of `count` drafts drawn from the marginals [G, V], with its probability."""
    rows = draft_laws.tolist()
    drafts = [
        (draft, prod(rows[at][token] for at, token in enumerate(draft)))
        for draft in itertools.product(range(draft_laws.shape[1]), repeat=len(rows))
    ]
    for chosen in itertools.product(drafts, repeat=count):
        yield trie([draft for draft, _ in chosen]), prod(weight for _, weight in chosen)


def emitted_law_of_sampled_drafts(target: RandomTarget, draft_laws: Tensor, count: int, rule: Rule, length: int) -> Law:
    """The same when the drafts, too, are drawn."""
    law: Law = defaultdict(float)
    for tree, chance in sampled_sets(draft_laws, count):
        for text, weight in emitted_law(target, tree, draft_laws, rule, length).items():
            law[text] += chance * weight
    return law


def expected_accepted(rule: Rule, tree: DraftTree, laws: Tensor, draft_laws: Tensor) -> float:
    """Expected number of accepted tokens on this tree."""
    return sum(weight * len(verdict.accepted) for verdict, weight in outcomes(rule, tree, laws, draft_laws))


def distance(one: Law, other: Law) -> float:
    """Sum of absolute differences."""
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in set(one) | set(other))


def random_laws(window: int, vocab_size: int, seed: int) -> Tensor:
    """Marginals [G, V] of a drafter that knows nothing of the target."""
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(1.5 * torch.randn(window, vocab_size, generator=generator, dtype=torch.float64), -1)
