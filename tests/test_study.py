"""What a study.toml may say, and which changes of it ask for new answers."""

from pathlib import Path
from typing import Any

import pytest

from engines.speculation import DRAFTINGS, EXACT_FOR, RULES, SHAPES, Speculation
from harness import catalog
from harness.arms import FORMAT_KEYS, SPECULATION_KEYS
from harness.plan import plan_jobs
from harness.study import Study, read_study
from small_study import use_fakes, write_study


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)


def identities(study: Study) -> list[str]:
    return [cell.arm_id for cell in study.cells]


def test_a_study_is_a_folder_or_its_file(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "doubling")

    assert read_study(folder) == read_study(folder / "study.toml")


def test_a_study_is_called_like_its_folder(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path / "doubling"))

    assert study.name == "doubling"


def test_a_file_of_another_name_names_its_study(tmp_path: Path) -> None:
    path = (write_study(tmp_path) / "study.toml").rename(tmp_path / "tiny.toml")

    assert read_study(path).name == "tiny"


def test_an_arm_without_a_drafter_decodes_plainly(tmp_path: Path) -> None:
    vanilla, fast = read_study(write_study(tmp_path)).arms

    assert vanilla.speculation is None
    assert fast.speculation is not None


def test_an_arm_overrides_the_studys_formats_and_temperatures(tmp_path: Path) -> None:
    more = 'number_format = "bfloat16"\nthreads = 2\ntemperatures = [0.0, 1.0]\n'
    vanilla, fast = read_study(write_study(tmp_path, more=more)).arms

    assert (vanilla.number_format, vanilla.threads, vanilla.temperatures) == ("float32", 1, (0.0,))
    assert (fast.number_format, fast.threads, fast.temperatures) == ("bfloat16", 2, (0.0, 1.0))


def test_the_studys_engine_sets_the_defaults_of_all_arms(tmp_path: Path) -> None:
    more = '[engine]\nnumber_format = "bfloat16"\nthreads = 3\nmax_context = 512\n'
    study = read_study(write_study(tmp_path, more=more))

    assert {(arm.number_format, arm.threads) for arm in study.arms} == {("bfloat16", 3)}
    assert study.engine_settings(study.arms[0])["max_context"] == 512


def test_cells_put_the_arms_side_by_side_at_each_temperature(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, ("[0.0]", "[0.0, 1.0]")))

    assert [cell.label for cell in study.cells] == ["vanilla T=0", "fast T=0", "vanilla T=1", "fast T=1"]


def test_the_baseline_is_vanilla_unless_the_study_says_otherwise(tmp_path: Path) -> None:
    plain = read_study(write_study(tmp_path))
    chosen = read_study(write_study(tmp_path, more='[study]\nbaseline = "fast"\n'))

    assert (plain.baseline, chosen.baseline) == ("vanilla", "fast")


def test_the_first_arm_is_the_baseline_where_none_is_vanilla(tmp_path: Path) -> None:
    assert read_study(write_study(tmp_path, ("[arm.vanilla]", "[arm.plain]"))).baseline == "plain"


@pytest.mark.parametrize(
    "edit",
    [
        ("seconds = [0.05, 0.1, 0.2]", "seconds = [0.05, 5.0]"),
        ("seconds = [0.05, 0.1, 0.2]", 'seconds = [0.05, 0.1, 0.2]\npolicies = ["strict"]\nclock = "decode"'),
        ("num_problems = 4", "num_problems = 9"),
        ("max_tokens = 100", "max_tokens = 100\nsamples = 5"),
        ('title = "Doubling"', 'title = "Another"'),
        ("temperatures = [0.0]", "temperatures = [0]"),
    ],
)
def test_what_adds_answers_or_renames_keeps_every_arm_id(tmp_path: Path, edit: tuple[str, str]) -> None:
    before, after = read_study(write_study(tmp_path / "a")), read_study(write_study(tmp_path / "b", edit))

    assert identities(after) == identities(before)


@pytest.mark.parametrize(
    "edit",
    [
        ("max_tokens = 100", "max_tokens = 101"),
        ("max_tokens = 100", "max_tokens = 100\nseed = 1"),
        ("max_tokens = 100", 'max_tokens = 100\nstop = ["Q:"]'),
        ('path = "fake"', 'path = "other"'),
        ("temperatures = [0.0]", "temperatures = [0.5]"),
        ("[arm.vanilla]", "[arm.vanilla]\nthreads = 2"),
        ("[arm.vanilla]", '[arm.vanilla]\nnumber_format = "bfloat16"'),
    ],
)
def test_what_could_change_an_answer_or_its_seconds_changes_the_arm_id(tmp_path: Path, edit: tuple[str, str]) -> None:
    before, after = read_study(write_study(tmp_path / "a")), read_study(write_study(tmp_path / "b", edit))

    assert identities(after)[0] != identities(before)[0]


