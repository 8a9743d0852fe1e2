"""The recipe of the embedded models: brings the arithmetic task's texts to the trainers, stage by stage.

Stages: tokenizer, verifier, unaligned drafter, rollouts, aligned drafter, small causal drafter. Each leaves its result
in the work folder and is skipped when that is there; one that was ended early goes on from its last checkpoint. Seeds
are fixed.
"""

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from engines.alignment.batches import fill_batch, rollout_batch
from engines.alignment.examples import Example
from engines.alignment.schedule import Schedule
from engines.alignment.trainer import Progress
from engines.chat import ChatTokenizer
from engines.checkpoints import CONFIG_FILE
from engines.embedded import recipe
from results.ledger import Ledger, read_rows
from tasks.arithmetic import draw_side, training_stories, worked_solution

MAX_EVENTS = 8
LAST_PHASE_POWER = 3
TOKENIZER_STORIES = 3000
VERIFIER_BATCH_TOKENS = 4096
DRAFTER_BATCH_TOKENS = 2400
ROLLOUTS_PER_TEMPERATURE = 1024
TEMPERATURES = (0.0, 1.0)
ROLLOUT_KEY = ("temperature", "index")


def sample_texts() -> Iterator[str]:
    """Questions and solutions for the tokenizer."""
    stories = training_stories(0, lambda rng: rng.randint(1, MAX_EVENTS + 1))
    for _ in range(TOKENIZER_STORIES):
        yield from next(stories)


def question_ids(chat: ChatTokenizer, question: str) -> list[int]:
    """Token ids of a question as the chat template puts it."""
    return chat.prompt_ids([{"role": "user", "content": question}])


def draw_example(chat: ChatTokenizer, rng: random.Random, num_events: int) -> Example:
    """A problem of the training side with its worked solution and the end token."""
    story = draw_side(rng, num_events, held_out=False)
    solution = worked_solution(story, rng) + str(chat.tokenizer.eos_token)
    return Example(question_ids(chat, story.question), list(chat.tokenizer.encode(solution, add_special_tokens=False)))


def story_batch(chat: ChatTokenizer, step: int, schedule: Schedule, seed: int, tokens: int) -> list[Example]:
    """The batch of a step: problems of nearly equal length.

    The first tenth of the steps knows three events, the second six; then all lengths come, the longer the more often,
    since a long problem goes wrong by its one worst event. Steps past the schedule's end belong to the verifier's last
    phase, nearly all of it long problems.
    """
    rng = random.Random(f"{seed}/{step}")
    share = step / schedule.steps
    ceiling = 3 if share < 0.1 else 6 if share < 0.2 else MAX_EVENTS
    power = 1 if share < 1 else LAST_PHASE_POWER
    longest = rng.choices(range(1, ceiling + 1), [events**power for events in range(1, ceiling + 1)])[0]
    return fill_batch(lambda: draw_example(chat, rng, rng.randint(max(1, longest - 1), longest)), tokens)


def collect_rollouts(stage: recipe.Stage, chat: ChatTokenizer) -> list[Example]:
    """The verifier's own solutions at both temperatures, sampled once and kept in rollouts.jsonl."""
    path = stage.work / "rollouts.jsonl"
    rng = random.Random(2)
    prompts = [
        question_ids(chat, draw_side(rng, 1 + index // recipe.ROLLOUT_BATCH % MAX_EVENTS, held_out=False).question)
        for index in range(ROLLOUTS_PER_TEMPERATURE)
    ]
    with Ledger(path, key=ROLLOUT_KEY) as ledger:
        for temperature in TEMPERATURES:
            have = sum(row["temperature"] == temperature for row in ledger)
            # A batch that was interrupted is made again as it was; the ledger passes over what it has.
            first = have if have == len(prompts) else have - have % recipe.ROLLOUT_BATCH
            rest = verifier_solutions(stage, chat, prompts[first:], temperature, seed=first)
            for index, example in enumerate(rest, start=first):
                ledger.append(
                    {
                        "temperature": temperature,
                        "index": index,
                        "prompt_ids": example.prompt_ids,
                        "response_ids": example.response_ids,
                    }
                )
    return [Example(row["prompt_ids"], row["response_ids"]) for row in read_rows(path, key=ROLLOUT_KEY)]


def verifier_solutions(
    stage: recipe.Stage, chat: ChatTokenizer, prompts: list[list[int]], temperature: float, seed: int
) -> Iterator[Example]:
    """Solutions of the rest of the prompts; nothing is loaded when none is left."""
    if prompts:
        yield from recipe.verifier_rollouts(stage, chat, prompts, temperature=temperature, seed=seed)


def build(
    work: Path, *, threads: int, stage_seconds: float = math.inf, listen: Callable[[str, Progress], None]
) -> bool:
    """Run the recipe from wherever it stands; True when all model directories are complete."""

    def stage(name: str) -> recipe.Stage:
        return recipe.Stage(work=work, threads=threads, seconds=stage_seconds, listen=lambda p: listen(name, p))

    chat = recipe.make_tokenizer(work, sample_texts())

    def stories(schedule: Schedule, seed: int, tokens: int) -> Callable[[int], list[Example]]:
        return lambda step: story_batch(chat, step, schedule, seed, tokens)

    def solutions(seed: int) -> Callable[[int], list[Example]]:
        rollouts = sorted(collect_rollouts(stage("rollouts"), chat), key=lambda e: len(e.prompt_ids + e.response_ids))
        return lambda step: rollout_batch(rollouts, step, seed, DRAFTER_BATCH_TOKENS)

    def verifier() -> bool:
        return recipe.pretrain_verifier(
            stage("verifier"), chat, stories(recipe.VERIFIER_SCHEDULE, 1, VERIFIER_BATCH_TOKENS)
        )

    def unaligned() -> bool:
        return recipe.train_drafter(
            stage("unaligned"),
            chat,
            stories(recipe.UNALIGNED_SCHEDULE, 3, DRAFTER_BATCH_TOKENS),
            name="unaligned",
            parent="verifier",
            objective="masked_diffusion",
            schedule=recipe.UNALIGNED_SCHEDULE,
            seed=3,
        )

    def aligned() -> bool:
        return recipe.train_drafter(
            stage("aligned"),
            chat,
            solutions(4),
            name="aligned",
            parent="unaligned",
            objective="log_streak",
            schedule=recipe.ALIGNED_SCHEDULE,
            seed=4,
        )

    def causal() -> bool:
        return recipe.train_causal_drafter(stage("causal"), chat, solutions(5))

    models = {"verifier": verifier, "unaligned": unaligned, "aligned": aligned, "causal": causal}
    return all((work / name / CONFIG_FILE).exists() or make() for name, make in models.items())
