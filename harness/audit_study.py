"""The arms of a study held against one another: which cells have to write the same tokens, and whether they do.

Knows a study, its generations and, through the Engine protocol, its target; the comparison itself is harness/audit.py.
Cells of one temperature and number format share their requests' seeds. At temperature 0 all of them have to write the
same tokens. Above 0 the rules that follow the target's own draws (`walk`, `paper`) do, since those are fixed by seed
and position; rules that weigh the drafter's law keep the target's law alone, which harness/audit_law.py tests.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache

from engines.contract import Engine
from harness.arms import Arm
from harness.audit import EPSILON, Divergence, Explained, Identity, explain, identity
from harness.generate import OpenEngine, complete, open_engine, open_named
from harness.plan import plan_jobs
from harness.study import Cell, Study
from results.records import Generation
from tasks.contract import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cells that have to write the same tokens; the others are compared with `base`."""

    base: Cell
    others: tuple[Cell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them."""
        return (self.base, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A cell against the base of its group."""

    cell: Cell
    base: Cell
    identity: Identity
    explained: Explained


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncompared:
    """A cell whose tokens say nothing, and why."""

    cell: Cell
    reason: str


def group_cells(study: Study) -> tuple[list[Group], list[Uncompared]]:
    """What is compared with what. The base of a group is an arm without drafts, the study's baseline among those."""
    by_format: dict[tuple[float, str], list[Cell]] = defaultdict(list)
    uncompared: list[Uncompared] = []
    for cell in study.cells:
        if follows_seed(cell):
            by_format[cell.temperature, cell.arm.number_format].append(cell)
        else:
            uncompared.append(Uncompared(cell=cell, reason=f"rule {rule_of(cell)} draws on its own coins: by law only"))
    groups: list[Group] = []
    for cells in by_format.values():
        base, *others = sorted(cells, key=lambda cell: (drafts(cell), cell.arm.name != study.baseline))
        if drafts(base):
            reason = f"no arm without drafts at this temperature in {base.arm.number_format}"
            uncompared.append(Uncompared(cell=base, reason=reason))
        if others:
            groups.append(Group(base=base, others=tuple(others)))
    return groups, uncompared


def drafts(cell: Cell) -> bool:
    """Whether the arm speculates."""
    return cell.arm.drafts


def follows_seed(cell: Cell) -> bool:
    """Whether the cell's tokens are the target's own, given the request's seed."""
    arm, speculation = cell.arm, cell.arm.speculation
    if cell.temperature == 0 or not arm.drafts:
        return True
    # A server's own ways to draft accept by coins of their own; ours follows the target's draws there too.
    if arm.serving and (speculation is None or speculation.drafting != "diffusion"):
        return False
    return speculation is not None and not speculation.weighs_draft_law


def rule_of(cell: Cell) -> str:
    """The verification rule of an arm that drafts."""
    return cell.arm.speculation.rule if cell.arm.speculation else "of the server"


def undeadlined(study: Study) -> Study:
    """The study as it is audited: one sample of each problem, and no deadline, which would only shorten answers."""
    return replace(study, samples=1, budgets=(math.inf,))


def generate_arms(
    study: Study, problems: Sequence[Problem], cells: Iterable[Cell], open_engine: OpenEngine = open_engine
) -> Iterator[tuple[Arm, list[Generation]]]:
    """Answers of the given cells, arm by arm, one engine open at a time; nothing is written anywhere.

    Raises ValueError for whatever is wrong with a model.
    """
    wanted = {cell.arm_id for cell in cells}
    jobs = [job for job in plan_jobs(study, problems) if job.cell.arm_id in wanted]
    for arm in study.arms:
        own = [job for job in jobs if job.cell.arm == arm]
        if own:
            with closing(open_named(study, arm, open_engine)) as engine:
                yield arm, [job.generation(complete(engine, job)) for job in own]


def compare_group(
    study: Study,
    problems: Sequence[Problem],
    generations: Iterable[Generation],
    group: Group,
    open_engine: OpenEngine = open_engine,
) -> list[Compared]:
    """Every cell of a group against its base. An engine is opened only where tokens differ, to see how near ties are.

    Above temperature 0 the engine compares logits over temperature: times the temperature, the gap is in logits.
    """
    cells = {cell.arm_id: cell for cell in group.cells}
    found = identity([g for g in generations if g.arm_id in cells], group.base.arm_id)
    with ExitStack() as stack:

        @cache
        def target() -> Engine:
            return stack.enter_context(closing(open_named(study, group.base.arm, open_engine)))

        requests = {
            (job.problem.problem_id, job.sample): job.request
            for job in plan_jobs(study, problems)
            if job.cell == group.base
        }

        def gap(divergence: Divergence, first: int, second: int) -> float:
            request = requests[divergence.problem_id, divergence.sample]
            return (group.base.temperature or 1.0) * target().token_gap(request, divergence.prefix, first, second)

        epsilon = EPSILON[group.base.arm.number_format]
        return [
            Compared(
                cell=cells[each.arm_id],
                base=group.base,
                identity=each,
                explained=explain(each.divergences, gap, epsilon),
            )
            for each in found
        ]
