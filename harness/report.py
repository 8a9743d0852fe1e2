"""What a run folder shows: figures of accuracy against seconds, and the headline table, by analysis/.

Knows a study and its graded generations; loads pandas and matplotlib only when it draws.
"""

from dataclasses import dataclass
from pathlib import Path

from harness.grade import RECORDS_FILE, Graded
from harness.stamps import stamp_of_run
from harness.study import Study
from results.ledger import read_records
from results.records import Policy

FIGURES_FOLDER = "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The headline table as people read it, the figure of the headline's policy, and all files that were written."""

    headline: str
    figure: Path
    files: tuple[Path, ...]


def draw_report(study: Study, graded: Graded, policy: Policy, folder: Path) -> Report:
    """Draw one figure a cut-off policy, `accuracy` by the headline's policy, and write the headline table."""
    from analysis.accuracy import draw_accuracy
    from analysis.differences import difference_table, write_differences
    from analysis.frames import generations_frame, records_frame
    from analysis.headline import headline
    from analysis.headline_text import as_text, write_headline
    from analysis.passes import pass_table, write_passes

    records = records_frame(read_records(folder / RECORDS_FILE))
    arms = [arm.name for arm in study.arms]
    figures, warning = folder / FIGURES_FOLDER, stamp_of_run(folder)
    title = f"{study.title} ({warning})" if warning else study.title
    files: list[Path] = []
    for each in sorted(study.policies, key=lambda other: other != policy):
        name = "accuracy" if each == policy else f"accuracy_{each}"
        files += draw_accuracy(records, figures, clock=study.clock, policy=each, title=title, arms=arms, name=name)
    table = headline(
        generations_frame(graded.generations),
        records,
        baseline=study.baseline,
        policy=policy,
        accuracy_clock=study.clock,
        arms=arms,
    )
    text = f"{warning}\n\n{as_text(table)}" if warning else as_text(table)
    files += write_headline(table, figures)
    files += write_differences(
        difference_table(records, baseline=study.baseline, clock=study.clock, policy=policy), figures
    )
    files += write_passes(pass_table(records, clock=study.clock, policy=policy), figures)
    return Report(headline=text, figure=files[0], files=tuple(files))
