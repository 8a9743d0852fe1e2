"""Figures and tables on a hand-made study whose numbers can be worked out on paper."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import style
from analysis.accuracy import accuracy_table, draw_accuracy, percent_limits
from analysis.differences import difference_table, write_differences
from analysis.frames import generations_frame, records_frame, select
from analysis.headline import headline
from analysis.headline_text import as_markdown, as_text, cells, write_headline
from analysis.layout import spread
from analysis.passes import pass_table, write_passes
from analysis.style import sparse_labels
from results.records import Completion, FinishReason, Generation, Record, Round


def generation(
    arm: str, problem: str, rounds: Sequence[Round], *, finish_reason: FinishReason = "stop", sample: int = 0
) -> Generation:
    """Admitted after half a second, first token at one second, then the given rounds."""
    completion = Completion(
        request_id=f"{arm}/{problem}/{sample}",
        text="",
        token_ids=(),
        prompt_tokens=10,
        finish_reason=finish_reason,
        rounds=(Round(seconds=1.0, kept=1, chars=1), *rounds),
        queue_seconds=0.5,
    )
    return Generation(
        arm=arm, arm_id=f"{arm}-id", temperature=0.0, problem_id=problem, sample=sample, completion=completion
    )


def plain(count: int, each: float) -> list[Round]:
    """Token by token: `count` rounds of `each` seconds."""
    return [Round(seconds=1 + each * (at + 1), kept=1, chars=1, verify_seconds=each) for at in range(count)]


def drafted(kept: Sequence[int], each: float) -> list[Round]:
    """Rounds of `each` seconds, 0.2 of them drafting and 0.5 verifying; one kept token in each is the bonus."""
    parts = {"drafted": 8, "draft_seconds": 0.2, "verify_seconds": 0.5}
    return [
        Round(seconds=1 + each * (at + 1), kept=count, chars=1, accepted=count - 1, **parts)  # type: ignore[arg-type]
        for at, count in enumerate(kept)
    ]


def record(arm: str, problem: str, budget: float, *, correct: bool, cut: bool = False, sample: int = 0) -> Record:
    return Record(
        arm=arm,
        arm_id=f"{arm}-id",
        temperature=0.0,
        problem_id=problem,
        sample=sample,
        budget_seconds=budget,
        clock="service",
        policy="last",
        verdict="correct" if correct else "incorrect",
        answer=None,
        reason="",
        tokens=1,
        cut=cut,
    )


@pytest.fixture
def generations() -> pd.DataFrame:
    """10 + 5 tokens in 10 + 10 seconds without drafts, in 2 + 3 seconds with; one failure on a third problem."""
    return generations_frame(
        [
            generation("vanilla", "a", plain(10, 1.0)),
            generation("vanilla", "b", plain(5, 2.0)),
            generation("vanilla", "c", plain(4, 1.0)),
            generation("diffusion", "a", drafted([5, 5], 1.0)),
            generation("diffusion", "b", drafted([3, 2], 1.5)),
            generation("diffusion", "c", drafted([8], 0.1), finish_reason="error"),
        ]
    )


@pytest.fixture
def records() -> pd.DataFrame:
    """At 1 s all is cut off; at 5 s diffusion has one of two problems right in half of its samples."""
    rows = [record(arm, p, 1.0, correct=False, cut=True) for arm in ("vanilla", "diffusion") for p in "ab"]
    rows += [record("diffusion", p, 1.0, correct=False, cut=True, sample=1) for p in "ab"]
    rows += [record("vanilla", "a", 5.0, correct=False, cut=True), record("vanilla", "b", 5.0, correct=True)]
    rows += [record("diffusion", "a", 5.0, correct=True), record("diffusion", "a", 5.0, correct=False, sample=1)]
    rows += [record("diffusion", "b", 5.0, correct=False), record("diffusion", "b", 5.0, correct=False, sample=1)]
    return records_frame(rows)


def of_arm(table: pd.DataFrame, arm: str) -> pd.Series:
    return table[table["arm"] == arm].iloc[0]


def test_a_generation_has_its_seconds_on_every_clock(generations: pd.DataFrame) -> None:
    row = of_arm(generations, "diffusion")

    assert (row["seconds_request"], row["seconds_service"], row["seconds_decode"]) == (3.0, 2.5, 2.0)


def test_a_generation_counts_rounds_after_the_prefill_only(generations: pd.DataFrame) -> None:
    row = of_arm(generations, "diffusion")

    assert row[["tokens", "rounds", "kept", "drafted", "accepted"]].tolist() == [11, 2, 10, 16, 8]


def test_the_speed_up_is_the_ratio_of_the_ratios_of_sums(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla"), "diffusion")

    assert row["tokens_per_second"] == pytest.approx(15 / 5)
    assert row["speedup"] == pytest.approx((15 / 5) / (15 / 20))


def test_the_median_speed_up_is_over_the_ratios_of_the_problems(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla"), "diffusion")

    assert row["median_speedup"] == pytest.approx((5 / 1 + (5 / 3) / (5 / 10)) / 2)


def test_tau_and_the_parts_of_a_round_are_right(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla"), "diffusion")

    assert (row["tau"], row["tau_with_bonus"]) == (11 / 4, 15 / 4)
    assert row[["draft_ms", "verify_ms", "other_ms"]].tolist() == pytest.approx([200, 500, 550])


def test_tau_over_break_even_is_the_speed_up_on_clock_decode(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla"), "diffusion")

    assert row["break_even"] == pytest.approx((5 / 4) / (20 / 15))
    assert row["tau_with_bonus"] / row["break_even"] == pytest.approx(row["speedup"])


def test_the_service_clock_counts_the_prefill(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla", clock="service"), "diffusion")

    assert row["tokens_per_second"] == pytest.approx((11 + 6) / (2.5 + 3.5))


def test_a_failed_generation_is_counted_and_left_out_of_the_speed(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla"), "diffusion")

    assert row[["problems", "generations", "errors", "problems_timed"]].tolist() == [3, 3, 1, 2]


def test_the_baseline_has_speed_up_one_and_breaks_even(generations: pd.DataFrame) -> None:
    row = of_arm(headline(generations, baseline="vanilla"), "vanilla")

    assert row[["speedup", "speedup_low", "speedup_high", "tau", "break_even"]].tolist() == [1, 1, 1, 0, 1]


def test_samples_of_one_problem_are_added_up(generations: pd.DataFrame) -> None:
    more = generations_frame([generation("diffusion", "a", drafted([2], 2.0), sample=1)])

    row = of_arm(headline(pd.concat([generations, more]), baseline="vanilla"), "diffusion")

    assert row["problems_timed"] == 2
    assert row["tokens_per_second"] == pytest.approx((10 + 2 + 5) / (2 + 2 + 3))


def test_a_temperature_without_the_baseline_has_a_rate_but_no_speed_up(generations: pd.DataFrame) -> None:
    hot = generations[generations["arm"] == "diffusion"].assign(temperature=1.0, arm_id="hot")

    row = headline(pd.concat([generations, hot]), baseline="vanilla").iloc[-1]

    assert row["temperature"] == 1.0
    assert row["tokens_per_second"] == pytest.approx(3)
    assert row[["speedup", "median_speedup", "break_even"]].isna().all()


def test_an_arm_that_only_failed_has_a_row(generations: pd.DataFrame) -> None:
    failed = generations_frame([generation("broken", "a", [], finish_reason="error")])

    row = of_arm(headline(pd.concat([generations, failed]), baseline="vanilla"), "broken")

    assert (row["errors"], row["problems_timed"]) == (1, 0)
    assert row[["tokens_per_second", "speedup", "tau", "draft_ms"]].isna().all()


def test_the_headline_holds_the_accuracy_at_its_budgets(generations: pd.DataFrame, records: pd.DataFrame) -> None:
    table = headline(generations, records, baseline="vanilla")

    assert table["accuracy_1s"].tolist() == [0, 0]
    assert table["accuracy_5s"].tolist() == [0.5, 0.25]


def test_the_headline_holds_what_an_arm_has_over_the_baseline(generations: pd.DataFrame, records: pd.DataFrame) -> None:
    table = headline(generations, records, baseline="vanilla")

    assert table["difference_5s"].isna().tolist() == [True, False]
    assert of_arm(table, "diffusion")["difference_5s"] == -0.25
    assert [row["gain at 5 s"][:6] for row in cells(table)] == ["-", "-25.0%"]


def test_the_headline_holds_the_chance_of_several_samples(generations: pd.DataFrame, records: pd.DataFrame) -> None:
    table = headline(generations, records, baseline="vanilla")

    assert of_arm(table, "diffusion")[["pass_at_1", "pass_at_2"]].tolist() == [0.25, 0.5]
    assert "pass@2" in as_text(table)
    assert "pass@2" not in as_text(headline(generations, records[records["sample"] == 0], baseline="vanilla"))


def test_a_difference_is_paired_by_problem(records: pd.DataFrame) -> None:
    more = [record("diffusion", "c", budget, correct=True) for budget in (1.0, 5.0)]

    table = difference_table(pd.concat([records, records_frame(more)]), baseline="vanilla")

    assert table["difference"].tolist() == [0, (0.5 - 1) / 2]
    assert table[["low", "high"]].to_numpy().tolist() == [[0, 0], [-1, 0.5]]
    assert set(table["n"]) == {2}


def test_arms_without_a_problem_in_common_have_no_difference(records: pd.DataFrame, tmp_path: Path) -> None:
    apart = records[(records["arm"] == "vanilla") == (records["problem_id"] == "a")]

    table = difference_table(apart, baseline="vanilla")

    assert table.empty
    assert write_differences(table, tmp_path) == []


def test_the_chance_of_several_samples_is_there_for_every_budget(records: pd.DataFrame, tmp_path: Path) -> None:
    table = pass_table(records)

    assert set(table["arm"]) == {"diffusion"}
    assert table[["budget_seconds", "k", "pass_at_k"]].to_numpy().tolist() == [
        [1, 1, 0],
        [1, 2, 0],
        [5, 1, 0.25],
        [5, 2, 0.5],
    ]
    assert write_passes(table, tmp_path) == [tmp_path / "pass_at_k.csv"]


def test_a_budget_that_was_not_graded_is_refused(generations: pd.DataFrame, records: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="no records at a budget of 3 s; budgets there: 1, 5"):
        headline(generations, records, baseline="vanilla", budgets=[3])


def test_an_unknown_baseline_is_refused(generations: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="no arm 'eagle' in the data; arms there: vanilla, diffusion"):
        headline(generations, baseline="eagle")


def test_rows_of_two_settings_under_one_name_are_refused(generations: pd.DataFrame) -> None:
    stale = generations.assign(arm_id="older-id")

    with pytest.raises(ValueError, match="arm 'vanilla' at temperature 0 has rows of several arm_ids: older-id, van"):
        headline(pd.concat([generations, stale]), baseline="vanilla")


def test_the_printed_table_tells_how_many_problems_are_behind_it(generations: pd.DataFrame) -> None:
    diffusion = cells(headline(generations, baseline="vanilla"))[1]

    assert (diffusion["n"], diffusion["errors"], diffusion["tokens/s"]) == ("2 of 3", "1", "3.0")


def test_the_printed_table_is_the_same_in_text_and_markdown(generations: pd.DataFrame, records: pd.DataFrame) -> None:
    table = headline(generations, records, baseline="vanilla")
    shown = [text for row in cells(table) for text in row.values()]

    assert all(text in as_text(table) and text in as_markdown(table) for text in shown)


def test_a_pipe_in_a_name_does_not_break_the_markdown(generations: pd.DataFrame) -> None:
    named = generations.replace({"arm": {"diffusion": "a|b"}})

    assert "| a\\|b |" in as_markdown(headline(named, baseline="vanilla"))


def test_the_headline_is_written_as_csv_and_markdown(generations: pd.DataFrame, tmp_path: Path) -> None:
    table = headline(generations, baseline="vanilla")

    numbers, text = write_headline(table, tmp_path / "figures")

    assert pd.read_csv(numbers)["speedup"].tolist() == [1, 4]
    assert text.read_text().startswith("**Speed**")


def test_the_figure_leaves_a_png_an_svg_and_the_numbers(records: pd.DataFrame, tmp_path: Path) -> None:
    png, svg, numbers = draw_accuracy(records, tmp_path / "figures", title="By hand")

    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()
    assert pd.read_csv(numbers)["accuracy"].tolist() == [0, 0.5, 0, 0.25]


def test_the_numbers_of_the_figure_are_right(records: pd.DataFrame) -> None:
    table = accuracy_table(records)

    columns = ["arm", "temperature", "budget_seconds", "accuracy", "n", "samples", "share_cut", "clock", "policy"]
    assert table[columns].to_numpy().tolist() == [
        ["vanilla", 0.0, 1.0, 0.0, 2, 1.0, 1.0, "service", "last"],
        ["vanilla", 0.0, 5.0, 0.5, 2, 1.0, 0.5, "service", "last"],
        ["diffusion", 0.0, 1.0, 0.0, 2, 2.0, 1.0, "service", "last"],
        ["diffusion", 0.0, 5.0, 0.25, 2, 2.0, 0.0, "service", "last"],
    ]


def test_the_band_is_over_problems_whose_samples_were_averaged(records: pd.DataFrame) -> None:
    last = accuracy_table(records).iloc[-1]

    assert (last["low"], last["high"]) == (0, 0.5)


def test_the_same_records_draw_the_same_bytes(records: pd.DataFrame, tmp_path: Path) -> None:
    first, second = (draw_accuracy(records, tmp_path / name) for name in ("one", "two"))

    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_figure_is_drawn_for_one_budget_and_for_an_arm_missing_at_a_temperature(
    records: pd.DataFrame, tmp_path: Path
) -> None:
    hot = records[records["arm"] == "vanilla"].assign(temperature=1.0, arm_id="hot")
    late = pd.concat([records, hot]).query("budget_seconds == 5")

    files = draw_accuracy(late, tmp_path, arms=["diffusion", "vanilla"])

    assert all(path.stat().st_size for path in files)


def test_several_policies_need_a_choice(records: pd.DataFrame) -> None:
    both = pd.concat([records, records.assign(policy="strict")])

    with pytest.raises(ValueError, match="several values of policy: last, strict; choose one"):
        accuracy_table(both)
    assert len(select(both, policy="strict")) == len(records)


def test_a_clock_that_was_not_graded_is_refused(records: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="no records with clock 'decode'; the records hold: service"):
        accuracy_table(records, clock="decode")


def test_no_records_are_refused() -> None:
    with pytest.raises(ValueError, match="no records to analyse"):
        accuracy_table(records_frame([]))


def test_a_problem_without_some_budget_is_refused(records: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="arm 'diffusion': problem 'b' has no record at some budget"):
        accuracy_table(records.drop(records.index[-2:]))


def test_a_grader_that_gave_up_counts_as_not_correct() -> None:
    timed_out = replace(record("vanilla", "a", 1.0, correct=True), verdict="grader_timeout")

    assert records_frame([timed_out])["correct"].tolist() == [False]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_spread_names_keep_their_order_and_their_distance(positions: list[float]) -> None:
    placed = spread(positions, gap=0.1)

    by_wish = [where for _, where in sorted(zip(positions, placed, strict=True))]
    assert all(upper - lower >= 0.1 - 1e-9 for lower, upper in pairwise(by_wish))


def test_names_with_room_stay_at_the_ends_of_their_lines() -> None:
    assert spread([0.9, 0.1, 0.5], gap=0.1) == [0.9, 0.1, 0.5]


def test_crowded_budgets_lose_labels_not_ticks() -> None:
    assert sparse_labels([2, 5, 10, 20, 25, 60]) == ["2", "5", "10", "20", "", "60"]


def test_an_axis_where_nothing_was_solved_still_runs_from_zero_to_ten_percent() -> None:
    low, high = percent_limits(pd.DataFrame({"low": [0.0, 0.0], "high": [0.0, 0.0]}))

    assert -0.01 < low < 0
    assert 0.1 < high < 0.11


def test_no_two_arms_of_a_large_study_look_alike() -> None:
    looks = {(style.colour(position), style.marker(position)) for position in range(64)}

    assert len(looks) == 64
