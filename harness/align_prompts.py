"""Prompts of an alignment, and whether they carry evaluation problems: brings tasks to the corpus.

A prompt is a chat and, for the comparison, its question alone, without the instruction that a task adds to each.
"""

import importlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import catalog
from harness.align_settings import AlignConfig, PromptsConfig
from results.alignment import Verdict
from tasks.contract import Message, Problem
from tasks.decontamination import Contamination, contamination

REPORT_FILE = "contamination.json"
MOST_AGAIN = 10_000
"""Draws in a row without a new question, after which there are taken to be no more."""
MOST_SHOWN = 200
"""Overlaps that a report lists one by one; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A chat to continue, its id, and the question in it."""

    prompt_id: str
    messages: Sequence[Message]
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Prompts to train on, and what the comparison with the evaluation problems came to.

    report:  what was compared and found, as plain values; None where nothing was compared
    refusal: why there must be no training on them; None where there may be
    """

    prompts: tuple[Prompt, ...]
    verdict: Verdict
    overlapping: int
    dropped: int
    report: Mapping[str, Any] | None = None
    refusal: str | None = None


def load_prompts(config: PromptsConfig) -> list[Prompt]:
    """The prompts of a [prompts] table. Raises ValueError or OSError for whatever is wrong with their source."""
    if config.task:
        return task_prompts(config.task, config.options)
    if config.file is not None:
        return file_prompts(config, config.file)
    return made_prompts(config)


def made_prompts(config: PromptsConfig) -> list[Prompt]:
    """Problems of the arithmetic task's training side, lengths in turns, no question twice."""
    from tasks.arithmetic import draw_side

    rng = random.Random(f"prompts/{config.seed}")
    lengths = range(config.min_events, config.max_events + 1)
    questions: dict[str, None] = {}
    again = 0  # draws in a row that brought nothing new
    while len(questions) < config.num:
        before = len(questions)
        questions[draw_side(rng, lengths[before % len(lengths)], held_out=False).question] = None
        again = again + 1 if len(questions) == before else 0
        if again == MOST_AGAIN:
            raise ValueError(
                f"num = {config.num} of source 'arithmetic-training' is not allowed; allowed: at most about {before}, "
                f"since there are no more questions with {config.min_events} to {config.max_events} events"
            )
    return [
        Prompt(
            prompt_id=f"arithmetic-training/{config.seed}/{index:05d}",
            messages=({"role": "user", "content": question},),
            question=without_instruction("arithmetic", question),
        )
        for index, question in enumerate(questions)
    ]


def file_prompts(config: PromptsConfig, path: Path) -> list[Prompt]:
    """The first `num` rows of a local file, the question being in one column."""
    from tasks.loading import load_rows

    prompts = []
    for row in load_rows(str(path))[: config.num]:
        question = row.text(config.column)
        text = f"{question}\n\n{config.instruction}" if config.instruction else question
        chat = ({"role": "user", "content": text},)
        prompts.append(Prompt(prompt_id=f"{path.name}/{row.number:06d}", messages=chat, question=question))
    return prompts


def task_prompts(name: str, options: Mapping[str, object]) -> list[Prompt]:
    """The problems of a task."""
    return [
        Prompt(prompt_id=each.problem_id, messages=each.messages, question=question_of(name, each))
        for each in catalog.build_task(name, options).problems()
    ]


def question_of(task: str, problem: Problem) -> str:
    """What the user asks, without the task's instruction."""
    asked = "\n".join(message["content"] for message in problem.messages if message["role"] == "user")
    return without_instruction(task, asked)


def without_instruction(task: str, text: str) -> str:
    """A text without the instruction that the task adds to every prompt, which would count as overlap."""
    module = importlib.import_module(catalog.TASKS[task].module)
    return text.replace(module.INSTRUCTION, "").strip()


def check_prompts(config: AlignConfig, prompts: Sequence[Prompt], *, allow: bool) -> Checked:
    """Compare the prompts with every evaluation problem.

    Overlapping prompts are left out where the file says so, kept and stamped where `allow` is set, and otherwise
    refused. Raises ValueError where the file names no evaluation problems and `allow` is not set.
    """
    if not config.evaluation:
        if not allow:
            raise ValueError(
                f"{config.path}: no [evaluation.NAME]: name the tasks that the drafter will be judged by, so that "
                "their problems can be kept out of training; or pass --allow-contaminated"
            )
        return Checked(prompts=tuple(prompts), verdict="not_checked", overlapping=0, dropped=0)
    found = contamination(
        ((prompt.prompt_id, prompt.question) for prompt in prompts),
        [
            (each.prompt_id, each.question)
            for task, options in config.evaluation
            for each in task_prompts(task, options)
        ],
    )
    hit = found.contaminated
    kept = tuple(prompt for prompt in prompts if prompt.prompt_id not in hit)
    refusal = None
    if hit and not allow and not config.drop_overlaps:
        first = found.overlaps[0]
        refusal = (
            f"{len(hit)} of {len(prompts)} training prompts overlap with evaluation problems, the first: "
            f"{first.training_id} with {first.evaluation_id} in {first.passage!r}; set drop_overlaps = true in "
            "[evaluation], or pass --allow-contaminated"
        )
    elif not kept and not allow:
        refusal = f"all {len(prompts)} training prompts overlap with evaluation problems"
    taken = allow or refusal is not None
    return Checked(
        prompts=tuple(prompts) if taken else kept,
        verdict="contaminated" if hit and taken else "clean",
        overlapping=len(hit) if taken else 0,
        dropped=0 if taken else len(hit),
        report=report(found),
        refusal=refusal,
    )


def report(found: Contamination) -> dict[str, Any]:
    """What was compared and found, as plain values."""
    return {
        "training_prompts": found.training_count,
        "evaluation_problems": found.evaluation_count,
        "compared_as_wholes": found.compared_as_wholes,
        "overlapping_prompts": len(found.contaminated),
        "overlaps": len(found.overlaps),
        "listed": [
            {"training": each.training_id, "evaluation": each.evaluation_id, "passage": each.passage}
            for each in found.overlaps[:MOST_SHOWN]
        ],
    }
