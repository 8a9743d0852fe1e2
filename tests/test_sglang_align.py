"""A corpus that the verifier writes through SGLang: the reference engine's texts, and a run that goes on."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.alignment.corpus import TEXTS_FILE
from engines.serving.presence import missing_algorithm
from engines.sglang_plugin.settings import NAME
from harness.align_plan import CORPUS_FOLDER
from harness.cli import app
from results.ledger import read_rows

MISSING = missing_algorithm(NAME, "cpu")
pytestmark = [pytest.mark.sglang, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
CONFIG = """
[verifier]
path = "embedded:verifier"
engine = "{engine}"
number_format = "float32"
concurrency = 4

[prompts]
source = "arithmetic-training"
num = 6

[corpus]
temperatures = [0.0]
max_tokens = 64

[evaluation.arithmetic]
task = "arithmetic"
num_problems = 4

[drafter.first]
parent = "embedded:unaligned"
objective = "log_streak"

[training]
steps = 1
"""


def texts_by(engine: str, folder: Path) -> dict[str, list[int]]:
    """What the verifier wrote, by prompt."""
    (folder / f"{engine}.toml").write_text(CONFIG.format(engine=engine))
    work = folder / engine
    result = CliRunner().invoke(app, ["align", str(folder / f"{engine}.toml"), "--work", str(work), "--corpus-only"])
    assert result.exit_code == 0, result.output
    return {row["prompt_id"]: row["response_ids"] for row in read_rows(work / CORPUS_FOLDER / TEXTS_FILE)}


def test_a_corpus_by_sglang_is_the_reference_engines_at_temperature_0(tmp_path: Path) -> None:
    texts = texts_by("sglang", tmp_path)

    assert len(texts) == 6
    assert texts == texts_by("reference", tmp_path)
