"""The benchmarks: their constructors, problems, prompts and grades."""

import csv
import dataclasses
import importlib
import inspect
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest

from tasks.arithmetic import Arithmetic
from tasks.contract import Problem, Task
from tasks.gpqa import LETTERS, WRONG, Gpqa, balanced_letters, gold_counts
from tasks.gsm8k import Gsm8k, number_in
from tasks.humaneval import HumanEval
from tasks.math500 import Math500

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files of ../shared are not here")

TASKS: dict[str, tuple[type[Any], str]] = {
    "math500": (Math500, "last"),
    "gsm8k": (Gsm8k, "last"),
    "gpqa": (Gpqa, "last"),
    "humaneval": (HumanEval, "strict"),
    "arithmetic": (Arithmetic, "last"),
}


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def user_text(problem: Problem) -> str:
    (message,) = problem.messages
    assert message["role"] == "user"
    return message["content"]


def test_every_benchmark_is_a_task() -> None:
    tasks: list[Task] = [Math500(), Gsm8k(), Gpqa(), HumanEval(), Arithmetic()]  # for the type checker

    assert [task.name for task in tasks] == list(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_name_policy_and_keywords_only(name: str) -> None:
    cls, policy = TASKS[name]
    task: Task = cls()
    module = importlib.import_module(f"tasks.{name}")
    own = [value for value in vars(module).values() if inspect.isclass(value) and hasattr(value, "default_policy")]

    assert (task.name, task.default_policy) == (name, policy)
    assert [value for value in own if value is not Task] == [cls]
    assert {parameter.kind for parameter in inspect.signature(cls).parameters.values()} == {
        inspect.Parameter.KEYWORD_ONLY
    }
    assert set(dataclasses.asdict(cls())) == set(inspect.signature(cls).parameters)


@pytest.mark.parametrize(
    ("cls", "keys", "message"),
    [
        (Math500, {"limit": 0}, "limit = 0 is not allowed; it must be a whole number from 1 on"),
        (Math500, {"limit": True}, "limit = True"),
        (Math500, {"seed": "7"}, "seed = '7'"),
        (Math500, {"source": ""}, "source = ''"),
        (Gsm8k, {"split": 3}, "split = 3"),
        (Gpqa, {"config": "gpqa_diamant"}, "config = 'gpqa_diamant' is not allowed; allowed: gpqa_diamond, gpqa_main"),
        (Gpqa, {"option_seed": None}, "option_seed = None"),
        (HumanEval, {"time_limit_seconds": 0}, "time_limit_seconds = 0"),
        (Arithmetic, {"num_problems": 20_000}, "num_problems = 20000 is not allowed; it must be at most 10000"),
        (Arithmetic, {"min_events": 5, "max_events": 4}, "max_events = 4 is not allowed"),
        (Arithmetic, {"max_events": 11}, "max_events = 11 is not allowed; it must be at most 10"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(cls: type[Any], keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**keys)


def test_importing_every_task_loads_no_heavy_package() -> None:
    code = f"""
        import importlib, sys
        for name in {[*TASKS, "loading", "equivalence", "sandbox", "answers"]}:
            importlib.import_module("tasks." + name)
        heavy = [name for name in ("torch", "datasets", "math_verify", "sympy", "pandas") if name in sys.modules]
        print(heavy)
    """
    done = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_loading_rows_does_not_load_torch(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "gsm.jsonl", [{"question": "1+1?", "answer": "#### 2"}])
    code = f"""
        import sys
        from tasks.gsm8k import Gsm8k
        Gsm8k(source={source!r}).problems()
        sys.exit("torch" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", inspect.cleandoc(code)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


# MATH-500


def math_row(number: int, answer: str) -> dict[str, Any]:
    return {"problem": f"Find {number}.", "answer": answer, "unique_id": f"test/{number}.json", "level": 1}


def test_math500_takes_gold_and_id_from_the_row_and_asks_for_a_box(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "math.jsonl", [math_row(1, r"\frac{1}{2}"), math_row(2, "7")])
    first, second = Math500(source=source).problems()

    assert (first.problem_id, first.gold) == ("test/1.json", r"\frac{1}{2}")
    assert user_text(first).startswith("Find 1.\n\nThink step by step")
    assert r"\boxed{}" in user_text(second)


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        (r"So it is \boxed{0.5}.", "correct"),
        ("The answer is $1/2$.", "correct"),
        (r"\boxed{2}", "incorrect"),
        (r"so \boxed{\frac{1}{", "no_answer"),
        ("", "no_answer"),
    ],
)
def test_math500_grades_the_last_complete_answer(response: str, verdict: str) -> None:
    problem = Problem(problem_id="p", messages=(), gold=r"\frac{1}{2}")

    assert Math500().grade(problem, response).verdict == verdict


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (math_row(2, r"\frac{"), r"math\.jsonl, row 2: the grader cannot parse the gold '\\\\frac\{'"),
        ({"problem": "x", "unique_id": "u"}, r"math\.jsonl, row 2: nothing in column 'answer'"),
        (math_row(1, "3"), r"math\.jsonl: problem id 'test/1\.json' occurs again in problem 2"),
    ],
)
def test_a_row_that_cannot_be_graded_is_named(bad: dict[str, Any], message: str, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "math.jsonl", [math_row(1, "1"), bad])

    with pytest.raises(ValueError, match=message):
        Math500(source=source).problems()


@needs_shared
def test_math500_golds_are_equal_to_themselves() -> None:
    task = Math500(source=str(DATA / "math500.jsonl"), limit=60, seed=1)
    problems = task.problems()
    # A space that does not show makes the texts differ, so that the comparison runs.
    verdicts = Counter(task.grade(problem, rf"\boxed{{{problem.gold}\!}}").verdict for problem in problems)

    assert verdicts == {"correct": 60}


@needs_shared
def test_a_limit_beyond_math500_names_both_numbers() -> None:
    with pytest.raises(ValueError, match="limit = 501, but there are only 500 rows"):
        Math500(source=str(DATA / "math500.jsonl"), limit=501).problems()


# GSM8K


def test_gsm8k_takes_the_number_behind_the_mark(tmp_path: Path) -> None:
    rows = [{"question": "q1", "answer": "<<1+1=2>>2\n#### 1,200"}, {"question": "q2", "answer": "#### -3"}]
    task = Gsm8k(source=write_jsonl(tmp_path / "gsm.jsonl", rows))
    first, second = task.problems()

    assert (first.problem_id, first.gold, second.gold) == ("gsm8k/0001", "1,200", "-3")
    assert task.grade(first, r"\boxed{\$1200.00}").verdict == "correct"
    assert task.grade(first, r"\boxed{12}").verdict == "incorrect"
    assert task.grade(first, r"\boxed{many}").reason == "not one number"
    assert task.grade(second, "I give up").verdict == "no_answer"


def test_a_gsm8k_row_without_a_number_is_named(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "#### 1"}, {"question": "q", "answer": "#### none"}]

    with pytest.raises(ValueError, match=r"gsm\.jsonl, row 2: no number behind '####'"):
        Gsm8k(source=write_jsonl(tmp_path / "gsm.jsonl", rows)).problems()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18 dollars", 18),
        (r"\$1{,}200", 1200),
        ("x = -3.50", -3.5),
        ("10%", 10),
        (r"\frac{24}{2}", 12),
        (r"\frac{1}{2}", 0.5),
        (r"1\frac{1}{2}", None),
        ("1 or 2", None),
        ("none", None),
        ("9" * 50, None),
        ("9" * 5000, None),
    ],
)
def test_the_only_number_is_read(text: str, value: float | None) -> None:
    assert number_in(text) == value


@needs_shared
def test_all_of_gsm8k_loads() -> None:
    problems = Gsm8k(source=str(DATA / "gsm8k_test.jsonl")).problems()

    assert len(problems) == 1319
    assert all(number_in(problem.gold) is not None for problem in problems)


# GPQA


def gpqa_file(path: Path, count: int) -> str:
    """A file in GPQA's layout with made-up texts."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Record ID", "Question", "Correct Answer", *WRONG])
        writer.writerows(
            [f"rec{i}", f"Which is {i}?", f"right {i}\n", f"wrong {i}a", "NA", "1.50"] for i in range(count)
        )
    return str(path)


def test_gpqa_lists_four_options_and_knows_the_right_one(tmp_path: Path) -> None:
    problems = Gpqa(source=gpqa_file(tmp_path / "gpqa.csv", 8)).problems()

    for number, problem in enumerate(problems):
        options = problem.data["options"]
        assert isinstance(options, dict)
        assert options[problem.gold] == f"right {number}"
        assert set(options.values()) == {f"right {number}", f"wrong {number}a", "NA", "1.50"}
        assert all(f"\n{letter}) {text}\n" in user_text(problem) for letter, text in options.items())


@pytest.mark.parametrize("count", [4, 10, 198])
def test_gold_letters_are_balanced(count: int) -> None:
    counts = Counter(balanced_letters(count, seed=0))

    assert set(counts) == set(LETTERS)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_gpqa_key_depends_on_seeds_and_not_on_the_limit(tmp_path: Path) -> None:
    source = gpqa_file(tmp_path / "gpqa.csv", 20)
    few = Gpqa(source=source, limit=6, seed=3).problems()

    assert Gpqa(source=source, limit=20, seed=3).problems()[:6] == few
    assert Gpqa(source=source, limit=6, seed=3, option_seed=1).problems() != few


@pytest.mark.parametrize(
    ("response", "verdict"), [("\\boxed{B}", "correct"), ("Answer: C", "incorrect"), ("?", "no_answer")]
)
def test_gpqa_grades_the_letter(response: str, verdict: str) -> None:
    assert Gpqa().grade(Problem(problem_id="p", messages=(), gold="B"), response).verdict == verdict


def test_gpqa_takes_the_text_of_an_option_for_its_letter(tmp_path: Path) -> None:
    task = Gpqa(source=gpqa_file(tmp_path / "gpqa.csv", 4))
    problem = task.problems()[2]

    assert task.grade(problem, r"\boxed{right 2}").verdict == "correct"
    assert task.grade(problem, "Answer: wrong 2a").verdict == "incorrect"


def test_gpqa_keeps_the_order_of_its_options_without_their_texts(tmp_path: Path) -> None:
    for problem in Gpqa(source=gpqa_file(tmp_path / "gpqa.csv", 8)).problems():
        order = str(problem.data["option_order"])

        assert sorted(order) == ["0", "1", "2", "3"]
        assert LETTERS[order.index("0")] == problem.gold


def test_gold_letters_are_counted() -> None:
    problems = [Problem(problem_id=str(n), messages=(), gold=gold) for n, gold in enumerate("ABCDA")]

    assert gold_counts(problems) == "gold letters: A 2, B 1, C 1, D 1"


def test_gpqa_with_two_equal_options_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "gpqa.csv"
    path.write_text("Question,Correct Answer," + ",".join(WRONG) + "\nq,a,b,a,c\n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"gpqa\.csv, row 1: two options have the same text"):
        Gpqa(source=str(path)).problems()


def test_gpqa_without_access_says_what_to_do_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'Idavidrein/gpqa' is a gated dataset on the Hub.\nAsk.")

    monkeypatch.setattr("tasks.hub.refusal", lambda source: None)
    monkeypatch.setattr(datasets, "load_dataset", refuse)

    with pytest.raises(OSError, match=r"Idavidrein/gpqa .*gated on the hub; accept its terms at https") as caught:
        Gpqa().problems()
    assert "\n" not in str(caught.value)


@needs_shared
def test_the_synthetic_gpqa_file_loads() -> None:
    problems = Gpqa(source=str(DATA / "gpqa_like_synthetic.csv")).problems()

    assert Counter(problem.gold for problem in problems) == dict.fromkeys(LETTERS, 3)
