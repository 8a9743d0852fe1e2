"""The demo: its study, and the audit that its arms write the same text at temperature 0.

Knows a study's graded generations; opens an engine only where tokens differ, to see how near a tie was.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from engines.contract import NUMBER_FORMATS, NumberFormat
from harness.audit import EPSILON, Divergence, Explained, Identity, explain, identity
from harness.generate import OpenEngine, open_engine
from harness.plan import plan_jobs
from harness.study import Cell, Study
from results.records import Generation
from tasks.contract import Problem

DEMO_STUDY = Path(__file__).with_name("demo.toml")

Explain = Callable[[Cell, Sequence[Divergence]], Explained]


def identity_lines(
    study: Study,
    problems: Sequence[Problem],
    generations: Sequence[Generation],
    open_engine: OpenEngine = open_engine,
) -> Iterator[str]:
    """Sentences on the identity of the arms' texts at temperature 0, within each number format.

    Arms are compared with the baseline, or with the first arm of a format that the baseline does not have.
    """

    def explain_with_target(base: Cell, divergences: Sequence[Divergence]) -> Explained:
        return look_up(study, problems, base, divergences, open_engine)

    for number_format in NUMBER_FORMATS:
        cells = [cell for cell in study.cells if cell.temperature == 0 and cell.arm.number_format == number_format]
        cells.sort(key=lambda cell: cell.arm.name != study.baseline)
        if len(cells) > 1:
            own = [g for g in generations if g.arm_id in {cell.arm_id for cell in cells}]
            yield from format_lines(number_format, cells, identity(own, cells[0].arm_id), explain_with_target)


def format_lines(
    number_format: NumberFormat, cells: Sequence[Cell], found: Sequence[Identity], explain_with_target: Explain
) -> Iterator[str]:
    """One sentence on a number format, and one on each arm that diverges from the first."""
    base, names = cells[0], {cell.arm_id: cell.arm.name for cell in cells}
    compared, identical = sum(each.compared for each in found), sum(each.identical for each in found)
    yield (
        f"T=0, {number_format}: {identical} of {compared} texts of {', '.join(names[each.arm_id] for each in found)} "
        f"are token for token those of {base.arm.name}"
    )
    for each in found:
        if each.divergences:
            explained = explain_with_target(base, each.divergences)
            yield (
                f"  {names[each.arm_id]}: {len(each.divergences)} first divergences, {explained.ties} of them ties "
                f"(target logits at most {EPSILON[number_format]:g} apart; the widest {explained.widest_tie:.3g}), "
                f"{explained.unexplained} unexplained"
            )


def look_up(
    study: Study,
    problems: Sequence[Problem],
    base: Cell,
    divergences: Sequence[Divergence],
    open_engine: OpenEngine,
) -> Explained:
    """Count the ties among divergences by the target's own logits."""
    jobs = {(job.problem.problem_id, job.sample): job for job in plan_jobs(study, problems) if job.cell == base}
    engine = open_engine(study, base.arm)

    def gap(divergence: Divergence, first: int, second: int) -> float:
        request = jobs[divergence.problem_id, divergence.sample].request
        return engine.token_gap(request, divergence.prefix, first, second)

    try:
        return explain(divergences, gap, EPSILON[base.arm.number_format])
    finally:
        engine.close()
