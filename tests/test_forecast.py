"""Forecasts: rounds played on recorded texts are the engine's own, and leviathan's have the engine's law."""

import json
import random
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from engines.contract import BareForwards, Request
from engines.decoding import Decoding
from engines.drafters.contract import Draft
from engines.forecast import RecordedText
from engines.forecasting import flops_ratio, forecast_rounds
from engines.live import Live
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.speculation import Speculation
from engines.speculative.verification import Verdict
from harness.cli import app
from harness.forecast import Asked, Forecast, StepTimes, forecasts
from results.acceptance import acceptance
from results.records import Round
from tasks.contract import Problem
from tiny_models import write_drafter, write_model

WORDS = ("Mia", "has", "42", "coins", "finds", "17", "step", "by", "answer", "work")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return write_model(folder / "verifier"), write_drafter(folder / "drafter", near=0)


def requests(count: int, temperature: float) -> list[Request]:
    rng = random.Random(4)
    return [
        Request(
            request_id=str(at),
            messages=[{"role": "user", "content": " ".join(rng.choices(WORDS, k=6))}],
            sampling=Sampling(temperature=temperature, max_tokens=40, seed=at),
        )
        for at in range(count)
    ]


def recorded(engine: ReferenceEngine, asked: list[Request]) -> list[RecordedText]:
    return [
        RecordedText(
            prompt_ids=engine.chat.prompt_ids(request.messages),
            response_ids=list(engine.complete(request).token_ids),
            sampling=request.sampling,
        )
        for request in asked
    ]


def counts(rounds: list[tuple[Round, ...]]) -> list[list[tuple[int, int, int]]]:
    return [[(each.kept, each.drafted, each.accepted) for each in own] for own in rounds]


ARMS = [
    {"window": 4},
    {"window": 4, "rule": "paper"},
    {"window": 5, "shape": "tree", "nodes": 12},
    {"window": 4, "shape": "iid", "num_drafts": 3},
    {"window": 4, "steps": 2},
    {"window": 4, "draft_temperature": 0.7},
]


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rounds_played_on_plain_texts_are_those_that_the_engine_makes(
    models: tuple[Path, Path], arm: dict[str, object], temperature: float
) -> None:
    verifier, drafter = models
    speculation = Speculation(drafter=str(drafter), **arm)  # type: ignore[arg-type] # settings of many types
    asked, plain = requests(6, temperature), ReferenceEngine(str(verifier))
    texts = recorded(plain, asked)

    forecast = forecast_rounds(verifier, plain.chat, speculation, texts, number_format="float32")

    engine = ReferenceEngine(str(verifier), speculation=speculation)
    assert counts(forecast) == counts([engine.complete(request).rounds for request in asked])
    assert acceptance(forecast, 4).accepted > 0


def test_drafts_of_other_kinds_are_played_too(models: tuple[Path, Path]) -> None:
    verifier, _ = models
    asked, plain = requests(6, 0.0), ReferenceEngine(str(verifier))

    forecast = forecast_rounds(
        verifier, plain.chat, Speculation(drafting="ngram", window=3), recorded(plain, asked), number_format="float32"
    )

    engine = ReferenceEngine(str(verifier), speculation=Speculation(drafting="ngram", window=3))
    assert counts(forecast) == counts([engine.complete(request).rounds for request in asked])


def test_leviathan_is_forecast_within_the_noise_of_its_coins(models: tuple[Path, Path]) -> None:
    """240 texts of 40 tokens, seeds fixed; the tolerance is about three standard errors of a difference."""
    verifier, drafter = models
    speculation = Speculation(drafter=str(drafter), window=4, rule="leviathan")
    asked, plain = requests(240, 1.0), ReferenceEngine(str(verifier), concurrency=16)

    forecast = forecast_rounds(verifier, plain.chat, speculation, recorded(plain, asked), number_format="float32")

    engine = ReferenceEngine(str(verifier), speculation=speculation)
    measured = acceptance([engine.complete(request).rounds for request in asked], 4)
    found = acceptance(forecast, 4)
    assert min(found.rounds, measured.rounds) > 2000
    assert found.tau == pytest.approx(measured.tau, abs=0.08)
    assert found.alpha[0] == pytest.approx(measured.alpha[0], abs=0.04)


@pytest.mark.parametrize(
    ("arm", "part"),
    [
        (
            {"rule": "specinfer", "shape": "iid", "num_drafts": 2},
            "rule 'specinfer' with shape 'iid' cannot be forecast",
        ),
        ({"rule": "paper", "shape": "tree", "nodes": 20}, "rule 'paper' with shape 'tree' cannot be forecast"),
        ({"shape": "tree", "nodes": "auto"}, "not 'auto'"),
    ],
)
def test_an_arm_that_texts_do_not_settle_is_refused(
    models: tuple[Path, Path], arm: dict[str, object], part: str
) -> None:
    verifier, drafter = models
    plain = ReferenceEngine(str(verifier))
    speculation = Speculation(drafter=str(drafter), **arm)  # type: ignore[arg-type] # settings of many types

    with pytest.raises(ValueError, match=part):
        forecast_rounds(verifier, plain.chat, speculation, recorded(plain, requests(1, 0.0)), number_format="float32")


