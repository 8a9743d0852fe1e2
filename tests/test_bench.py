"""The bench with scripted engines: what it asks, what it says, what it writes, and how it refuses."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fake_engine
from engines.contract import Request
from fake_engine import FakeEngine, fake_engines
from harness.arms import Arm
from harness.bench import BENCH_STUDY, Bench
from harness.bench_result import ArmResult, known
from harness.cli import app
from harness.commands.bench_tables import interval
from harness.plan import plan_jobs
from harness.study import Study, at_temperature, read_study
from small_study import Doubling, Silent, use_fakes, write_study

WARM = ("temperatures = [0.0]", "temperatures = [0.0, 1.0]")
WIDE = ('drafter = "fake-drafter"', 'drafter = "fake-drafter"\nwindow = 8')


@pytest.fixture(autouse=True)
def _fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)


def bench(*arguments: object) -> Result:
    """`streak bench` in this process."""
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def numbers(study: Path, *arguments: object) -> dict[str, Any]:
    """The JSON file of a bench that went well."""
    result = bench(study, "--json", "found.json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(Path("found.json").read_text(encoding="utf-8"))
    return found


def assert_one_line(result: Result, *parts: str) -> None:
    """Exit code 2, and one line on stderr that names what was wrong."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("streak: ")
    for part in parts:
        assert part in line


def fast_arm(folder: Path) -> ArmResult:
    """The speculative arm of the doubling study."""
    study = read_study(write_study(folder, WIDE))
    with Bench(study, Doubling().problems(), fake_engines()) as measured:
        measured.prepare()
        _, fast = measured.results(measured.run(Silent()))
    return fast


def test_the_arms_take_turns_a_b_b_a_on_warm_engines(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path))
    log: list[Request] = []
    with Bench(study, Doubling().problems(), fake_engines(log)) as measured:
        measured.prepare()
        measured.run(Silent())

    assert [request.request_id for request in log] == [
        job.request.request_id for job in plan_jobs(study, Doubling().problems())
    ]
    assert [facts["warm_up"]["settled"] for facts in measured.facts.values()] == [True, True]


def test_arms_that_do_not_fit_side_by_side_are_benched_one_after_the_other(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, more="[engine]\ninterleave = false\n"))
    opened: list[FakeEngine] = []
    most_open: list[int] = []

    def open_engine(study: Study, arm: Arm) -> FakeEngine:
        most_open.append(sum(not engine.closed for engine in opened) + 1)
        opened.append(FakeEngine(study.model, speculation=arm.speculation))
        return opened[-1]

    with Bench(study, Doubling().problems(), open_engine) as measured:
        measured.prepare()
        generations = measured.run(Silent())

    assert most_open == [1, 1]
    assert [generation.arm for generation in generations] == ["vanilla"] * 4 + ["fast"] * 4


def test_the_json_says_of_each_arm_what_it_is_worth(tmp_path: Path) -> None:
    fast = numbers(write_study(tmp_path, WIDE))["arms"]["fast"]

    assert fast["speedup"]["low"] <= fast["speedup"]["value"] <= fast["speedup"]["high"]
    assert fast["tokens_per_second"] == pytest.approx(100 * fast["speedup"]["value"])
    assert fast["ms"] == pytest.approx({"draft": 2, "verify": 6, "other": 2})
    assert 2 < fast["tau"] < fast["tau_with_bonus"] <= 4
    assert (fast["n_problems"], fast["errors"], fast["temperature"]) == (4, 0, 0)
    assert fast["rounds"] > 4


def test_the_baseline_is_its_own_measure(tmp_path: Path) -> None:
    vanilla = numbers(write_study(tmp_path))["arms"]["vanilla"]

    assert vanilla["speedup"] == {"value": 1, "low": 1, "high": 1}
    assert vanilla["limit_share"] == 1
    assert (vanilla["tau"], vanilla["break_even_tau"], vanilla["alpha"]) == (0, pytest.approx(0), [])


def test_alpha_is_one_up_to_the_scripted_streak_and_none_behind_it(tmp_path: Path) -> None:
    fast = numbers(write_study(tmp_path, WIDE))["arms"]["fast"]

    assert fast["alpha"] == [1, 1, 1, 0, None, None, None, None]
    assert fast["tested"][4:] == [0, 0, 0, 0]


def test_the_limit_is_that_of_bare_forwards(tmp_path: Path) -> None:
    """Scripted: a plain step takes 4 ms, a window of 8 takes 0.8 ms, its verification 5 ms."""
    fast = fast_arm(tmp_path)

    assert fast.bare is not None
    assert fast.bare.nodes == fake_engine.DRAFTED
    assert fast.limit == pytest.approx((fast.speeds["tau"] + 1) * 4 / (0.8 + 5))
    assert fast.limit_share == pytest.approx(fast.speeds["speedup"] / fast.limit)


