"""The law of the emitted tokens: for every rule and shape, does the engine's own loop emit the tiny target's exact law?

The joint law of an answer's first tokens at temperature 1: the first token comes from the prefill, the others from
rounds of draft, verify, accept and commit, with a window that is accepted whole now and then, so that the bonus token
takes part. Knows the Engine protocol and plain numbers; the tiny models and their law are engines/tiny.py, the test is
analysis/goodness.py.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from analysis.goodness import Fit, goodness_of_fit
from engines.contract import Engine, Request
from engines.sampling import Sampling
from engines.speculation import EXACT_FOR, Rule, Shape, Speculation
from harness import catalog

MESSAGES = ({"role": "user", "content": "abc"},)
LENGTH = 4
WINDOW = 2
SAMPLES = 2500
SIZES: Mapping[Shape, Mapping[str, int]] = {"chain": {}, "iid": {"num_drafts": 3}, "tree": {"nodes": 6}}
ALPHA = 1e-4
"""A p-value below it is a violation. A rule that is right falls below it once in 10,000 sets of seeds."""

Law = Mapping[tuple[int, ...], float]
Pair = tuple[Rule, Shape]
BuildEngine = Callable[[str, str, Mapping[str, object]], Engine]
PAIRS: tuple[Pair, ...] = tuple((rule, shape) for rule, shapes in EXACT_FOR.items() for shape in shapes)
"""Every rule with every shape that it is exact for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LawCheck:
    """What a rule emitted on a shape. `tau`: accepted draft tokens a round."""

    rule: Rule
    shape: Shape
    tau: float
    fit: Fit

    @property
    def holds(self) -> bool:
        """Whether the chi-square test lets it pass, drafts having been both accepted and rejected."""
        return 0 < self.tau < WINDOW and self.fit.p_value >= ALPHA


def check_laws(
    pairs: Iterable[Pair] = PAIRS, samples: int = SAMPLES, build_engine: BuildEngine = catalog.build_engine
) -> Iterator[LawCheck]:
    """Each pair in turn on the reference engine. Raises ValueError where the engine refuses a pair or a request."""
    from engines.tiny import exact_law, write_tiny_models

    with TemporaryDirectory(prefix="streak-audit-") as folder:
        models = write_tiny_models(Path(folder))
        law = exact_law(models.target, MESSAGES, LENGTH)
        for index, (rule, shape) in enumerate(pairs):
            sizes: Any = SIZES[shape]
            speculation = Speculation(drafter=str(models.drafter), window=WINDOW, shape=shape, rule=rule, **sizes)
            engine = build_engine("reference", str(models.target), {"speculation": speculation})
            # Seeds of their own: the rules that follow the target's draws would repeat one another's texts.
            seeds = range(index * samples, (index + 1) * samples)
            try:
                yield check_law((rule, shape), engine, law, seeds)
            finally:
                engine.close()


def check_law(pair: Pair, engine: Engine, law: Law, seeds: Sequence[int]) -> LawCheck:
    """Hold an engine's answers, one a seed, against the exact law of the first LENGTH tokens."""
    rule, shape = pair
    drawn: Counter[tuple[int, ...]] = Counter()
    accepted = rounds = 0
    for completion in engine.stream(request_of(seed) for seed in seeds):
        if completion.finish_reason == "error":
            raise ValueError(f"rule {rule} x shape {shape}: a request on the tiny models failed: {completion.error}")
        drawn[completion.token_ids] += 1
        accepted += sum(each.accepted for each in completion.rounds)
        rounds += sum(each.drafted > 0 for each in completion.rounds)
    if drawn.total() != len(seeds):
        raise ValueError(f"rule {rule} x shape {shape}: {drawn.total()} answers to {len(seeds)} requests")
    answers = sorted(law.keys() | drawn.keys())
    fit = goodness_of_fit([drawn[answer] for answer in answers], [law.get(answer, 0.0) for answer in answers])
    return LawCheck(rule=rule, shape=shape, tau=accepted / max(rounds, 1), fit=fit)


def request_of(seed: int) -> Request:
    """The request that is made again and again, each time with another seed."""
    sampling = Sampling(temperature=1.0, max_tokens=LENGTH, seed=seed)
    return Request(request_id=f"law/{seed}", messages=MESSAGES, sampling=sampling)
