"""The measured half: what is asked of the engines, in which order, and what survives an end at any moment."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.contract import Engine, Request
from fake_engine import FakeEngine, fake_engines
from harness.arms import Arm
from harness.generate import SESSIONS_FILE, Session, SessionResult, Writer
from harness.grade import RECORDS_FILE, grade_run
from harness.plan import GENERATIONS_FILE, plan_jobs, read_run
from harness.study import Study, read_study
from results.ledger import Ledger, read_records, read_rows
from small_study import Doubling, Silent, use_fakes, write_study

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read_study(write_study(tmp_path / "doubling"))


def run(study: Study, folder: Path, task: Doubling | None = None, **behaviour: Any) -> list[Request]:
    """Run what is missing and return the requests that were made."""
    log: list[Request] = []
    problems = (task or Doubling()).problems()
    with Session(study, problems, folder, fake_engines(log, **behaviour)) as session:
        session.run(Silent())
    return log


def grades(study: Study, folder: Path) -> bytes:
    grade_run(study, Doubling(), Doubling().problems(), folder)
    return (folder / RECORDS_FILE).read_bytes()


def test_the_arms_take_turns_a_b_b_a(study: Study) -> None:
    order = [(job.problem.problem_id, job.cell.arm.name) for job in plan_jobs(study, Doubling().problems())]

    assert order == [
        ("double/1", "vanilla"),
        ("double/1", "fast"),
        ("double/2", "fast"),
        ("double/2", "vanilla"),
        ("double/3", "vanilla"),
        ("double/3", "fast"),
        ("double/4", "fast"),
        ("double/4", "vanilla"),
    ]


def test_the_samples_of_a_problem_take_turns_too(study: Study) -> None:
    jobs = plan_jobs(replace(study, samples=2), Doubling(num_problems=1).problems())

    assert [(job.sample, job.cell.arm.name) for job in jobs] == [
        (0, "vanilla"),
        (0, "fast"),
        (1, "fast"),
        (1, "vanilla"),
    ]


def test_a_seed_belongs_to_problem_and_sample_and_not_to_the_arm(study: Study) -> None:
    jobs = plan_jobs(replace(study, samples=2), Doubling().problems())
    seeds = {(job.problem.problem_id, job.sample): job.request.sampling.seed for job in jobs}

    assert all(job.request.sampling.seed == seeds[job.problem.problem_id, job.sample] for job in jobs)
    assert len(set(seeds.values())) == 8


def test_a_seed_is_the_same_in_every_process(study: Study) -> None:
    assert plan_jobs(study, Doubling().problems())[0].request.sampling.seed == 3422438727209271461


def test_two_problems_with_one_id_are_refused(study: Study) -> None:
    problem = Doubling().problems()[0]

    with pytest.raises(ValueError, match="two problems have the id 'double/1'"):
        plan_jobs(study, [problem, problem])


def test_every_request_runs_to_the_largest_budget(study: Study, tmp_path: Path) -> None:
    assert {request.budget_seconds for request in run(study, tmp_path)} == {0.2}


def test_on_the_clock_decode_the_prefill_has_time_of_its_own(study: Study, tmp_path: Path) -> None:
    assert {request.budget_seconds for request in run(replace(study, clock="decode"), tmp_path)} == {1.2}


def test_cells_that_differ_in_temperature_only_share_an_engine(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "doubling", ("[0.0]", "[0.0, 1.0]")))
    opened: list[FakeEngine] = []

    def open_engine(study: Study, arm: Arm) -> Engine:
        opened.append(FakeEngine(study.model, speculation=arm.speculation))
        return opened[-1]

    with Session(study, Doubling().problems(), tmp_path / "run", open_engine) as session:
        session.run(Silent())

    assert [len(engine.log) for engine in opened] == [8, 8]
    assert all(engine.warmed and engine.closed for engine in opened)


def test_a_finished_run_opens_no_engine(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)

    def open_engine(study: Study, arm: Arm) -> Engine:
        raise AssertionError("an engine was opened")

    with Session(study, Doubling().problems(), tmp_path, open_engine) as session:
        assert session.todo == []


def test_a_session_records_what_it_ran_and_how_long(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)
    opened, ended = read_rows(tmp_path / SESSIONS_FILE)

    assert opened["study"]["arm_ids"] == {cell.label: cell.arm_id for cell in study.cells}
    assert [engine["arms"] for engine in opened["engines"]] == [["vanilla"], ["fast"]]
    assert all(engine["warm_up"]["settled"] and engine["describe"]["engine"] == "fake" for engine in opened["engines"])
    assert "packages" in opened["provenance"]
    assert (ended["event"], ended["completed"]) == ("finished", 8)
    assert ended["wall_seconds"] >= ended["engine_seconds"] > 0


def test_overhead_is_wall_over_engine_seconds() -> None:
    result = SessionResult(completed=1, failed=0, wall_seconds=10.1, engine_seconds=10.0)

    assert result.overhead == pytest.approx(1.01)


def test_what_surrounds_the_engines_takes_next_to_no_time(study: Study, tmp_path: Path) -> None:
    problems = Doubling(num_problems=10).problems()
    with Session(study, problems, tmp_path, fake_engines(pause_seconds=0.05)) as session:
        result = session.run(Silent())

    assert result.overhead is not None
    assert result.overhead < 1.2  # a bound that holds on a busy machine; the demo prints the real ratio


def test_a_smaller_budget_needs_no_new_generation(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)

    assert run(replace(study, budgets=(0.02, 0.05, 0.1, 0.2)), tmp_path) == []


def test_a_larger_budget_makes_only_what_the_old_one_cut_off(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)
    cut = {g.completion.request_id for g in read_run(tmp_path) if g.completion.finish_reason == "budget"}
    larger = replace(study, budgets=(0.05, 0.1, 0.2, 9.0))

    assert 0 < len(cut) < 8
    assert {request.request_id for request in run(larger, tmp_path)} == cut
    assert run(larger, tmp_path) == []


def test_a_larger_budget_leads_to_the_records_of_a_fresh_run(study: Study, tmp_path: Path) -> None:
    larger = replace(study, budgets=(0.05, 0.1, 0.2, 9.0))
    run(study, tmp_path / "grown")
    run(larger, tmp_path / "grown")
    run(larger, tmp_path / "fresh")

    assert grades(larger, tmp_path / "grown") == grades(larger, tmp_path / "fresh")


def test_going_back_to_a_smaller_budget_needs_no_new_generation(study: Study, tmp_path: Path) -> None:
    run(replace(study, budgets=(0.05, 0.1, 0.2, 9.0)), tmp_path)

    assert run(study, tmp_path) == []


def test_a_new_sample_or_problem_or_arm_makes_only_its_own_requests(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)
    slow = replace(study.arms[0], name="slow", threads=2)

    assert len(run(replace(study, samples=2), tmp_path)) == 8
    assert len(run(replace(study, samples=2), tmp_path, Doubling(num_problems=5))) == 4
    assert len(run(replace(study, arms=(*study.arms, slow)), tmp_path)) == 4


def test_a_renamed_arm_keeps_its_generations(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)
    renamed = replace(study, arms=(replace(study.arms[0], name="plain"), study.arms[1]))

    assert run(renamed, tmp_path) == []
    grades(renamed, tmp_path)
    assert {record.arm for record in read_records(tmp_path / RECORDS_FILE)} == {"plain", "fast"}


def test_an_edited_prompt_is_asked_again(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)

    assert len(run(study, tmp_path, Doubling(hint="Think. "))) == 8


def test_a_request_that_fails_is_recorded_and_the_others_go_on(study: Study, tmp_path: Path) -> None:
    log = run(study, tmp_path, fails_on="What is 2 ")
    failed = [g.problem_id for g in read_run(tmp_path) if g.completion.finish_reason == "error"]

    assert len(log) == 8
    assert failed == ["double/2", "double/2"]


def test_other_weights_under_the_same_name_are_refused(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)

    with pytest.raises(ValueError, match="was measured with model_digest '0', now it is '1'"):
        run(replace(study, samples=2), tmp_path, digest="1")


def test_a_run_folder_has_one_writer_at_a_time(study: Study, tmp_path: Path) -> None:
    problems = Doubling().problems()
    first = Session(study, problems, tmp_path, fake_engines())

    with first, pytest.raises(BlockingIOError, match="another process writes"):
        Session(study, problems, tmp_path, fake_engines())


def unfit_engine(study: Study, arm: Arm) -> Engine:
    raise ValueError("no such model")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("there", [[], ["runs"], ["runs", "runs/doubling"], ["runs", "runs/doubling", "runs/other"]])
def test_a_model_that_does_not_fit_leaves_no_run_folder(study: Study, tmp_path: Path, there: list[str]) -> None:
    for name in there:
        (tmp_path / name).mkdir()
    before = contents(tmp_path)

    session = Session(study, Doubling().problems(), tmp_path / "runs/doubling", unfit_engine)
    with session, pytest.raises(ValueError, match="no such model"):
        session.prepare()

    assert contents(tmp_path) == before


def test_a_model_that_does_not_fit_leaves_an_earlier_run_as_it_was(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path / "run")
    before = contents(tmp_path)

    session = Session(replace(study, samples=2), Doubling().problems(), tmp_path / "run", unfit_engine)
    with session, pytest.raises(ValueError, match="no such model"):
        session.prepare()

    assert contents(tmp_path) == before


def test_an_interrupted_warm_up_leaves_no_run_folder(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeEngine, "warm_up", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "run")

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("engines", [5, [5], [{"describe": 5, "engine_id": "x"}]])
def test_a_row_of_sessions_that_is_none_is_named(study: Study, tmp_path: Path, engines: object) -> None:
    row = {"session": 1, "event": "opened", "engines": engines}
    (tmp_path / SESSIONS_FILE).write_text(json.dumps(row) + "\n")

    with pytest.raises(ValueError, match=rf"{SESSIONS_FILE}: session 1: engines = .* is not allowed"):
        run(study, tmp_path)


def test_what_the_disk_refuses_is_raised_at_the_next_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise OSError("no space left")

    monkeypatch.setattr(Ledger, "append", refuse)
    with Ledger(tmp_path / "rows.jsonl") as ledger:
        writer = Writer(ledger)
        writer.append({})

        with pytest.raises(OSError, match="no space left"):
            writer.close()


def test_an_interrupt_keeps_what_is_finished(study: Study, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path, interrupt_at=3)

    assert len(list(read_run(tmp_path))) == 3
    assert [row["event"] for row in read_rows(tmp_path / SESSIONS_FILE)] == ["opened", "interrupted"]


def test_an_interrupted_run_goes_on_to_the_same_records(study: Study, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "stopped", interrupt_at=3)
    rest = run(study, tmp_path / "stopped")
    run(study, tmp_path / "whole")

    assert len(rest) == 5
    assert grades(study, tmp_path / "stopped") == grades(study, tmp_path / "whole")


CHILD = """
import sys
from pathlib import Path
from fake_engine import fake_engines
from small_study import Doubling, Silent, install_fakes
from harness.generate import Session
from harness.study import read_study
install_fakes()
study = read_study(Path(sys.argv[1]))
with Session(study, Doubling().problems(), Path(sys.argv[2]), fake_engines(pause_seconds=0.02)) as session:
    session.run(Silent())