def test_the_needed_tau_is_that_of_the_measured_step_times(tmp_path: Path) -> None:
    """Scripted: rounds of both arms take 10 ms."""
    fast = fast_arm(tmp_path)

    assert fast.break_even_tau == pytest.approx(0)
    assert [fast.needed_tau(speedup) for speedup in (2, 3, 4)] == pytest.approx([1, 2, 3])


def test_several_temperatures_are_several_rows_by_name_and_temperature(tmp_path: Path) -> None:
    assert list(numbers(write_study(tmp_path, WARM))["arms"]) == ["vanilla T=0", "fast T=0", "vanilla T=1", "fast T=1"]


def test_one_temperature_is_one_row_by_name(tmp_path: Path) -> None:
    arms = numbers(write_study(tmp_path, WARM), "--temperature", 1)["arms"]

    assert {name: arm["temperature"] for name, arm in arms.items()} == {"vanilla": 1, "fast": 1}


def test_a_temperature_that_the_study_does_not_have_is_one_line(tmp_path: Path) -> None:
    result = bench(write_study(tmp_path, WARM), "--temperature", 0.5)

    assert_one_line(result, "--temperature = 0.5", "[arm.vanilla]: 0, 1")


def test_arms_without_the_temperature_are_left_out(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, WARM, ("[arm.fast]", "[arm.fast]\ntemperatures = [1.0]")))

    assert [arm.name for arm in at_temperature(study, 0.0).arms] == ["vanilla"]


def test_only_the_first_problems_are_asked(tmp_path: Path) -> None:
    assert numbers(write_study(tmp_path), "--problems", 2)["arms"]["vanilla"]["n_problems"] == 2


def test_provenance_names_study_clock_and_engines(tmp_path: Path) -> None:
    provenance = numbers(write_study(tmp_path))["provenance"]

    assert provenance["clock"] == "decode"
    assert provenance["study"]["title"] == "Doubling"
    assert [engine["arms"] for engine in provenance["engines"]] == [["vanilla"], ["fast"]]


def test_nothing_but_the_json_file_is_written(tmp_path: Path) -> None:
    numbers(write_study(tmp_path / "study"))

    assert {path.name for path in tmp_path.iterdir()} == {"study", "found.json"}


def test_the_tables_fit_a_hundred_columns(tmp_path: Path) -> None:
    result = bench(write_study(tmp_path, WIDE, WARM, ("[arm.fast]", '[arm."specdiff2-paper-k8"]')))

    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 100
    for heading in ("speed-up", "break-even", "reached", "for 4 x", "Temperature 1"):
        assert heading in result.stdout


def test_a_wide_window_is_shown_in_part(tmp_path: Path) -> None:
    wide = (WIDE[0], WIDE[1].replace("8", "64"))
    result = bench(write_study(tmp_path, wide))

    assert max(map(len, result.stdout.splitlines())) <= 100
    assert len(numbers(tmp_path)["arms"]["fast"]["alpha"]) == 64


@pytest.mark.parametrize("place", ["nowhere/found.json", ".", "/dev/null"])
def test_a_json_file_that_cannot_be_written_is_one_line_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("fake_engine.FakeEngine.warm_up", lambda *_: pytest.fail("it measured"))

    assert_one_line(bench(write_study(tmp_path), "--json", place), "--json", place)


def test_an_unknown_study_is_one_line() -> None:
    assert_one_line(bench("nowhere"), "nowhere: no such study")


def test_a_model_that_cannot_be_opened_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("no such directory")

    monkeypatch.setattr("fake_engine.FakeEngine.__init__", refuse)

    assert_one_line(bench(write_study(tmp_path)), "[arm.vanilla]: no such directory")


def test_failed_requests_are_counted_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = FakeEngine.answer

    def fail_one(self: FakeEngine, request: Request) -> Any:
        failed = "2 + 2" in request.messages[-1]["content"]
        return fake_engine.failure(request) if failed else answer(self, request)

    monkeypatch.setattr("fake_engine.FakeEngine.answer", fail_one)
    study = write_study(tmp_path)
    fast = numbers(study)["arms"]["fast"]

    assert (fast["n_problems"], fast["errors"]) == (3, 1)
    assert "2 requests failed and count in no number, the first: the prompt does not fit" in bench(study).stderr


def test_a_bench_without_an_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_engine.FakeEngine.answer", lambda _, request: fake_engine.failure(request))

    assert_one_line(bench(write_study(tmp_path)), "no request was answered", "the prompt does not fit")