@pytest.mark.parametrize("line", ["window = 8", 'drafter_format = "bfloat16"', 'shape = "iid"\nnum_drafts = 4'])
def test_every_setting_of_an_arm_is_part_of_its_identity(tmp_path: Path, line: str) -> None:
    before = read_study(write_study(tmp_path / "a"))
    after = read_study(write_study(tmp_path / "b", more=line))

    assert identities(after)[0] == identities(before)[0]
    assert identities(after)[1] != identities(before)[1]


def test_a_model_directory_beside_the_study_is_found(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, ('"fake"', '"my-model"')))
    (tmp_path / "my-model").mkdir()

    assert study.located("my-model") == str(tmp_path / "my-model")
    assert study.located("embedded:verifier") == "embedded:verifier"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (
            ("[arm.fast]", "[arm.fast]\nwindows = 3"),
            "unknown key 'windows' in [arm.fast]; known keys: branches, cross_tokenizer",
        ),
        (("[arm.fast]", "[arms.fast]"), "unknown key 'arms' in the file; known keys: arm, budgets"),
        (("max_tokens", "max_token"), "unknown key 'max_token' in [sampling]"),
        (
            ("num_problems", "problems"),
            "[task]: unknown key 'problems'; known keys of arithmetic: hint, num_problems",
        ),
        (('name = "arithmetic"', 'name = "rithmetic"'), "unknown task 'rithmetic'; known: math500"),
        (('name = "arithmetic"', ""), "'name' is missing in [task]"),
        (('path = "fake"', ""), "'path' is missing in [model]"),
        (
            ("[arm.fast]", '[arm.fast]\nrule = "fast"'),
            "rule = 'fast' in [arm.fast] is not allowed; allowed: walk, paper",
        ),
        (
            ("[arm.fast]", "[arm.fast]\nwindow = 0"),
            "window = 0 in [arm.fast] is not allowed; allowed: a whole number >= 1",
        ),
        (("[arm.fast]", "[arm.fast]\nwindow = '8'"), "window = '8' in [arm.fast] is not allowed"),
        (("[arm.fast]", "[arm.fast]\nnum_drafts = 4"), "[arm.fast]: num_drafts = 4 is not allowed; allowed: 1"),
        (("[arm.vanilla]", "[arm.vanilla]\nwindow = 8"), "'window' in [arm.vanilla] needs a 'drafter'"),
        (("[arm.vanilla]", "[arm.twin]\n[arm.vanilla]"), "[arm.vanilla] has the same settings as [arm.twin]"),
        (("[arm.vanilla]", "[arm.vanilla]\nthreads = true"), "threads = True in [arm.vanilla] is not allowed"),
        (("[0.05, 0.1, 0.2]", "[0, 0.1]"), "seconds = [0, 0.1] in [budgets] is not allowed"),
        (("[0.05, 0.1, 0.2]", "[-1.0]"), "seconds = [-1.0] in [budgets] is not allowed"),
        (("[0.05, 0.1, 0.2]", "[0.2, 0.1]"), "seconds = [0.2, 0.1] in [budgets] is not allowed"),
        (("[0.05, 0.1, 0.2]", "[0.1, 0.1]"), "seconds = [0.1, 0.1] in [budgets] is not allowed"),
        (("[0.05, 0.1, 0.2]", "[0.1, inf]"), "seconds = [0.1, inf] in [budgets] is not allowed"),
        (("[0.05, 0.1, 0.2]", "[]"), "seconds = [] in [budgets] is not allowed"),
        (("seconds = [0.05, 0.1, 0.2]", ""), "'seconds' is missing in [budgets]"),
        (("[0.05, 0.1, 0.2]", '[0.1]\nclock = "wall"'), "clock = 'wall' in [budgets] is not allowed; allowed: request"),
        (("[0.05, 0.1, 0.2]", '[0.1]\npolicies = ["best"]'), "policies = ['best'] in [budgets] is not allowed"),
        (("[0.0]", "[-0.5]"), "temperatures = [-0.5] in [sampling] is not allowed"),
        (('title = "Doubling"', "title = 3"), "title = 3 is not allowed; allowed: a non-empty text"),
        (('title = "Doubling"', "budget = "), "not a TOML file"),
        (('title = "Doubling"', 'study = "x"'), "study = 'x' is not a table"),
        (("[arm.vanilla]", '[study]\nbaseline = "nope"\n[arm.vanilla]'), "baseline = 'nope' in [study] is not allowed"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_value(tmp_path: Path, edit: tuple[str, str], expected: str) -> None:
    folder = write_study(tmp_path, edit)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is what is tested)
        read_study(folder)

    assert str(caught.value).startswith(f"{folder / 'study.toml'}: ")
    assert expected in str(caught.value)


