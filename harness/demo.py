"""The demo: its study, and sentences on the audit that its arms write the same text at temperature 0.

Knows a study's graded generations; what is compared with what, and how, is harness/audit_study.py.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.audit import EPSILON
from harness.audit_study import Compared, compare_group, group_cells
from harness.generate import OpenEngine, open_engine
from harness.study import Study
from results.records import Generation
from tasks.contract import Problem

DEMO_STUDY = Path(__file__).with_name("demo.toml")


def identity_lines(
    study: Study,
    problems: Sequence[Problem],
    generations: Sequence[Generation],
    open_engine: OpenEngine = open_engine,
) -> Iterator[str]:
    """Sentences on the identity of the arms' texts at temperature 0, within each number format."""
    groups, _ = group_cells(study)
    for group in groups:
        if group.base.temperature == 0:
            found = compare_group(study, problems, generations, group, open_engine)
            yield from group_lines(found) if found else ()


def group_lines(found: Sequence[Compared]) -> Iterator[str]:
    """One sentence on the arms of a number format, and one on each that diverges from the first."""
    compared, identical = sum(each.identity.compared for each in found), sum(each.identity.identical for each in found)
    base, number_format = found[0].base, found[0].base.arm.number_format
    yield (
        f"T=0, {number_format}: {identical} of {compared} texts of {', '.join(each.cell.arm.name for each in found)} "
        f"are token for token those of {base.arm.name}"
    )
    for each in found:
        explained = each.explained
        if each.identity.divergences:
            yield (
                f"  {each.cell.arm.name}: {len(each.identity.divergences)} first divergences, {explained.ties} of them "
                f"ties (target logits at most {EPSILON[number_format]:g} apart; the widest "
                f"{explained.widest_tie:.3g}), {len(explained.violations)} unexplained"
            )
