"""What a training leaves beside a checkpoint: alignment.json, its compute, its data, its parent, its contamination.

Plain values. FLOPs are counted over processed rows (results/costs.py): prefix rows and windows, padding included.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from results.fields import check_fields

RECORD_FILE = "alignment.json"
SCHEMA = 1

Verdict = Literal["clean", "contaminated", "not_checked"]
STAMPED: Mapping[Verdict, str] = {"contaminated": "contaminated_drafters", "not_checked": "unchecked_drafters"}
"""What is shown beside every number that such drafters had a part in, the worst verdict first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentRecord:
    """The compute ledger of one checkpoint, and what must hold where it is served.

    objective:          weights of the objectives, in words
    verifier_digest:    of the model directory that wrote the corpus
    chat_template:      digest of the template under which it wrote; the drafter is served under no other
    thinking:           the template's thinking flag, None where it was not set
    parent, parent_digest: the model that training began from, by name and digest
    parent_flops, parent_seconds: of the trainings before, back to a model without a record
    corpus_digest:      of the texts that were trained on
    top_logs, left_over: kept tokens of the verifier's laws, 0 for none, and the mean probability of all others
    contamination:      verdict of the comparison with the evaluation problems
    overlapping:        training prompts that overlap with one, and that were trained on nevertheless (contaminated)
    dropped:            those that were left out
    data_*:             the corpus: texts trained on, those left out (failed, or shorter than two tokens), tokens that
                        the verifier wrote, seconds and FLOPs of writing and scoring them
    training_*:         steps, windows, rows forward and backward, rows forward only, seconds, FLOPs, texts' tokens
    gpu_seconds:        training_seconds x GPUs held; 0 on a CPU
    settings:           the training's configuration
    """

    name: str
    objective: str
    step: int
    steps: int
    verifier_digest: str
    chat_template: str
    thinking: bool | None
    parent: str
    parent_digest: str
    parent_flops: int
    parent_seconds: float
    corpus_digest: str
    top_logs: int
    left_over: float
    contamination: Verdict
    overlapping: int
    dropped: int
    data_texts: int
    data_left_out: int
    data_tokens: int
    data_seconds: float
    data_flops: int
    training_windows: int
    training_tokens: int
    training_rows: int
    training_forward_rows: int
    training_seconds: float
    training_flops: int
    gpu_seconds: float
    settings: Mapping[str, Any]
    schema: int = SCHEMA

    @property
    def all_training_flops(self) -> int:
        """Training and data of this checkpoint, and training of those that it comes from."""
        return self.training_flops + self.data_flops + self.parent_flops

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """The inverse. Raises ValueError for another schema, or a field that is not as it should be."""
        if row.get("schema") != SCHEMA:
            raise ValueError(f"alignment record of schema {row.get('schema')!r}; this version reads schema {SCHEMA}")
        check_fields(cls, row, apart=("settings",))
        if not isinstance(row["settings"], Mapping):
            raise ValueError(f"settings = {row['settings']!r} is not allowed; allowed: an object")
        return cls(**row)


def worst(*verdicts: Verdict) -> Verdict:
    """The verdict that holds for a training and all those that it comes from."""
    return next((verdict for verdict in STAMPED if verdict in verdicts), "clean")


def stamps(records: Mapping[str, AlignmentRecord | None]) -> dict[str, list[str]]:
    """Names of drafters by their stamp, for what an engine says of itself; nothing where all are clean."""
    found = {
        named: [name for name, record in records.items() if record and record.contamination == verdict]
        for verdict, named in STAMPED.items()
    }
    return {named: drafters for named, drafters in found.items() if drafters}


def read_alignment(folder: Path) -> AlignmentRecord | None:
    """The record beside a checkpoint; None where there is none. Raises ValueError naming the file."""
    path = folder / RECORD_FILE
    if not path.is_file():
        return None
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(row, dict):
            raise ValueError(f"holds a {type(row).__name__}, not an object")
        return AlignmentRecord.from_json(row)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
