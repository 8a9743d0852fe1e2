"""Accepted tokens per round of one arm over another's, paired by problem: its value, its interval, and the option."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.frames import generations_frame
from analysis.headline import headline
from analysis.survival import late_ratio
from harness.cli import app
from results.records import Completion, Generation, Round
from small_study import use_fakes, write_study


def generation(arm: str, problem: str, accepted: Sequence[int]) -> Generation:
    """A prefill and rounds of a second each that accepted so many draft tokens."""
    rounds = [Round(seconds=1.0, kept=1, chars=1)]
    rounds += [
        Round(seconds=2.0 + at, kept=count + 1, chars=1, drafted=8, accepted=count) for at, count in enumerate(accepted)
    ]
    completion = Completion(
        request_id=problem, text="", token_ids=(), prompt_tokens=10, finish_reason="stop", rounds=tuple(rounds)
    )
    return Generation(arm=arm, arm_id=arm, temperature=0.0, problem_id=problem, sample=0, completion=completion)


def ratios(*generations: Generation) -> pd.DataFrame:
    """The headline with every arm's tau held against that of `paper`."""
    return headline(generations_frame(generations), baseline="paper", against="paper").set_index("arm")


def test_the_ratio_is_that_of_the_ratios_of_sums_on_the_problems_of_both() -> None:
    table = ratios(
        generation("paper", "a", [2, 2]),
        generation("paper", "b", [1, 3, 2]),
        generation("tree", "a", [4]),
        generation("tree", "b", [3, 3]),
        generation("tree", "c", [8]),
    )

    assert table.loc["tree", "tau_ratio"] == pytest.approx((10 / 3) / (10 / 5))


def test_the_interval_is_paired_by_problem() -> None:
    arms = {"paper": 1, "tree": 2}
    table = ratios(
        *(generation(arm, str(p), [factor * (1 + p % 7)] * 3) for arm, factor in arms.items() for p in range(20))
    )

    # Twice the other arm's in every problem: however problems are resampled, twice.
    assert table.loc["tree", ["tau_ratio_low", "tau_ratio_high"]].tolist() == pytest.approx([2.0, 2.0])


def test_the_ratio_is_unknown_where_the_other_arm_accepted_nothing() -> None:
    table = ratios(generation("paper", "a", [0, 0]), generation("tree", "a", [4]))

    assert table["tau_ratio"].isna().all()


def test_a_problem_of_which_the_other_arm_accepted_nothing_counts_in_the_ratio() -> None:
    table = ratios(
        *(generation("paper", problem, [accepted]) for problem, accepted in (("a", 0), ("b", 2))),
        *(generation("tree", problem, [4]) for problem in "ab"),
    )

    assert table.loc["tree", "tau_ratio"] == 4.0


def test_the_late_ratio_counts_places_behind_the_middle_of_the_window() -> None:
    ours = [generation("ours", "a", [8, 2, 5]), generation("ours", "b", [4])]
    other = [generation("other", "a", [5, 3]), generation("other", "b", [6, 0])]

    assert late_ratio(ours, other, 4).value == pytest.approx((5 / 4) / (3 / 4))


def test_the_late_ratio_is_unknown_where_the_other_arm_came_so_far_in_no_round() -> None:
    assert math.isnan(late_ratio([generation("ours", "a", [8])], [generation("other", "a", [4])], 4).value)
    assert math.isnan(late_ratio([generation("ours", "a", [8])], [generation("other", "b", [8])], 4).value)


def test_bench_holds_the_arms_against_the_one_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)
    study = str(write_study(tmp_path))
    CliRunner().invoke(app, ["bench", study, "--against", "fast", "--json", "found.json"])

    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    fast = found["arms"]["fast"]
    assert found["against"] == "fast"
    assert fast["tau_ratio"]["value"] == 1
    assert "late_ratio" in fast


def test_an_arm_that_does_not_draft_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    result = CliRunner().invoke(app, ["bench", str(write_study(tmp_path)), "--against", "vanilla"])

    assert result.exit_code == 2
    where = f"an arm of study {tmp_path.name!r} that drafts: fast"
    assert result.stderr.splitlines() == [f"streak: --against = 'vanilla' is not allowed; allowed: {where}"]
