"""How fast answers are graded, beside bare math-verify in the same run: a script to run by hand, no test.

    python tests/grading_speed.py ../shared/outputs [processes]

Takes 495 recorded answers, and for the pool 5 more that hang. The limit: 1.2 times bare math-verify on the 495, plus 5
time limits over the number of processes. Both times include the start of the processes. math-verify's own timeout stays
on; each answer is handed to it in a box. The pool's limit is on CPU time, so on a machine that is busy with other work,
or with more processes than cores, the hanging answers take longer on the clock: look at the CPU seconds then.
"""

import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tasks.answers import final_answer
from tasks.equivalence import MathChecker

PLAIN, HANGING = 495, 5
HANGS = r"\int_0^1 \frac{{x^{{{n}}}\sin(x^{{3}})}}{{\sqrt{{1+x^{{5}}}}}} dx"
FILES = ("math_qwen25math_cot100x8.jsonl", "math500_qwen25_1.5b_bestofn.jsonl", "math500_gemma4_31b_preds.jsonl")

Pair = tuple[str, str]


def recorded_pairs(folder: Path) -> list[Pair]:
    """Gold and answer of the first responses that have an answer."""
    pairs: list[Pair] = []
    for name in FILES:
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            answer = row["pred"] if "pred" in row else final_answer(row["response"])
            if answer:
                pairs.append((row["gold"], answer))
    return pairs[:PLAIN]


def bare_verdict(pair: Pair) -> bool:
    """math-verify as it comes."""
    from math_verify import parse, verify

    gold, answer = (parse(rf"\boxed{{{text}}}") for text in pair)
    return bool(verify(gold, answer))


def cpu_seconds() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Time both and print the ratio."""
    pairs = recorded_pairs(Path(sys.argv[1]))
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    hanging = [("1", HANGS.format(n=2 * n + 3)) for n in range(HANGING)]
    begun = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(processes) as bare_pool:
        bare = sum(bare_pool.map(bare_verdict, pairs, chunksize=8))
        bare_pool.close()
        bare_pool.join()
    bare_seconds, bare_cpu = time.perf_counter() - begun, cpu_seconds()
    checker = MathChecker(workers=processes)
    mixed = [pair for start in range(HANGING) for pair in (*pairs[start::HANGING], hanging[start])]
    begun = time.perf_counter()
    with ThreadPoolExecutor(max_workers=checker.askers) as pool:
        grades = list(pool.map(lambda pair: checker.grade(*pair), mixed))
    seconds = time.perf_counter() - begun
    checker.close()
    pool_cpu = cpu_seconds() - bare_cpu
    hanging_seconds = HANGING * checker.time_limit_seconds
    limit, cpu_limit = 1.2 * bare_seconds + hanging_seconds / processes, 1.2 * bare_cpu + hanging_seconds
    counts = Counter(grade.verdict for grade in grades)
    sys.stdout.write(
        f"{processes} processes\n"
        f"bare math-verify: {len(pairs)} answers in {bare_seconds:.1f} s ({bare_cpu:.1f} s of CPU), {bare} correct\n"
        f"pool: {len(mixed)} answers in {seconds:.1f} s ({pool_cpu:.1f} s of CPU), {dict(counts)}\n"
        f"{'within' if seconds <= limit else 'ABOVE'} the limit of {limit:.1f} s; "
        f"of CPU time {'within' if pool_cpu <= cpu_limit else 'ABOVE'} the {cpu_limit:.1f} s that this allows\n"
    )


if __name__ == "__main__":
    main()
