"""The tables of `streak bench`, at most 100 columns wide: numbers in, rich tables out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from harness.bench import CLOCK
from harness.bench_result import SPEEDUPS, ArmResult
from harness.concurrency import Throughput
from harness.drafter_latency import Against, Latency

POSITIONS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MOST_POSITIONS = 12
"""More do not fit beside a name."""


def speed_table(results: Sequence[ArmResult], baseline: str) -> Table:
    """Tokens per second and speed-ups."""
    temperature = results[0].cell.temperature
    table = plain_table(
        f"Temperature {temperature:g}: speed",
        f"Clock {CLOCK}. Speed-up over {baseline} on the same n problems: ratio of sums, and median of the problems' "
        "ratios; [95 % interval over problems].",
        ("arm", "tokens/s", "speed-up", "median speed-up", "n", "rounds"),
    )
    for each in results:
        speeds = each.speeds
        table.add_row(
            each.cell.arm.name,
            number(speeds["tokens_per_second"], ".1f"),
            interval(speeds, "speedup"),
            interval(speeds, "median_speedup"),
            str(speeds["problems_timed"]),
            str(each.acceptance.rounds),
        )
    return table


def rounds_table(results: Sequence[ArmResult]) -> Table:
    """What a round keeps, costs, and could bring."""
    table = plain_table(
        "Rounds",
        "tau: accepted draft tokens per round; the arm pays once tau is above break-even. Milliseconds per round. "
        "Limit: (tau + 1) t_ar / (t_draft + t_verify), bare forwards timed apart; reached: speed-up / limit.",
        ("arm", "tau", "tau + bonus", "break-even", "draft ms", "verify ms", "other ms", "limit", "reached"),
    )
    for each in results:
        speeds = each.speeds
        table.add_row(
            each.cell.arm.name,
            number(speeds["tau"]),
            number(speeds["tau_with_bonus"]),
            number(each.break_even_tau),
            *(number(speeds[f"{part}_ms"]) for part in ("draft", "verify", "other")),
            number(each.limit),
            number(each.limit_share, ".0%"),
        )
    return table


def ratio_table(results: Sequence[ArmResult], against: str) -> Table:
    """Tau and late survival over another arm's."""
    table = plain_table(
        f"Tau over that of {against}",
        "Ratio of the accepted draft tokens per round on the same problems; late: of those of the window's second half "
        "alone, and how often its places were tested; [95 % interval over problems].",
        ("arm", "tau", "ratio", "late", "tested"),
    )
    for each in results:
        if each.cell.arm.speculation:
            table.add_row(
                each.cell.arm.name,
                number(each.speeds["tau"]),
                interval(each.speeds, "tau_ratio"),
                interval(each.speeds, "late_ratio"),
                str(each.late_tests),
            )
    return table


def alpha_table(results: Sequence[ArmResult]) -> Table:
    """Acceptance by position; of a wide window only some positions."""
    widest = max(len(each.acceptance.positions) for each in results)
    shown = list(range(1, widest + 1))
    if widest > MOST_POSITIONS:
        shown = [*[position for position in POSITIONS if position < widest][: MOST_POSITIONS - 1], widest]
    table = plain_table(
        "Acceptance by position",
        "alpha_j: share of the rounds with positions 1 to j - 1 accepted that accepted position j; "
        "- where no round came so far.",
        ("arm", *map(str, shown)),
    )
    for each in results:
        alpha = each.acceptance.alpha
        if alpha:
            texts = [number(alpha[place - 1]) if place <= len(alpha) else "" for place in shown]
            table.add_row(each.cell.arm.name, *texts)
    return table


def needed_table(results: Sequence[ArmResult]) -> Table:
    """The tau that 2, 3 and 4 x take."""
    table = plain_table(
        "Tau needed at the measured step times",
        "Accepted draft tokens per round at which an arm with this round would be so many times as fast as the "
        "baseline; more than its window is out of reach.",
        ("arm", "tau", "window", *(f"for {speedup} x" for speedup in SPEEDUPS)),
    )
    for each in results:
        speculation = each.cell.arm.speculation
        if speculation:
            table.add_row(
                each.cell.arm.name,
                number(each.speeds["tau"]),
                str(speculation.window),
                *(number(each.needed_tau(speedup)) for speedup in SPEEDUPS),
            )
    return table


def latency_table(timed: Sequence[Latency], against: Against) -> Table:
    """Milliseconds per round of each drafter."""
    table = plain_table(
        f"Drafter against {against}",
        f"Milliseconds per round of a bare drafter forward, median; ratio to the smallest {against}.",
        ("arm", "drafter", "context", "window", "ms", "ratio"),
    )
    for each in timed:
        seconds = math.nan if each.seconds is None else each.seconds
        ratio = math.nan if each.ratio is None else each.ratio
        place = each.arm, each.drafter, str(each.context), str(each.window)
        table.add_row(*place, number(1000 * seconds, ".3f"), number(ratio))
    return table


def throughput_table(measured: Sequence[Throughput]) -> Table:
    """Tokens per second by concurrency."""
    levels = sorted({each.concurrency for each in measured})
    table = plain_table(
        "Throughput by concurrency",
        "Tokens/s of all requests together, and tau; from the first request sent to the last answer's end.",
        ("arm", "T", *map(str, levels)),
    )
    cells = {(each.arm, each.temperature, each.concurrency): each for each in measured}
    for arm, temperature in dict.fromkeys((each.arm, each.temperature) for each in measured):
        found = [cells[arm, temperature, level] for level in levels]
        texts = [f"{each.tokens_per_second:.1f} ({number(each.tau)})" for each in found]
        table.add_row(arm, f"{temperature:g}", *texts)
    return table


def shared_rounds_table(measured: Sequence[Throughput], against: str | None) -> Table:
    """Where a round's time goes when so many requests share it; the rest also over that of the arm `against`."""
    table = plain_table(
        "Rounds by concurrency",
        "Milliseconds of a round that all these requests share, from the start of the target's forward to that of the "
        "next round's: forwards of drafter and target, and all else of the engine and of drafting.",
        (
            *("arm", "T", "requests", "rounds", "draft ms", "verify ms", "other ms"),
            *([f"other / {against}"] if against else []),
        ),
    )
    for each in measured:
        row = [number(value) for value in each.round_ms.values()]
        row += [number(each.other_over(measured, against))] if against else []
        table.add_row(each.arm, f"{each.temperature:g}", str(each.concurrency), str(each.rounds.rounds), *row)
    return table


def plain_table(title: str, caption: str, headings: Sequence[str]) -> Table:
    """Numbers to the right, few lines."""
    table = Table(
        title=title,
        caption=caption,
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        collapse_padding=True,
        pad_edge=False,
        title_justify="left",
        caption_justify="left",
    )
    for heading in headings:
        name = heading in ("arm", "drafter")
        table.add_column(heading, justify="left" if name else "right", overflow="fold", no_wrap=not name)
    return table


def number(value: float, form: str = ".2f") -> str:
    """For people; a dash where nothing could be computed."""
    return "-" if math.isnan(value) else f"{value:{form}}"


def interval(speeds: Mapping[str, Any], name: str) -> str:
    """An estimate with its ends in brackets, where they differ or are unknown."""
    value, low, high = (float(speeds[column]) for column in (name, f"{name}_low", f"{name}_high"))
    return number(value) if low == high or math.isnan(value) else f"{number(value)} [{number(low)}, {number(high)}]"
