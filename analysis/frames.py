"""A study's records and generations as DataFrames, and the choice of rows that one figure or table speaks of.

Touches no file: results.ledger reads them. Knows nothing of figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from results.records import CLOCKS, Clock, Generation, Policy, Record

RECORD_COLUMNS = (*(field.name for field in fields(Record)), "correct")
GENERATION_COLUMNS = (
    "arm",
    "arm_id",
    "temperature",
    "problem_id",
    "sample",
    "finish_reason",
    "error",
    "prompt_tokens",
    "cached_tokens",
    "tokens",
    *(f"seconds_{clock}" for clock in CLOCKS),
    "rounds",
    "kept",
    "drafted",
    "accepted",
    "draft_seconds",
    "verify_seconds",
    "other_seconds",
)


def records_frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per Record: its fields, and `correct` (verdict `correct`; every other verdict counts as not correct)."""
    frame = pd.DataFrame([record.to_json() for record in records], columns=list(RECORD_COLUMNS[:-1]))
    frame["correct"] = frame["verdict"] == "correct"
    return frame


def generations_frame(generations: Iterable[Generation]) -> pd.DataFrame:
    """One row per Generation, failed ones (finish_reason `error`) included.

    tokens:               all tokens kept, the prefill's included
    seconds_<clock>:      from the start of that clock to the last token
    rounds:               rounds after the prefill; one token each for an arm that does not speculate
    kept, drafted, accepted: sums over these rounds; accepted / rounds is tau, kept / rounds is tau with the bonus token
    draft_seconds, verify_seconds, other_seconds: these rounds' time, which is seconds_decode
    """
    return pd.DataFrame([_measured(generation) for generation in generations], columns=list(GENERATION_COLUMNS))


def _measured(generation: Generation) -> dict[str, Any]:
    completion = generation.completion
    rounds = completion.rounds[1:]
    seconds = {clock: completion.seconds - completion.clock_offset(clock) for clock in CLOCKS}
    draft = sum(each.draft_seconds for each in rounds)
    verify = sum(each.verify_seconds for each in rounds)
    return {
        "arm": generation.arm,
        "arm_id": generation.arm_id,
        "temperature": generation.temperature,
        "problem_id": generation.problem_id,
        "sample": generation.sample,
        "finish_reason": completion.finish_reason,
        "error": completion.error,
        "prompt_tokens": completion.prompt_tokens,
        "cached_tokens": completion.cached_tokens,
        "tokens": sum(each.kept for each in completion.rounds),
        **{f"seconds_{clock}": value for clock, value in seconds.items()},
        "rounds": len(rounds),
        "kept": sum(each.kept for each in rounds),
        "drafted": sum(each.drafted for each in rounds),
        "accepted": sum(each.accepted for each in rounds),
        "draft_seconds": draft,
        "verify_seconds": verify,
        "other_seconds": seconds["decode"] - draft - verify,
    }


def select(records: pd.DataFrame, *, clock: Clock | None = None, policy: Policy | None = None) -> pd.DataFrame:
    """Records of one clock and one cut-off policy; None stands for the only one there is.

    Raises ValueError if there are no records, if the wanted ones are not there, or if None leaves a choice.
    """
    if records.empty:
        raise ValueError("no records to analyse; grade the study first")
    for name, wanted in (("clock", clock), ("policy", policy)):
        present = sorted(records[name].unique())
        if wanted is None and len(present) > 1:
            raise ValueError(f"the records hold several values of {name}: {', '.join(present)}; choose one")
        if wanted is not None and wanted not in present:
            raise ValueError(f"no records with {name} {wanted!r}; the records hold: {', '.join(present)}")
        records = records[records[name] == (wanted or present[0])]
    return records


def arms_of(frame: pd.DataFrame, arms: Sequence[str] | None = None) -> list[str]:
    """Names of the arms in the order asked for, or in the order in which they first appear.

    Raises ValueError for an arm that is not in the frame.
    """
    present = list(dict.fromkeys(frame["arm"]))
    for arm in arms or ():
        if arm not in present:
            raise ValueError(f"no arm {arm!r} in the data; arms there: {', '.join(present)}")
    return list(arms) if arms is not None else present


def require_one_identity(frame: pd.DataFrame) -> None:
    """Raise ValueError if an arm at one temperature has rows of two arm_ids: two settings would be averaged as one."""
    for (arm, temperature), rows in frame.groupby(["arm", "temperature"], sort=False):
        identities = sorted(rows["arm_id"].unique())
        if len(identities) > 1:
            raise ValueError(
                f"arm {arm!r} at temperature {temperature:g} has rows of several arm_ids: {', '.join(identities)}; "
                "keep those of the current study"
            )
