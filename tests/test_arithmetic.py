"""The arithmetic task: held-out problems that training never sees, and their grades."""

import itertools

from tasks.arithmetic import Arithmetic, training_stories
from tasks.contract import Problem


def user_text(problem: Problem) -> str:
    (message,) = problem.messages
    return message["content"]


def test_arithmetic_lengths_take_turns_and_questions_are_distinct() -> None:
    problems = Arithmetic(num_problems=40, seed=7, min_events=2, max_events=5).problems()

    assert [problem.data["events"] for problem in problems[:5]] == [2, 3, 4, 5, 2]
    assert problems[3].problem_id == "arithmetic/7/0003"
    assert len({user_text(problem) for problem in problems}) == 40


def test_more_arithmetic_problems_only_add_some() -> None:
    assert Arithmetic(num_problems=30).problems()[:10] == Arithmetic(num_problems=10).problems()
    assert Arithmetic(seed=1).problems() != Arithmetic(seed=2).problems()


def test_arithmetic_problems_never_occur_in_training() -> None:
    held_out = {user_text(problem) for problem in Arithmetic(num_problems=4000, max_events=2).problems()}
    stream = training_stories(0, lambda rng: rng.randint(1, 2))
    training = {question for question, _ in itertools.islice(stream, 4000)}

    assert not held_out & training


def test_arithmetic_grades_the_last_box() -> None:
    task = Arithmetic(num_problems=1)
    (problem,) = task.problems()

    assert task.grade(problem, rf"so \boxed{{{problem.gold}}}").verdict == "correct"
    assert task.grade(problem, rf"so \boxed{{{int(problem.gold) + 1}}}").verdict == "incorrect"
    assert task.grade(problem, r"so \boxed{").verdict == "no_answer"
