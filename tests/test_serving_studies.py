"""Studies of an engine with servers: what they may say, what a dry run and a doctor say, and a server that is lost."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engines.chat import ChatTokenizer
from engines.models import resolve_model
from fake_server import FakeServer, Script
from harness.cli import app
from harness.generate import parts
from harness.study import read_study
from tiny_models import write_other_tokens

ROOT = Path(__file__).parents[1]
PAPER = sorted((ROOT / "results/studies/paper").glob("*/study.toml"))
CHAT = ChatTokenizer(resolve_model("embedded:verifier"))
STUDY = """
[task]
name = "arithmetic"
num_problems = 4
[model]
path = "embedded:verifier"
[engine]
name = "sglang"
[sampling]
temperatures = [0.0]
max_tokens = 40
[budgets]
seconds = [5.0]
[arm.vanilla]
"""

SAMPLED = STUDY.replace("temperatures = [0.0]", "temperatures = [0.0, 0.7]")
LOOKUP = "[arm.lookup]\ndrafting = 'ngram'\nserver = { device = 'cpu' }\n"
DRAFTED = "[arm.drafted]\ndrafter = 'embedded:aligned'\n"
UNANSWERABLE = [
    (SAMPLED + LOOKUP, "[arm.lookup]: temperature = 0.7: SGLang's own NGRAM is greedy on a CPU; allowed: 0"),
    (SAMPLED.replace("[budgets]", "min_p = 0.1\n[budgets]"), "[arm.vanilla]: min_p = 0.1: SGLang has no seeded draws"),
    (
        STUDY.replace("[budgets]", "repetition_penalty = 1.2\n[budgets]") + DRAFTED,
        "[arm.drafted]: repetition_penalty = 1.2: drafts of SPECDIFF2 are not exact with it; allowed: 1",
    ),
]
"""What would be an error of every request."""


def streak(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return folder


def assert_one_line(result: Result, *parts: str) -> None:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    for part in parts:
        assert part in line


def script(**settings: object) -> Script:
    tokens = [*CHAT.encode("The answer is \\boxed{8}."), *CHAT.stop_ids]
    return Script(chunks=[[[token]] for token in tokens], **settings)  # type: ignore[arg-type]


def test_arguments_of_the_engine_are_those_of_every_arm_and_the_arms_own_win(tmp_path: Path) -> None:
    more = "[engine.server]\ntp_size = 2\npage_size = 1\n[arm.big.server]\ntp_size = 4\n"
    vanilla, big = read_study(write(tmp_path, STUDY + more)).arms

    assert vanilla.serving is not None
    assert vanilla.serving.arguments == {"tp_size": 2, "page_size": 1}
    assert big.serving is not None
    assert big.serving.arguments == {"tp_size": 4, "page_size": 1}


def test_an_argument_of_the_server_is_part_of_an_arms_identity_its_address_is_not(tmp_path: Path) -> None:
    plain = read_study(write(tmp_path / "a", STUDY)).cells[0]
    elsewhere = read_study(write(tmp_path / "b", STUDY + 'url = "http://127.0.0.1:1"\n')).cells[0]
    otherwise = read_study(write(tmp_path / "c", STUDY + "[arm.vanilla.server]\npage_size = 4\n")).cells[0]

    assert elsewhere.arm_id == plain.arm_id
    assert otherwise.arm_id != plain.arm_id


def test_an_address_is_not_written_into_what_a_study_records(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, STUDY + 'url = "http://127.0.0.1:1"\n'))

    assert "127.0.0.1" not in json.dumps(study.to_json())


def test_arms_that_cannot_stand_side_by_side_run_one_after_the_other(tmp_path: Path) -> None:
    text = (
        STUDY.replace('name = "sglang"', 'name = "sglang"\ninterleave = false') + "[arm.lookup]\ndrafting = 'ngram'\n"
    )
    study = read_study(write(tmp_path, text))

    assert [[arm.name for arm in part.arms] for part in parts(study)] == [["vanilla"], ["lookup"]]
    assert {cell.arm_id for part in parts(study) for cell in part.cells} == {cell.arm_id for cell in study.cells}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (STUDY + "windw = 4\n", "unknown key 'windw' in [arm.vanilla]; known keys: "),
        (STUDY + "server = 3\n", "arm.vanilla.server = 3 is not a table"),
        (STUDY + "[arm.vanilla.server]\nlora_paths = [1]\n", "lora_paths = [1] in [arm.vanilla.server]"),
        (STUDY.replace('name = "sglang"', "") + "url = 'x'\n", "unknown key 'url' in [arm.vanilla]"),
        (STUDY.replace('name = "sglang"', "seeds = true"), "unknown key 'seeds' in [engine]"),
        (STUDY + "[arm.vanilla.server]\nport = 3\n", "server argument 'port' = 3 is not allowed"),
        (STUDY + "[arm.vanilla.server]\nspeculative_algorithm = 'EAGLE'\n", "[arm.vanilla]: algorithm = 'EAGLE'"),
        (STUDY + "drafter = 'no/where/there'\n", "[arm.vanilla]: model 'no/where/there': no such directory"),
        (STUDY + "drafter = './nowhere'\n", "[arm.vanilla]: model './nowhere': no such directory"),
        (STUDY + "url = 'nonsense'\n", "[arm.vanilla]: url = 'nonsense' is not allowed; allowed: http://HOST:PORT"),
        (STUDY + "drafter = 'embedded:aligned'\nwindow = 400\n", "window = 400 is not allowed"),
        (STUDY + "drafter = 'embedded:aligned'\nshape = 'tree'\nnodes = 5000\n", "nodes = 5000 is not allowed"),
        (
            STUDY + "drafter = 'embedded:aligned'\nrule = 'block'\n",
            "rule = 'block' is not allowed; allowed: walk, paper",
        ),
        (STUDY + "drafter = 'embedded:verifier'\n", "no mask_token_id; a diffusion drafter needs one"),
        *UNANSWERABLE,
    ],
)
def test_what_a_study_cannot_ask_is_one_line_of_a_dry_run(tmp_path: Path, text: str, complaint: str) -> None:
    result = streak("run", write(tmp_path, text), "--dry-run")

    assert_one_line(result, complaint)


@pytest.mark.parametrize(("text", "complaint"), UNANSWERABLE)
def test_a_law_that_a_server_cannot_keep_is_refused_before_anything_is_made(
    tmp_path: Path, text: str, complaint: str
) -> None:
    result = streak("run", write(tmp_path / "study", text), "--out", tmp_path / "runs")

    assert_one_line(result, complaint)
    assert not (tmp_path / "runs").exists()


def test_a_drafter_of_other_tokens_is_one_line_of_a_dry_run(tmp_path: Path) -> None:
    write_other_tokens(tmp_path / "other")
    text = STUDY.replace("[sampling]", "max_context = 96\n[sampling]") + "drafter = '../other'\n"
    result = streak("run", write(tmp_path / "study", text), "--dry-run")

    assert_one_line(result, "[arm.vanilla]: ", "the drafter's tokens are not those of the target")


def test_a_dry_run_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = streak("run", write(tmp_path / "study", STUDY), "--dry-run")

    assert result.exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["study"]


def test_the_papers_four_verifiers_have_a_study_for_each_of_its_tasks() -> None:
    found = {(study.model.split("/")[1], study.task) for study in map(read_study, PAPER)}

    models = ("Qwen2.5-72B-Instruct", "Qwen2.5-14B-Instruct", "Llama-2-70b-chat-hf", "Llama-2-13b-chat-hf")
    assert found == {(model, task) for model in models for task in ("math500", "humaneval", "gpqa")}


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.parent.name)
def test_a_study_of_the_papers_setting_resolves_without_a_download(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    result = streak("run", path, "--dry-run")

    study = read_study(path)
    assert result.exit_code == 0, result.output
    assert result.output.count("  memory: ") == len(study.arms) >= 12
    assert f"--model-path {study.model} --device cuda --dtype bfloat16" in result.output


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.parent.name)
def test_a_study_of_the_papers_setting_has_its_window_drafts_and_budgets(path: Path) -> None:
    study = read_study(path)
    drafts = {arm.speculation.num_drafts for arm in study.arms if arm.speculation and arm.speculation.shape == "iid"}
    windows = {
        arm.speculation.window for arm in study.arms if arm.speculation and arm.speculation.drafting == "diffusion"
    }

    assert windows == ({32} if "Qwen" in study.model else {16})
    assert drafts == set(range(2, 9))
    assert (study.budgets[0], study.budgets[-1]) == (1, 75)
    assert {cell.temperature for cell in study.cells} == {0, 1}


def test_a_study_is_run_on_a_server_that_runs_already(tmp_path: Path) -> None:
    with FakeServer(script()) as server:
        study = write(tmp_path / "study", STUDY + f"url = '{server.url}'\n")
        result = streak("run", study, "--out", tmp_path / "runs")

    assert result.exit_code == 0, result.output
    rows = (tmp_path / "runs/study/generations.jsonl").read_text().splitlines()
    assert [json.loads(row)["completion"]["finish_reason"] for row in rows] == ["stop"] * 4


def test_a_study_whose_server_dies_stops_with_what_is_finished_and_goes_on_later(tmp_path: Path) -> None:
    runs = tmp_path / "runs/study"
    text = STUDY.replace("num_problems = 4", "num_problems = 45")
    # Warming up takes the first requests, 20 of them at most: 200 rounds.
    with FakeServer(script(dies_after=30)) as server:
        study = write(tmp_path / "study", text + f"url = '{server.url}'\n")
        lost = streak("run", study, "--out", tmp_path / "runs")
    finished = len((runs / "generations.jsonl").read_text().splitlines())
    events = [json.loads(row)["event"] for row in (runs / "sessions.jsonl").read_text().splitlines()]
    with FakeServer(script()) as server:
        again = streak("run", write(study, text + f"url = '{server.url}'\n"), "--out", tmp_path / "runs")

    assert_one_line(lost, "the server is lost", "what is finished lies in", "go on with: streak run")
    assert 0 < finished < 45
    assert events == ["opened", "engine lost"]
    assert again.exit_code == 0, again.output
    assert len((runs / "generations.jsonl").read_text().splitlines()) == 45


def test_a_doctor_says_one_line_on_everything_that_has_a_name() -> None:
    result = streak("doctor")

    assert result.exit_code == 0
    for name in ("reference", "sglang", "cpu", "cuda", "SPECDIFF2", "EAGLE3", "arithmetic", "embedded:verifier"):
        assert sum(name == line.split()[0] for line in result.output.splitlines() if line.startswith("  ")) == 1


def test_a_doctor_is_content_with_what_can_run() -> None:
    result = streak("doctor", "reference", "arithmetic", "cpu")

    assert result.exit_code == 0, result.output


def test_a_doctor_ends_with_1_where_what_was_asked_for_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = streak("doctor", "gsm8k")

    assert result.exit_code == 1
    assert "missing: HF_HUB_OFFLINE is set" in result.output


def test_a_doctor_looks_at_every_arm_of_a_study(tmp_path: Path) -> None:
    eagle = "[arm.eagle.server]\nspeculative_algorithm = 'EAGLE'\ndevice = 'cpu'\n"
    text = STUDY + "url = 'http://127.0.0.1:1'\n" + eagle
    result = streak("doctor", write(tmp_path / "study", text))

    assert result.exit_code == 1
    assert [line.split(":")[0].split() for line in result.output.splitlines() if line.startswith("  ")] == [
        ["arithmetic", "ok"],
        ["vanilla", "ok"],
        ["eagle", "missing"],
    ]


def test_a_doctor_does_not_know_everything() -> None:
    assert_one_line(streak("doctor", "tea"), "nothing called 'tea', and no study there; known: reference, sglang")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--arm", "tea"], "study 'serve' has no arm 'tea'; it has: vanilla, specdiff2"),
        (["--arm", ""], "study 'serve' has no arm ''; it has: vanilla, specdiff2"),
        ([ROOT / "results/studies/embedded"], "engine 'reference' has no server"),
        (["--port", "1"], "port 1 of 127.0.0.1 cannot be used"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    arguments: list[object], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engines.serving.presence.missing_server", lambda: None)
    monkeypatch.setattr("engines.serving.presence.missing_plugin", lambda: None)
    if "--port" in arguments:
        monkeypatch.setattr("engines.serving.process.socket.socket.bind", refuse_port)

    assert_refused_first(streak("serve", *arguments), complaint)


def test_nothing_is_served_without_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.serving.presence.missing_server", lambda: "package sglang is not installed")

    assert_refused_first(streak("serve"), "study 'serve', [arm.specdiff2]: package sglang is not installed")


def assert_refused_first(result: Result, complaint: str) -> None:
    """One line, and nothing before it that says otherwise."""
    assert_one_line(result, complaint)
    assert result.stdout == ""


def refuse_port(*_: object) -> None:
    raise PermissionError(13, "Permission denied")
