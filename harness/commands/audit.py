"""`streak audit`: whether speculation is lossless, token for token on a study and as a law on a tiny model."""

from collections.abc import Iterator
from pathlib import Path

import typer

from harness.audit import EPSILON, Violation
from harness.audit_law import ALPHA, LENGTH, PAIRS, LawCheck, check_laws
from harness.audit_study import Compared, Group, Uncompared, compare_group, generate_arms, group_cells, undeadlined
from harness.commands.exits import plain_errors
from harness.study import Study, read_study
from results.records import Generation
from tasks.contract import Problem

AUDIT_STUDY = Path(__file__).parents[1] / "audit.toml"
VIOLATED = 1


def audit(study_path: Path | None, num_problems: int, source: Path | None) -> None:
    """Audit a study's arms and every rule's law; exit code 1 on a violation."""
    with plain_errors():
        study = undeadlined(read_study(study_path or AUDIT_STUDY, source))
        groups, uncompared = group_cells(study)
        if not groups:
            raise ValueError(
                f"study {study.name!r}: no two arms whose tokens can be compared; an audit needs an arm without "
                "drafts and another one at the same temperature, in the same number format"
            )
        problems = list(study.build_task().problems())[:num_problems]
        compared = audit_tokens(study, problems, groups, uncompared)
        violations = sum(len(each.explained.violations) for each in compared) + audit_laws()
    if not any(each.identity.compared for each in compared):
        typer.echo("no answer could be compared: an audit of nothing")
        raise typer.Exit(VIOLATED)
    failed = sum(each.identity.failed for each in compared)
    left_out = f"; answers not compared, since a request failed: {failed}" if failed else ""
    if violations:
        typer.echo(f"{violations} violation{'s' if violations > 1 else ''}{left_out}")
        raise typer.Exit(VIOLATED)
    typer.echo(f"no violation{left_out}")


def audit_tokens(
    study: Study, problems: list[Problem], groups: list[Group], uncompared: list[Uncompared]
) -> list[Compared]:
    """Generate, and print how each arm's tokens compare."""
    cells = [cell for group in groups for cell in group.cells]
    typer.echo(f"{study.title}: tokens of {len(problems)} problems, {len(cells) * len(problems)} requests")
    generations: list[Generation] = []
    for arm, own in generate_arms(study, problems, cells):
        generations += own
        failures = [g.completion.error for g in own if g.completion.finish_reason == "error"]
        failed = f", {len(failures)} failed, the first: {failures[0]}" if failures else ""
        typer.echo(f"  {arm.name}: {len(own)} requests made{failed}")
    found = [each for group in groups for each in compare_group(study, problems, generations, group)]
    width = max(len(cell.label) for cell in study.cells)
    for each in found:
        for line in compared_lines(each, width):
            typer.echo(f"  {line}")
    for other in uncompared:
        typer.echo(f"  {other.cell.label:{width}}  not compared: {other.reason}")
    return found


def compared_lines(each: Compared, width: int) -> Iterator[str]:
    """One line on a cell, and one on the first of its violations."""
    identity, explained = each.identity, each.explained
    number_format = each.cell.arm.number_format
    tie = f" (widest {explained.widest_tie:.2g}, allowed {EPSILON[number_format]:g})" if explained.ties else ""
    failed = f", {identity.failed} failed" if identity.failed else ""
    yield (
        f"{each.cell.label:{width}}  {number_format}: {identity.compared} compared with {each.base.arm.name}, "
        f"{identity.identical} identical, {explained.ties} ties{tie}, {len(explained.violations)} violations{failed}"
    )
    if explained.violations:
        yield f"{'':{width}}  the first: {violation_text(explained.violations[0])}"


def violation_text(violation: Violation) -> str:
    """Where two texts parted, and how wide."""
    at = violation.divergence
    tokens = ["its end" if token is None else f"token {token}" for token in (at.arm_token, at.baseline_token)]
    return f"{at.problem_id}, position {at.position}: {tokens[0]} for {tokens[1]}, scores {violation.gap:.3g} apart"


def audit_laws() -> int:
    """Print how every rule's law fits; returns the number of violations."""
    tests = len(PAIRS)
    typer.echo(
        f"law of the first {LENGTH} tokens at T=1, tiny random target: {tests} tests at p >= {ALPHA:g}, so that with "
        f"other seeds rules that are right would be blamed at most {tests * ALPHA:.2%} of the time"
    )
    violations = 0
    for check in check_laws():
        typer.echo(f"  {law_line(check)}")
        violations += not check.holds
    return violations


def law_line(check: LawCheck) -> str:
    """One line on a rule and a shape."""
    fit = check.fit
    return (
        f"{check.rule:9} x {check.shape:5}  n {fit.draws}, tau {check.tau:.2f}, chi-square p {fit.p_value:.3g} "
        f"({fit.cells} cells), TV {fit.tv:.4f} (expected {fit.expected_tv:.4f}): "
        f"{'holds' if check.holds else 'VIOLATED'}"
    )
