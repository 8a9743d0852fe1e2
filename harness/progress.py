"""How far a session is: live accuracy of each arm, tokens per second and the time to go, in a terminal or in log lines.

Grades and drawing happen between two completions, never beside one, and may take only a small share of the engines'
seconds; where a grade is dear (a program to run), only some answers are graded live, and the display says how many.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from harness.budgets import replay
from harness.grade import Grader
from harness.plan import Job
from harness.study import Study
from results.records import Generation, Policy

SHARE_OF_ENGINE_SECONDS = 0.004
DRAW_EVERY_SECONDS = 0.25
LOG_EVERY_SECONDS = 10.0


@dataclass(slots=True)
class Tally:
    """Sums of one cell in this session; seconds are the completions' own."""

    done: int = 0
    graded: int = 0
    correct: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def accuracy(self) -> str:
        """For people: share and count."""
        return f"{self.correct / self.graded:.0%} of {self.graded}" if self.graded else "not graded yet"

    def speed(self) -> str:
        """For people: tokens per second."""
        return f"{self.tokens / self.seconds:.0f} tokens/s" if self.seconds else "no tokens yet"


class Allowance:
    """Permits a kind of side work as long as it has taken no more than its share of the engines' seconds."""

    def __init__(self) -> None:
        self._spent = 0.0

    def permits(self, engine_seconds: float) -> bool:
        """Whether there is some left."""
        return self._spent <= engine_seconds * SHARE_OF_ENGINE_SECONDS

    @contextmanager
    def spend(self) -> Iterator[None]:
        """Count the seconds of the block."""
        begun = time.perf_counter()
        yield
        self._spent += time.perf_counter() - begun


class SessionProgress:
    """Counts, grades live at the study's largest budget, and shows it."""

    def __init__(self, study: Study, grader: Grader, policy: Policy, console: Console) -> None:
        self.study, self.grader, self.policy, self.console = study, grader, policy, console
        self.tallies = {cell.arm_id: Tally() for cell in study.cells}
        self.view: TerminalView | LogView = TerminalView(self) if console.is_terminal else LogView(self)
        self.todo = self.done = self.done_before = 0
        self.begun = 0.0
        self._grading, self._drawing = Allowance(), Allowance()

    def start(self, todo: Sequence[Job], done_before: int) -> None:
        """Show the empty picture."""
        self.todo, self.done_before, self.begun = len(todo), done_before, time.perf_counter()
        self.view.start()

    def note(self, job: Job, generation: Generation, engine_seconds: float) -> None:
        """Count a completion; grade and draw if there is time for it."""
        self.done += 1
        tally = self.tallies[generation.arm_id]
        tally.done += 1
        tally.tokens += len(generation.completion.token_ids)
        tally.seconds += generation.completion.seconds
        if self._grading.permits(engine_seconds):
            with self._grading.spend():
                kept = replay(generation.completion, self.study.budgets[-1], self.study.clock)
                verdict = self.grader.grade(job.problem, generation, kept, self.policy).verdict
            tally.graded += 1
            tally.correct += verdict == "correct"
        if self._drawing.permits(engine_seconds) and self.view.is_due():
            with self._drawing.spend():
                self.view.draw()

    def close(self) -> None:
        """Show the last picture."""
        self.view.close()

    def headline(self) -> str:
        """Requests made, and the time to go."""
        made = f"{self.done + self.done_before} of {self.todo + self.done_before} requests"
        if not 0 < self.done < self.todo:
            return made
        minutes, seconds = divmod(round(self.elapsed() / self.done * (self.todo - self.done)), 60)
        return f"{made}, {minutes} min {seconds:02} s to go"

    def elapsed(self) -> float:
        """Seconds since the first request was made."""
        return time.perf_counter() - self.begun

    def lines(self) -> list[tuple[str, str, str]]:
        """Cell, live accuracy and speed."""
        named = [(cell.label, self.tallies[cell.arm_id]) for cell in self.study.cells]
        return [(label, tally.accuracy(), tally.speed()) for label, tally in named]


class LogView:
    """One plain line every few seconds, for logs and pipes."""

    def __init__(self, progress: SessionProgress) -> None:
        self.progress = progress
        self._drawn = 0.0

    def start(self) -> None:
        """The first line is due after a while."""
        self._drawn = time.perf_counter()

    def is_due(self) -> bool:
        """Whether the last line is old enough."""
        return time.perf_counter() - self._drawn >= LOG_EVERY_SECONDS

    def draw(self) -> None:
        """Print the line."""
        self._drawn = time.perf_counter()
        parts = [f"{label}: {accuracy}, {speed}" for label, accuracy, speed in self.progress.lines()]
        self.progress.console.print(" | ".join([self.progress.headline(), *parts]), soft_wrap=True, highlight=False)

    def close(self) -> None:
        """Print the last state."""
        self.draw()


class TerminalView:
    """A table and a bar that are redrawn in place."""

    def __init__(self, progress: SessionProgress) -> None:
        self.progress = progress
        self._live = Live(console=progress.console, auto_refresh=False)
        self._drawn = 0.0

    def start(self) -> None:
        """Begin to draw in place."""
        self._live.start()

    def is_due(self) -> bool:
        """At most four times a second."""
        return time.perf_counter() - self._drawn >= DRAW_EVERY_SECONDS

    def draw(self) -> None:
        """Redraw."""
        self._drawn = time.perf_counter()
        self._live.update(self._picture(), refresh=True)

    def close(self) -> None:
        """Draw the last state and leave it there."""
        self.draw()
        self._live.stop()

    def _picture(self) -> Table:
        progress = self.progress
        grid = Table.grid(padding=(0, 2))
        for cells in progress.lines():
            grid.add_row(*cells)
        total = max(1, progress.todo + progress.done_before)
        bar = ProgressBar(total=total, completed=progress.done + progress.done_before, width=24)
        grid.add_row(bar, progress.headline())
        return grid