def test_the_command_holds_the_forecast_against_the_engine(models: tuple[Path, Path], tmp_path: Path) -> None:
    verifier, drafter = models
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"question": w, "answer": "#### 1"}) + "\n" for w in WORDS))
    out = tmp_path / "forecast.json"

    size = ["--problems", "4", "--window", "4", "--max-tokens", "20", "--number-format", "float32"]
    data = ["--task", "gsm8k", "--source", str(tmp_path / "p.jsonl"), "--json", str(out)]
    result = CliRunner().invoke(app, ["forecast", str(drafter), "--against", str(verifier), *size, *data])

    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())["forecasts"]
    assert [each["temperature"] for each in found] == [0.0, 1.0]
    assert all(each["tau"] == each["measured"]["tau"] for each in found)
    assert all(each["speedup"] > 0 and each["limit"] > 0 and each["flops_ratio"] > 0 for each in found)


def test_a_speed_up_is_the_kept_tokens_by_the_seconds_of_whole_steps_and_rounds() -> None:
    rounds = [Round(seconds=0.0, kept=1, chars=0), Round(seconds=0.0, kept=6, chars=0, drafted=8, accepted=5)]
    forwards = BareForwards(draft_seconds=0.001, verify_seconds=0.001)
    times = StepTimes(step_seconds=0.002, round_seconds=0.004, bare_step_seconds=0.001, forwards=forwards)

    forecast = Forecast(
        temperature=0.0, acceptance=acceptance([rounds], 8), times=times, flops_ratio=2.0, measured=None
    )

    assert forecast.speedup == pytest.approx(6 * 0.002 / 0.004)
    assert forecast.limit == pytest.approx(6 * 0.001 / 0.002)


def test_what_a_round_takes_beside_its_forwards_is_in_the_forecast(
    models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookkeeping of a draft takes 50 ms here, many times its forwards."""
    verifier, drafter = models
    accept = Decoding.accept

    def slowly(self: Decoding, live: Live, draft: Draft, scores: torch.Tensor) -> Verdict:
        if draft.tree.tokens:
            time.sleep(0.05)
        return accept(self, live, draft, scores)

    monkeypatch.setattr(Decoding, "accept", slowly)
    asked = Asked(
        verifier=str(verifier),
        speculation=Speculation(drafter=str(drafter), window=4),
        problems=[problem("Mia has 42")],
        temperatures=(1.0,),
        max_tokens=12,
        number_format="float32",
        threads=1,
        measure=False,
        fresh=False,
    )

    (forecast,) = forecasts(asked)

    assert forecast.times.round_seconds > 0.05
    assert forecast.speedup < forecast.limit / 3


def problem(text: str) -> Problem:
    return Problem(problem_id=text, messages=({"role": "user", "content": text},), gold="")


@pytest.mark.parametrize(
    ("steps", "prefix_cache", "read"), [(1, True, 6), (2, True, 6), (1, False, 50), (2, False, 100)]
)
def test_flops_count_the_rows_of_both_models(
    models: tuple[Path, Path], steps: int, prefix_cache: bool, read: int
) -> None:
    """One round of 4 drafted nodes that keeps 6 tokens after 50; the drafter's rows are those read, and its windows."""
    verifier, drafter = models
    rounds = [[Round(seconds=0.0, kept=1, chars=0), Round(seconds=0.0, kept=6, chars=0, drafted=4, accepted=5)]]
    speculation = Speculation(drafter=str(drafter), window=4, steps=steps, prefix_cache=prefix_cache)

    found = flops_ratio(verifier, speculation, rounds, context=50)

    layer, head, attention = 32 * (2 * 32 + 2 * 16) + 3 * 32 * 48, 512 * 32, 4 * 32 * 50
    target, draft = 2 * (2 * layer + head) + 2 * attention, 2 * (layer + head) + attention
    assert found == pytest.approx((5 * target + (read + 4 * steps) * draft) / (6 * target))


def test_a_drafter_that_does_not_fit_is_one_line(models: tuple[Path, Path]) -> None:
    verifier, _ = models

    result = CliRunner().invoke(app, ["forecast", "nowhere", "--against", str(verifier), "--problems", "1"])

    assert result.exit_code == 2
    assert "model 'nowhere': no such directory" in result.stderr.splitlines()[0]


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_a_verifier_that_there_is_not_is_one_line(models: tuple[Path, Path], name: str) -> None:
    _, drafter = models

    result = CliRunner().invoke(app, ["forecast", str(drafter), "--against", name, "--problems", "1"])

    assert result.exit_code == 2
    assert f"model {name!r}: no such directory" in result.stderr.splitlines()[0]


def test_a_number_format_that_there_is_not_is_one_line(models: tuple[Path, Path]) -> None:
    verifier, drafter = models

    result = CliRunner().invoke(app, ["forecast", str(drafter), "--against", str(verifier), "--number-format", "int8"])

    assert result.exit_code == 2
    assert "number_format = 'int8' is not allowed; allowed: float32, bfloat16" in result.stderr.splitlines()[0]
