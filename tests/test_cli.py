"""The `streak` command: what it prints, and how it ends when something is wrong."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engines.speculation import RULES
from harness import catalog
from harness.cli import app
from harness.demo import DEMO_STUDY
from harness.study import read_study
from small_study import use_fakes, write_study
from tiny_models import write_model

ROOT = Path(__file__).parents[1]


def streak(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def assert_one_line(result: Result, *parts: str) -> None:
    """The command refused its input: exit code 2, and one line on stderr that names what was wrong."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("streak: ")
    for part in parts:
        assert part in line


@pytest.fixture
def doubling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of the fakes, in the current directory."""
    use_fakes(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return write_study(tmp_path / "doubling")


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (("[arm.fast]", "[arm.fast]\nwindows = 3"), "unknown key 'windows' in [arm.fast]"),
        (("[arm.fast]", "[arms.fast]"), "unknown key 'arms'"),
        (("[0.05, 0.1, 0.2]", "[0]"), "seconds = [0]"),
        (("[0.05, 0.1, 0.2]", "[0.1, -2]"), "seconds = [0.1, -2]"),
        (("[0.05, 0.1, 0.2]", "[0.1, 0.1]"), "seconds = [0.1, 0.1]"),
        (("[arm.vanilla]", '[study]\nbaseline = "nope"\n[arm.vanilla]'), "baseline = 'nope'"),
    ],
)
def test_a_mistake_in_the_study_is_one_line(doubling: Path, edit: tuple[str, str], part: str) -> None:
    write_study(doubling, edit)

    assert_one_line(streak("run", doubling), "study.toml", part)


def test_a_missing_study_is_one_line(tmp_path: Path) -> None:
    assert_one_line(streak("run", tmp_path / "nowhere"), "nowhere")


def data_study(folder: Path, task: str, rows: list[dict[str, str]] | None) -> Path:
    """A study of a local data file; None leaves the file out."""
    if rows is not None:
        folder.mkdir(exist_ok=True)
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_study(folder, ('name = "arithmetic"\nnum_problems = 4', f'name = "{task}"\nsource = "data.jsonl"'))


@pytest.mark.parametrize("out", ["file", "file/below", "folder"])
@pytest.mark.parametrize("command", ["run", "grade", "keep", "demo"])
def test_a_file_where_runs_shall_lie_is_one_line_that_names_the_option(
    doubling: Path, monkeypatch: pytest.MonkeyPatch, command: str, out: str
) -> None:
    monkeypatch.setattr("harness.commands.demo.DEMO_STUDY", doubling)
    Path("folder").mkdir()
    for path in (Path("file"), Path("folder/doubling")):
        path.write_text("in the way")
    study = [] if command == "demo" else [doubling]

    assert_one_line(
        streak(command, *study, "--out", out),
        "--out: ",
        out.split("/", maxsplit=1)[0],
        "is a file; it must be a folder",
    )


def test_a_file_where_the_recipe_shall_work_is_one_line_that_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    assert_one_line(streak("embedded", "--work", tmp_path / "file"), "--work: ", "file is a file; it must be a folder")


def test_a_missing_data_file_is_one_line(tmp_path: Path) -> None:
    study = data_study(tmp_path / "data", "gsm8k", None)

    assert_one_line(streak("run", study, "--out", tmp_path), str(study / "data.jsonl"))


def test_a_row_without_gold_is_one_line(tmp_path: Path) -> None:
    rows = [{"question": "1 + 1?", "answer": "#### 2"}, {"question": "1 + 2?", "answer": ""}]
    study = data_study(tmp_path / "data", "gsm8k", rows)

    assert_one_line(streak("run", study, "--out", tmp_path), "data.jsonl")


def test_a_model_directory_without_a_tokenizer_is_one_line(
    doubling: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = catalog.Entry("engines.reference", "ReferenceEngine", "the real one")
    monkeypatch.setitem(catalog.ENGINES, "reference", entry)
    write_study(doubling, ('path = "fake"', 'path = "bare-model"'))
    write_model(doubling / "bare-model", tokenizer=False)

    assert_one_line(streak("run", doubling), "bare-model", "tokenizer")
    assert not Path("runs").exists()


def test_a_task_that_has_no_access_to_its_data_is_one_line(doubling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError("GPQA is gated:\nask for access and log in")

    monkeypatch.setattr("small_study.Doubling.problems", refuse)

    assert_one_line(streak("run", doubling), "GPQA is gated: ask for access and log in")


def test_grading_before_running_is_one_line(doubling: Path) -> None:
    assert_one_line(streak("grade", doubling), "run the study first")


def test_what_is_unexpected_keeps_its_traceback(doubling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("fake_engine.FakeEngine.stream", fail)

    assert isinstance(streak("run", doubling).exception, RuntimeError)


def test_a_run_ends_with_its_table_and_the_figures_path(doubling: Path) -> None:
    result = streak("run", doubling)

    assert result.exit_code == 0, result.output
    assert "harness wall / engine wall" in result.stdout
    assert "4 problems, 48 records" in result.stdout
    assert "vanilla" in result.stdout
    figure = Path(result.stdout.split("figure: ")[1].splitlines()[0])
    assert figure.is_file()


def test_a_second_run_generates_nothing_and_reports_the_same(doubling: Path) -> None:
    first, second = streak("run", doubling), streak("run", doubling)

    assert "nothing to generate: all 8 generations are in runs/doubling" in second.stdout
    assert second.stdout.splitlines()[1:] == first.stdout.splitlines()[3:]


def test_grade_restores_a_lost_report(doubling: Path) -> None:
    streak("run", doubling)
    records = Path("runs/doubling/records.jsonl")
    before = records.read_bytes()
    records.unlink()
    result = streak("grade", doubling)

    assert result.exit_code == 0
    assert records.read_bytes() == before


def test_runs_go_below_the_folder_that_out_names(doubling: Path, tmp_path: Path) -> None:
    streak("run", doubling, "--out", "elsewhere")

    assert (tmp_path / "elsewhere" / "doubling" / "generations.jsonl").is_file()


def test_failed_requests_are_counted_at_the_end(doubling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fake_engine.FakeEngine.answer", lambda self, request: __import__("fake_engine").failure(request)
    )
    result = streak("run", doubling)

    assert "8 requests failed and count as no answer, the first: the prompt does not fit" in result.stdout


def test_the_demo_says_where_the_arms_agree(doubling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.commands.demo.DEMO_STUDY", doubling)
    result = streak("demo")

    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("T=0, float32: 4 of 4 texts of fast are token for token those of vanilla\n")


def test_the_bundled_demo_is_a_study() -> None:
    study = read_study(DEMO_STUDY)

    assert (study.name, study.baseline, len(study.arms)) == ("demo", "vanilla", 5)


CHILD = """
import sys
import fake_engine
import small_study
from harness.cli import main
small_study.install_fakes()
stream = fake_engine.FakeEngine.stream
def slow(self, requests):
    self.pause_seconds = 0.2
    return stream(self, requests)
