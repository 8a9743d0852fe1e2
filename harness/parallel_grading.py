"""Many texts graded at once, for grade.py and grade_file.py. Knows no study and no file."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from results.records import Grade
from tasks.contract import Pooled, Problem, Task


def grade_all(
    task: Task, texts: Sequence[tuple[Problem, str]], *, workers: int, done: Callable[[int, Grade, float], None]
) -> None:
    """Grade `workers` texts at a time; `done` is told each one's place, grade and wall seconds, in the order they come.

    Tasks grade in processes of their own, so that threads are enough. After an error or an interrupt nothing begins.
    """
    stopped = threading.Event()

    def grade_one(place: int) -> tuple[int, Grade, float]:
        if stopped.is_set():
            raise InterruptedError("stopped")
        begun = time.perf_counter()
        grade = task.grade(*texts[place])
        return place, grade, time.perf_counter() - begun

    threads = task.open_pool(workers) if isinstance(task, Pooled) else workers
    with ThreadPoolExecutor(max_workers=threads) as pool:
        waiting = [pool.submit(grade_one, place) for place in range(len(texts))]
        try:
            for future in as_completed(waiting):
                done(*future.result())
        except BaseException:  # an interrupt, too, must not wait for what is at work
            stopped.set()
            if isinstance(task, Pooled):
                task.close_pool()  # nobody waits for hard answers that are at work
            raise
        finally:
            pool.shutdown(cancel_futures=True)