def test_an_end_that_is_unknown_or_without_bound_is_a_dash_or_inf_and_null_in_json() -> None:
    """A resample may hold no problem in which the other arm accepted anything: its ratio has no bound."""
    ends = {"tau_ratio": 3.28, "tau_ratio_low": 1.0}

    assert interval(ends | {"tau_ratio_high": math.inf}, "tau_ratio") == "3.28 [1.00, inf]"
    assert interval(ends | {"tau_ratio_high": math.nan}, "tau_ratio") == "3.28 [1.00, -]"
    assert interval(ends | {"tau_ratio_low": 3.28, "tau_ratio_high": 3.28}, "tau_ratio") == "3.28"
    assert [known(value) for value in (math.inf, math.nan, 1.5)] == [None, None, 1.5]


def test_a_speculative_baseline_has_no_limit(tmp_path: Path) -> None:
    arms = numbers(write_study(tmp_path, ("[arm.vanilla]", '[study]\nbaseline = "fast"\n[arm.vanilla]')))["arms"]

    assert arms["fast"]["speedup"]["value"] == 1
    assert arms["vanilla"]["limit_share"] is None


def test_an_interrupt_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fake_engine.FakeEngine.answer", interrupt)
    result = bench(write_study(tmp_path))

    assert (result.exit_code, result.stderr) == (130, "streak: interrupted; a bench keeps nothing\n")


def test_a_drafter_is_timed_at_each_context_and_window(tmp_path: Path) -> None:
    """Scripted: 0.1 ms a place of the window, whatever the context and its cache."""
    found = numbers(write_study(tmp_path), "--context", "512,256", "--window", "8, 32")["drafters"]

    with_cache, without = "fake-drafter", "fake-drafter, no prefix cache"
    assert [(each["drafter"], each["context"], each["window"], each["ratio"]) for each in found] == [
        (with_cache, 256, 16, 1),
        (with_cache, 512, 16, 1),
        (without, 256, 16, 1),
        (without, 512, 16, 1),
        (with_cache, 256, 8, 1),
        (with_cache, 256, 32, pytest.approx(4)),
    ]
    assert [each["milliseconds"] for each in found] == pytest.approx([1.6, 1.6, 1.6, 1.6, 0.8, 3.2])


def test_a_drafter_is_timed_once_whatever_its_shapes(tmp_path: Path) -> None:
    tree = '[arm.tree]\ndrafter = "fake-drafter"\nshape = "tree"\nnodes = 24\n'
    plain = '[arm.lookup]\ndrafting = "ngram"\n[arm.sps]\ndrafter = "small"\ndrafting = "autoregressive"\n'
    found = numbers(write_study(tmp_path, more=tree + plain), "--window", "8")["drafters"]

    assert [(each["arm"], each["drafter"]) for each in found] == [("fast", "fake-drafter")]


def test_a_context_beyond_the_models_is_left_out_in_one_line(tmp_path: Path) -> None:
    result = bench(write_study(tmp_path), "--context", "512,2048")

    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert line == (
        "left out: fake-drafter after 2048 with window 16, fake-drafter, no prefix cache after 2048 with window 16: "
        "context = 2048 is not allowed; allowed: at most 1024 tokens"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--context", "2048"), "[arm.fast], --context: context = 2048 is not allowed; allowed: at most 1024"),
        (("--context", "256,x"), "--context = '256,x' is not allowed; allowed: whole numbers from 1"),
        (("--context", ""), "--context = '' is not allowed"),
        (("--context", "0"), "--context = '0' is not allowed"),
        (("--window", "8,-1"), "--window = '8,-1' is not allowed"),
        (("--window", "8,999"), "allowed: whole numbers from 1 to 256"),
    ],
)
def test_a_context_or_window_that_cannot_be_is_one_line(tmp_path: Path, arguments: tuple[str, str], part: str) -> None:
    assert_one_line(bench(write_study(tmp_path), *arguments), part)


def test_a_study_without_a_diffusion_drafter_has_none_to_time(tmp_path: Path) -> None:
    study = write_study(tmp_path, ('drafter = "fake-drafter"', 'drafting = "ngram"'))

    assert_one_line(bench(study, "--context", "256"), "no arm has a diffusion drafter")


def test_the_bundled_bench_is_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real task
    study = read_study(BENCH_STUDY)

    assert (study.name, study.baseline, study.clock) == ("bench", "vanilla", "decode")
    assert [arm.name for arm in study.arms] == [
        "vanilla",
        "specdiff",
        "specdiff2",
        "specdiff2-tree",
        "specdiff2-paper-k8",
        "specdiff2-auto",
        "sps",
        "ngram",
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--against", "fast", "--window", "4"), "--against, --context or --window"),
        (("--concurrency", "1", "--context", "64"), "--concurrency, --context or --window"),
    ],
)
def test_options_of_two_benches_are_one_line(tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    assert_one_line(bench(write_study(tmp_path / "doubling"), *options), f"{named}: not together")