def test_a_study_without_arms_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('[task]\nname = "arithmetic"\n')

    with pytest.raises(ValueError, match="no arm"):
        read_study(tmp_path)


def test_a_missing_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such study"):
        read_study(tmp_path / "nowhere")


def test_the_catalog_says_what_every_setting_shape_and_rule_is() -> None:
    assert set(catalog.ARM_SETTINGS) == {*SPECULATION_KEYS, *FORMAT_KEYS, "temperatures"}
    assert set(catalog.DRAFTINGS) == set(DRAFTINGS)
    assert set(catalog.SHAPES) == set(SHAPES)
    assert set(catalog.RULES) == set(RULES)


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ({"rule": "leviathan", "shape": "tree", "nodes": 24}, "rule = 'leviathan' .* for shape 'tree': walk, paper"),
        ({"rule": "block", "shape": "iid", "num_drafts": 4}, "for shape 'iid': walk, paper, specinfer, traversal"),
        ({"rule": "leviathan", "steps": 2}, "steps = 2 is not allowed; allowed: 1 for rule 'leviathan'"),
        ({"rule": "leviathan", "cross_tokenizer": True}, "cross_tokenizer = True .* false for rule 'leviathan'"),
        ({"rule": "block", "drafter": ("d", "e")}, "one model for rule 'block'"),
        ({"shape": "tree", "nodes": 15}, "nodes = 15 .* from the window, 16, to 1024, or 'auto'"),
        ({"shape": "tree"}, "nodes is missing; allowed: a whole number from the window, 16, to 1024, or 'auto'"),
        ({"nodes": 24}, "nodes = 24 is not allowed; allowed: nothing, unless the shape is 'tree'"),
        ({"shape": "iid", "num_drafts": 0}, "num_drafts = 0"),
        ({"branches": 2}, "branches = 2 is not allowed; allowed: 0, unless the shape is 'tree'"),
        ({"shape": "tree", "nodes": 24, "branches": 65}, "branches = 65 .* a whole number from 0 to 64"),
        ({"window": 0}, "window = 0 is not allowed; allowed: a whole number from 1 to 256, or 'auto'"),
        ({"window": "auto", "shape": "iid", "num_drafts": 4}, "window = 'auto'"),
        ({"drafting": "ngram"}, "drafter = 'd' is not allowed; allowed: none for drafting 'ngram'"),
        ({"drafting": "autoregressive", "steps": 2}, "steps = 2"),
        ({"drafter": ()}, "drafter"),
        ({"drafter": ("d", "d")}, "different models"),
        ({"draft_temperature": -1.0}, r"draft_temperature = -1\.0 is not allowed; allowed: 0, or a finite number"),
    ],
)
def test_an_arm_that_cannot_be_exact_or_makes_no_sense_is_refused(arm: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Speculation(**{"drafter": "d", **arm})


def test_rules_that_weigh_the_drafters_law_draft_at_the_requests_temperature() -> None:
    drafts = [
        Speculation(drafter="d", rule=rule).drafting_temperature(0.7) for rule in RULES if "chain" in EXACT_FOR[rule]
    ]

    assert drafts == [0.0, 0.0, 0.7, 0.7, 0.7, 0.7]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("top_p = 0.0", r"\[sampling\]: top_p = 0\.0 is not allowed"),
        ("top_k = -1", "top_k = -1"),
        ("logit_bias = {a = 1.0}", "logit_bias = .* a table of token ids to numbers"),
        ("repetition_penalty = 0", "repetition_penalty"),
    ],
)
def test_a_law_that_is_none_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_study(write_study(tmp_path, ("max_tokens = 100", f"max_tokens = 100\n{line}")))


def test_a_law_reaches_the_requests_and_the_arm_id(tmp_path: Path) -> None:
    plain = read_study(write_study(tmp_path / "a"))
    warped = read_study(
        write_study(tmp_path / "b", ("max_tokens = 100", "max_tokens = 100\ntop_p = 0.9\nlogit_bias = {17 = -2.5}"))
    )

    (job, *_) = plan_jobs(warped, list(warped.build_task().problems()))

    assert (job.request.sampling.top_p, job.request.sampling.logit_bias) == (0.9, ((17, -2.5),))
    assert set(identities(plain)).isdisjoint(identities(warped))
