"""`streak forecast`: what a drafter will keep per round, and gain, before it is served."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from engines.reference import stamps_of
from engines.speculation import Speculation
from harness import catalog
from harness.commands.exits import INTERRUPTED, plain_errors
from harness.commands.json_file import check_writable, write_json
from harness.forecast import Asked, Forecast, forecasts
from harness.stamps import stamp
from results.provenance import collect_provenance

WIDTH = 100


def forecast(
    settings: Mapping[str, Any],
    *,
    task: str,
    options: Mapping[str, object],
    problems: int,
    json_file: Path | None,
    **asked: Any,
) -> None:
    """Forecast, print, and write the JSON file if one is named; nothing else is written."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, highlight=False)
    try:
        with plain_errors():
            if json_file:
                check_writable("--json", json_file)
            speculation = Speculation(**{key: value for key, value in settings.items() if value is not None})
            chosen = list(catalog.build_task(task, options).problems())[:problems]
            found = list(forecasts(Asked(speculation=speculation, problems=chosen, **asked)))
            stamps = stamps_of(speculation)
            warning = stamp([{"arms": speculation.drafters, "describe": stamps}])
            if warning:
                console.print(warning)
            console.print(table(found, len(chosen)))
            if json_file:
                facts = {
                    "speculation": speculation.settings,
                    "verifier": asked["verifier"],
                    "problems": len(chosen),
                } | stamps
                row = {"forecasts": [each.to_json() for each in found], "asked": facts}
                write_json(json_file, row | {"provenance": collect_provenance({})})
    except KeyboardInterrupt:
        typer.echo("streak: interrupted; a forecast keeps nothing", err=True)
        raise typer.Exit(INTERRUPTED) from None


def table(found: list[Forecast], problems: int) -> Table:
    """One row a temperature."""
    shown = Table(
        title=f"Forecast on {problems} problems",
        caption="tau: accepted draft tokens per round. Speed-up: tokens/s over plain decoding, clock decode; limit: "
        "that of steps and rounds that are bare forwards. FLOPs: of a kept token, over a plainly decoded one's.",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("T", "rounds", "tau", "measured", "off by", "speed-up", "measured", "off by", "limit", "FLOPs"):
        shown.add_column(name, justify="right")
    for each in found:
        measured = each.measured
        shown.add_row(
            f"{each.temperature:g}",
            str(each.acceptance.rounds),
            f"{each.acceptance.tau:.3f}",
            f"{measured.acceptance.tau:.3f}" if measured else "-",
            share(each.tau_error),
            f"{each.speedup:.2f} x",
            f"{measured.speedup:.2f} x" if measured else "-",
            share(each.speedup_error),
            f"{each.limit:.2f} x",
            f"{each.flops_ratio:.2f} x",
        )
    return shown


def share(error: float | None) -> str:
    """An error in percent."""
    return "-" if error is None else f"{100 * error:+.1f} %"