"""


def start_child(study: Study, folder: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, study.folder, folder],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )


def wait_for_lines(folder: Path, count: int) -> None:
    """Wait until the ledger has so many lines, at most a minute."""
    path = folder / GENERATIONS_FILE
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path}: fewer than {count} lines")
        time.sleep(0.002)


def test_a_run_killed_at_any_moment_goes_on_to_the_same_records(study: Study, tmp_path: Path) -> None:
    rng = random.Random(0)
    for lines in (0, 1, 3, 4, 7):
        child = start_child(study, tmp_path / "killed")
        wait_for_lines(tmp_path / "killed", lines)
        time.sleep(rng.uniform(0, 0.03))
        child.send_signal(signal.SIGKILL)
        child.wait()
    run(study, tmp_path / "killed")
    run(study, tmp_path / "whole")

    assert grades(study, tmp_path / "killed") == grades(study, tmp_path / "whole")


def test_a_line_torn_by_a_kill_is_made_again(study: Study, tmp_path: Path) -> None:
    run(study, tmp_path)
    whole = grades(study, tmp_path)
    path = tmp_path / GENERATIONS_FILE
    path.write_bytes(path.read_bytes()[:-40])

    assert len(run(study, tmp_path)) == 1
    assert grades(study, tmp_path) == whole