fake_engine.FakeEngine.stream = slow
main()
"""


def test_ctrl_c_says_how_to_go_on(doubling: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, "run", "doubling"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ledger = tmp_path / "runs" / "doubling" / "generations.jsonl"
    while child.poll() is None and not (ledger.exists() and ledger.read_bytes().count(b"\n") >= 2):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)

    assert child.returncode == 130
    assert errors == ("streak: interrupted; what is finished lies in runs/doubling; go on with: streak run doubling\n")
    assert all(json.loads(line) for line in ledger.read_text().splitlines())


INTERRUPTED_CHILD = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == MOMENT:
            os.kill(os.getpid(), signal.SIGINT)
MOMENT = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
sys.meta_path.insert(0, Interrupt())
from harness.cli import main
main()
"""


@pytest.mark.parametrize(
    ("imported", "arguments"),
    [
        ("typer", ["list"]),
        ("harness.commands.exits", ["list"]),
        ("typer.rich_utils", ["--help"]),
        ("harness.commands.run", ["run", "doubling"]),
        ("tasks.arithmetic", ["grade", "doubling"]),
        ("harness.keep", ["keep", "doubling"]),
        ("harness.embedded", ["embedded"]),
    ],
)
def test_ctrl_c_while_something_is_imported_is_one_line(doubling: Path, imported: str, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_CHILD, imported, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == "streak: interrupted; the same command starts again\n"
    assert done.returncode == 130


@pytest.mark.parametrize(
    ("command", "moment"), [("grade", "harness.commands.grade.grade_run"), ("keep", "harness.commands.keep.keep_run")]
)
def test_ctrl_c_during_a_command_is_one_line(
    doubling: Path, monkeypatch: pytest.MonkeyPatch, command: str, moment: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    result = streak(command, doubling)

    assert result.stderr == "streak: interrupted; the same command starts again\n"
    assert result.exit_code == 130


def test_list_names_everything_that_a_study_may_say() -> None:
    text = streak("list").stdout

    for name in ("math500", "humaneval", "gpqa", "gsm8k", "arithmetic", "reference", "walk", "paper", "iid", "window"):
        assert name in text


def test_list_shows_one_section() -> None:
    text = streak("list", "rules").stdout

    assert [line.split()[0] for line in text.splitlines()] == list(RULES)


def test_list_of_an_unknown_section_is_one_line() -> None:
    assert_one_line(streak("list", "armz"), "'armz'", "tasks, engines, models, arms, drafting, shapes, rules")


def light_command(*arguments: str) -> str:
    """Run the command in a process of its own and return the heavy modules that it loaded."""
    code = (
        "import sys\nfrom harness.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(sorted({'torch', 'pandas', 'transformers', 'matplotlib', 'sympy', 'datasets'} & set(sys.modules)), "
        "file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr.strip()


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("list",)])
def test_help_and_list_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert light_command(*arguments) == "[]"


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_appears_at_once() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    seconds = []  # of the processor: a busy machine shall not fail this
    for _ in range(3):
        begun = cpu_seconds_of_children()
        subprocess.run(
            [sys.executable, "-c", "from harness.cli import main; main()", "--help"],
            env=environment,
            capture_output=True,
            check=True,
        )
        seconds.append(cpu_seconds_of_children() - begun)

    assert min(seconds) < 0.5
