"""A tiny alignment in a folder: models, problems and the TOML file; and `streak align` on it, for tests."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from harness.cli import app
from tiny_models import write_drafter, write_model

QUESTIONS = (
    "Mia has 42 coins.",
    "First she finds 17.",
    "The answer is 59.",
    "Work step by step.",
    "Mia finds 42 coins.",
)
CONFIG = """
[verifier]
path = "verifier"
concurrency = 4

[prompts]
file = "problems.jsonl"

[heldout]
file = "heldout.jsonl"

[corpus]
temperatures = [0.0, 1.0]
max_tokens = 24
seed = 3
top_logs = 16

[evaluation.arithmetic]
task = "arithmetic"
num_problems = 4

[training]
steps = 4
learning_rate = 1e-2
warmup_steps = 2
window = 4
anchors = 4
batch_tokens = 300
save_every = 2
evaluate_every = 2

[drafter.first]
parent = "parent"
objective = "log_streak"
"""


def write_problems(path: Path, questions: tuple[str, ...]) -> None:
    """JSON lines with a question each."""
    path.write_text("".join(json.dumps({"problem": question}) + "\n" for question in questions))


def write_alignment(folder: Path, *edits: tuple[str, str]) -> Path:
    """Everything an alignment needs; each edit replaces a piece of its file by another. Returns the file."""
    write_model(folder / "verifier")
    write_drafter(folder / "parent", near=1)
    write_problems(folder / "problems.jsonl", QUESTIONS)
    write_problems(folder / "heldout.jsonl", ("How many coins has she?",))
    return write_config(folder, *edits)


def write_config(folder: Path, *edits: tuple[str, str]) -> Path:
    """The file alone."""
    text = CONFIG
    for before, after in edits:
        if before not in text:
            raise ValueError(f"{before!r} is not in the file")
        text = text.replace(before, after)
    path = folder / "align.toml"
    path.write_text(text)
    return path


def align(config: Path, *arguments: str) -> Result:
    work = config.parent / "work"
    return CliRunner().invoke(app, ["align", str(config), "--work", str(work), *arguments])


def aligned(config: Path, *arguments: str) -> Path:
    result = align(config, *arguments)
    assert result.exit_code == 0, result.output
    return config.parent / "work"


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line
