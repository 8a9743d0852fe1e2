r"""Arithmetic: multi-step word problems with worked solutions, made from a seed; the task of the embedded models.

    Mia has 42 coins. First she finds 17. Second she gives away half. How many coins does she have? ...
    First, she finds 17 and we need 42+17: 2+7=9, 4+1=5, so there are 59 coins. Second, ... The answer is \boxed{29}.

Values stay within 0..99 and a problem has 1 to 6 events: a solution has about 60 to 270 embedded tokens. The wording of
a solution is drawn at random in six places an event, so that a model of these texts has real entropy at temperature 1.
A problem belongs to the held-out side if the CRC of its question says so; training never sees that side.
"""

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from results.records import Grade, Policy
from tasks.answers import grade_boxed_integer
from tasks.contract import Problem
from tasks.loading import check_whole

PRONOUNS = {"Mia": "she", "Tom": "he", "Ana": "she", "Leo": "he", "Zoe": "she", "Sam": "he", "Ivy": "she", "Max": "he"}
ITEMS = ("coins", "apples", "cards", "books", "shells", "stamps", "beads", "pens")
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth")
MOST_EVENTS = len(ORDINALS)
GAINS = ("finds", "buys", "wins", "gets")
LOSSES = ("loses", "sells", "breaks", "drops")
LARGEST = 99
LONGEST_GOLD = 18  # characters
HELD_OUT_SHARE = 8
MOST_PROBLEMS = 10_000  # well below the number of different held-out questions, even of one event
STEADY_SHARE, STEADY_POWER = 0.1, 4
INSTRUCTION = r"Work step by step and put the answer in \boxed{}."

Wording: TypeAlias = tuple[tuple[str, float], ...]
# The choices of a solution's wording with their probabilities: skewed, as in real text, so that the most likely wording
# is clear at temperature 0 while every place still carries about 1.2 nats at temperature 1.
OPENING: Wording = (("Let us go step by step.", 0.5), ("We go line by line.", 0.3), ("Here is the work.", 0.2))
LEAD: Wording = ((", {who}", 0.5), (": {who}", 0.25), (" {who}", 0.15), (", we see that {who}", 0.1))
PURPOSE: Wording = ((" and we need", 0.5), (", so we take", 0.25), (". This asks for", 0.15), (", that is", 0.1))
HINGE: Wording = ((": ", 0.5), (". Here ", 0.25), (", where ", 0.15), ("; now ", 0.1))
RESULT: Wording = (("so there are", 0.5), ("which leaves", 0.25), ("giving", 0.15), ("and now {who} has", 0.1))
UNIT: Wording = (("", 0.5), (" {item}", 0.3), (" in all", 0.2))
REMARK: Wording = (("", 0.55), (" Good.", 0.2), (" Then we go on.", 0.15), (" That is clear.", 0.1))
CLOSING: Wording = ((r"The answer is \boxed{{{answer}}}.", 0.6), (r"Final answer: \boxed{{{answer}}}.", 0.4))


@dataclass(frozen=True, slots=True)
class Event:
    """One change of the count: `before` `operator` `amount` = `after`; `told` is how question and solution say it."""

    operator: str
    amount: int
    told: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Story:
    """A whole problem: who has how many of what, and what happens."""

    name: str
    item: str
    start: int
    events: tuple[Event, ...]

    @property
    def answer(self) -> int:
        """The count after the last event."""
        return self.events[-1].after

    @property
    def question(self) -> str:
        """The problem as a user would put it."""
        who = PRONOUNS[self.name]
        told = " ".join(f"{ORDINALS[i]} {who} {event.told}." for i, event in enumerate(self.events))
        return f"{self.name} has {self.start} {self.item}. {told} How many {self.item} does {who} have? {INSTRUCTION}"

    @property
    def held_out(self) -> bool:
        """Whether the story is kept for evaluation."""
        return zlib.crc32(self.question.encode()) % HELD_OUT_SHARE == 0


