"""The card of the embedded models: measures them on held-out problems and writes what was found.

Knows model directories of the recipe (harness/embedded.py) and the arithmetic task; trains nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engines.alignment.examples import Example
from engines.checkpoints import WEIGHTS_FILE
from engines.contract import Request
from engines.embedded.measures import HIGH_ENTROPY, solution_entropy
from engines.embedded.recipe import (
    ALIGNED_SCHEDULE,
    CAUSAL_SCHEDULE,
    DRAFTER_WINDOW,
    LONG_SCHEDULE,
    ROLLOUT_TOKENS,
    UNALIGNED_SCHEDULE,
    VERIFIER_SCHEDULE,
)
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.speculation import Speculation
from results.provenance import digest_file
from results.records import Completion
from tasks.arithmetic import Arithmetic
from tasks.contract import Problem

CARD_FILE = "MODEL_CARD.md"
SEED = 1000
PROBLEMS_PER_LENGTH = 30
DRAFTED_PROBLEMS = 42
DRAFTERS = {
    "unaligned": Speculation(drafter="unaligned", window=DRAFTER_WINDOW),
    "aligned": Speculation(drafter="aligned", window=DRAFTER_WINDOW),
    "causal": Speculation(drafter="causal", window=4, drafting="autoregressive"),
}


def requests(problems: Iterable[Problem], temperature: float) -> list[Request]:
    """One request a problem, seeded by its place."""
    return [
        Request(
            request_id=problem.problem_id,
            messages=problem.messages,
            sampling=Sampling(temperature=temperature, max_tokens=ROLLOUT_TOKENS, seed=index),
        )
        for index, problem in enumerate(problems)
    ]


def accuracy_lines(task: Arithmetic, problems: Sequence[Problem], answers: Sequence[Completion]) -> list[str]:
    """Share of right answers at temperature 0 by number of events, with the mean length of the solutions."""
    right, all_, tokens = Counter[int](), Counter[int](), Counter[int]()
    for problem, answer in zip(problems, answers, strict=True):
        events = int(str(problem.data["events"]))
        all_[events] += 1
        tokens[events] += len(answer.token_ids)
        right[events] += task.grade(problem, answer.text).verdict == "correct"
    rows = [f"| {n} | {tokens[n] / all_[n]:.0f} | {right[n]} of {all_[n]} |" for n in sorted(all_)]
    whole = f"| all | {tokens.total() / all_.total():.0f} | {right.total()} of {all_.total()} |"
    return ["| events | tokens | right at T=0 |", "|---|---|---|", *rows, whole]


def entropy_line(verifier: Path, answers: Iterable[Completion], prompts: Iterable[list[int]]) -> str:
    """Entropy of the verifier at temperature 1 over its own solutions."""
    solutions = [Example(prompt, list(answer.token_ids)) for prompt, answer in zip(prompts, answers, strict=True)]
    entropy = solution_entropy(verifier, solutions)
    return (
        f"At T=1, over {entropy.tokens} tokens of its own solutions of {len(solutions)} held-out problems, the "
        f"verifier's law has a mean entropy of {entropy.mean_nats:.3f} nat a token; {100 * entropy.share_high:.1f} % "
        f"of the tokens have more than {HIGH_ENTROPY} nat."
    )


def drafter_lines(work: Path, problems: Sequence[Problem], threads: int) -> list[str]:
    """Accepted draft tokens per round of each drafter, argmax chain, at both temperatures."""
    lines = ["| drafter | window | tau at T=0 | tau at T=1 |", "|---|---|---|---|"]
    for name, plan in DRAFTERS.items():
        speculation = replace(plan, drafter=str(work / name))
        engine = ReferenceEngine(
            str(work / "verifier"), speculation=speculation, number_format="bfloat16", threads=threads
        )
        taus = []
        for temperature in (0.0, 1.0):
            answers = list(engine.stream(requests(problems, temperature)))
            rounds = [r for answer in answers for r in answer.rounds[1:]]
            taus.append(f"{sum(r.accepted for r in rounds) / len(rounds):.2f} ({len(rounds)} rounds)")
        lines.append(f"| {name} | {plan.window} | {taus[0]} | {taus[1]} |")
    return lines


def write_card(work: Path, threads: int) -> str:
    """Measure the models of a finished recipe, write the card beside them, and return its text."""
    task = Arithmetic(num_problems=PROBLEMS_PER_LENGTH * 6, seed=SEED)
    problems = task.problems()
    engine = ReferenceEngine(str(work / "verifier"), number_format="bfloat16", threads=threads)
    greedy = list(engine.stream(requests(problems, 0.0)))
    few = problems[:DRAFTED_PROBLEMS]
    sampled = list(engine.stream(requests(few, 1.0)))
    prompts = [engine.chat.prompt_ids(problem.messages) for problem in few]
    digests = [f"| {name} | `{digest_file(work / name / WEIGHTS_FILE)}` |" for name in ("verifier", *DRAFTERS)]
    text = "\n".join(
        [
            "# The embedded models",
            "",
            "A small Qwen2-architecture verifier that solves the word problems of `tasks/arithmetic.py` by chain",
            "of thought, and three drafters for it. Weights are bfloat16 safetensors, Apache-2.0;",
            "training texts are made by `tasks/arithmetic.py` from fixed seeds, without held-out questions.",
            "They know this one kind of problem and nothing else.",
            "",
            "## Verifier",
            *accuracy_lines(task, problems, greedy),
            "",
            entropy_line(work / "verifier", sampled, prompts),
            "",
            f"Trained on worked solutions for {VERIFIER_SCHEDULE.steps} steps,",
            f"and for {LONG_SCHEDULE.steps} more on long problems.",
            "",
            "## Drafters",
            "Two layers cut from the verifier. Two are masked-diffusion models (one denoising step, logits shift 1):",
            f"`unaligned`: masked diffusion on worked solutions, {UNALIGNED_SCHEDULE.steps} steps.",
            "`aligned`: from it, -log of the streak sum on the verifier's own solutions at T=0 and T=1,",
            f"{ALIGNED_SCHEDULE.steps} steps. One predicts the next token:",
            f"`causal`: on the same solutions, {CAUSAL_SCHEDULE.steps} steps.",
            f"Accepted draft tokens per round, argmax chain, {len(few)} held-out problems:",
            "",
            *drafter_lines(work, few, threads),
            "",
            "## Weights",
            "| model | sha256 |",
            "|---|---|",
            *digests,
            "",
            "Made and measured by `streak embedded`.",
            "",
        ]
    )
    (work / CARD_FILE).write_text(text, encoding="utf-8")
    return text