def draw_event(rng: random.Random, value: int) -> Event:
    """An event that keeps the count within 0..99; multiplying and halving are rarer than adding and subtracting."""
    while True:
        operator = rng.choices("+-*/", (4, 4, 1.5, 1.5))[0]
        if operator == "+" and value <= LARGEST - 2:
            amount = rng.randint(2, min(60, LARGEST - value))
            return Event("+", amount, f"{rng.choice(GAINS)} {amount}", value, value + amount)
        if operator == "-" and value >= 3:
            amount = rng.randint(2, min(60, value))
            return Event("-", amount, f"{rng.choice(LOSSES)} {amount}", value, value - amount)
        if operator == "*" and 0 < value <= LARGEST // 2:
            amount = rng.randint(2, min(5, LARGEST // value))
            return Event("*", amount, f"makes {amount} times as many", value, value * amount)
        if operator == "/" and value > 0 and value % 2 == 0:
            return Event("/", 2, "gives away half", value, value // 2)


def draw_story(rng: random.Random, num_events: int) -> Story:
    """A random problem of `num_events` events (1 to 10)."""
    name, item, start = rng.choice(tuple(PRONOUNS)), rng.choice(ITEMS), rng.randint(5, 60)
    events: list[Event] = []
    for _ in range(num_events):
        events.append(draw_event(rng, events[-1].after if events else start))
    return Story(name, item, start, tuple(events))


def draw_side(rng: random.Random, num_events: int, *, held_out: bool) -> Story:
    """A random problem of the wanted side of the split."""
    while True:
        story = draw_story(rng, num_events)
        if story.held_out == held_out:
            return story


def add_digits(a: int, b: int) -> str:
    """Column addition, units first: 48+7 gives '8+7=15, carry 1, 4+0+1=5'."""
    (a_tens, a_units), (b_tens, b_units) = divmod(a, 10), divmod(b, 10)
    units = a_units + b_units
    if units < 10:
        return f"{a_units}+{b_units}={units}, {a_tens}+{b_tens}={a_tens + b_tens}"
    return f"{a_units}+{b_units}={units}, carry 1, {a_tens}+{b_tens}+1={a_tens + b_tens + 1}"


def subtract_digits(a: int, b: int) -> str:
    """Column subtraction, units first: 42-17 gives '12-7=5, borrow 1, 4-1-1=2'."""
    (a_tens, a_units), (b_tens, b_units) = divmod(a, 10), divmod(b, 10)
    if a_units >= b_units:
        return f"{a_units}-{b_units}={a_units - b_units}, {a_tens}-{b_tens}={a_tens - b_tens}"
    return f"{a_units + 10}-{b_units}={a_units + 10 - b_units}, borrow 1, {a_tens}-{b_tens}-1={a_tens - b_tens - 1}"


def multiply_digits(a: int, b: int) -> str:
    """Column multiplication by one digit: 18*3 gives '8*3=24, carry 2, 1*3+2=5'."""
    tens, units = divmod(a, 10)
    carry = units * b // 10
    if not carry:
        return f"{units}*{b}={units * b}, {tens}*{b}={tens * b}"
    return f"{units}*{b}={units * b}, carry {carry}, {tens}*{b}+{carry}={tens * b + carry}"


def halve_digits(a: int, _: int) -> str:
    """Long division by two, tens first: 54/2 gives '5/2=2, rest 1, 14/2=7'."""
    tens, units = divmod(a, 10)
    rest = f", rest {tens % 2}" if tens % 2 else ""
    return f"{tens}/2={tens // 2}{rest}, {tens % 2 * 10 + units}/2={(tens % 2 * 10 + units) // 2}"


WORK: dict[str, Callable[[int, int], str]] = {
    "+": add_digits,
    "-": subtract_digits,
    "*": multiply_digits,
    "/": halve_digits,
}


def worked_solution(story: Story, rng: random.Random) -> str:
    """A solution in words, its wording drawn from the choices above.

    One in ten is written in a steady hand, which nearly always takes the most likely wording. Without these, texts of
    a model at temperature 0 look like nothing that it has seen, and long ones go wrong.
    """
    slots = {"who": PRONOUNS[story.name], "item": story.item, "answer": str(story.answer)}
    power = STEADY_POWER if rng.random() < STEADY_SHARE else 1

    def pick(wording: Wording) -> str:
        weights = [weight**power for _, weight in wording]
        return rng.choices([text for text, _ in wording], weights)[0].format(**slots)

    parts = [pick(OPENING)]
    for ordinal, event in zip(ORDINALS, story.events, strict=False):
        sum_, work = f"{event.before}{event.operator}{event.amount}", WORK[event.operator](event.before, event.amount)
        parts.append(
            f" {ordinal}{pick(LEAD)} {event.told}{pick(PURPOSE)} {sum_}{pick(HINGE)}{work}, "
            f"{pick(RESULT)} {event.after}{pick(UNIT)}.{pick(REMARK)}"
        )
    return "".join(parts) + " " + pick(CLOSING)


def training_stories(seed: int, num_events: Callable[[random.Random], int]) -> Iterator[tuple[str, str]]:
    """Endless (question, worked solution) pairs of the training side."""
    rng = random.Random(seed)
    while True:
        story = draw_side(rng, num_events(rng), held_out=False)
        yield story.question, worked_solution(story, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """Held-out problems, made on the spot: lengths take turns from `min_events` to `max_events`, no question twice."""

    name: ClassVar[str] = "arithmetic"
    default_policy: ClassVar[Policy] = "last"

    num_problems: int = 64
    seed: int = 0
    min_events: int = 1
    max_events: int = 6

    def __post_init__(self) -> None:
        check_whole("num_problems", self.num_problems, least=1)
        check_whole("seed", self.seed, least=0)
        check_whole("min_events", self.min_events, least=1)
        check_whole("max_events", self.max_events, least=self.min_events)
        if self.num_problems > MOST_PROBLEMS:
            raise ValueError(f"num_problems = {self.num_problems} is not allowed; it must be at most {MOST_PROBLEMS}")
        if self.max_events > MOST_EVENTS:
            raise ValueError(f"max_events = {self.max_events} is not allowed; it must be at most {MOST_EVENTS}")

    def problems(self) -> Sequence[Problem]:
        """The problems; more of them only adds some at the end."""
        rng = random.Random(f"problems/{self.seed}")
        lengths = range(self.min_events, self.max_events + 1)
        stories: dict[str, Story] = {}
        while len(stories) < self.num_problems:
            story = draw_side(rng, lengths[len(stories) % len(lengths)], held_out=True)
            stories.setdefault(story.question, story)
        return tuple(
            Problem(
                problem_id=f"arithmetic/{self.seed}/{index:04d}",
                messages=({"role": "user", "content": question},),
                gold=str(story.answer),
                data={"events": len(story.events)},
            )
            for index, (question, story) in enumerate(stories.items())
        )

    def grade(self, problem: Problem, response: str) -> Grade:
        """Verdict on the last complete box."""
        return grade_boxed_integer(response, problem.gold)

    def check_gold(self, gold: str) -> None:
        """Raises ValueError for a gold that is no whole number."""
        if not (gold.isascii() and gold.removeprefix("-").isdigit() and len(gold) <= LONGEST_GOLD):
            raise ValueError(f"the gold {gold!r} is no whole number of at most {LONGEST_GOLD} digits")
