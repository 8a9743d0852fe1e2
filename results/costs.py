"""What a round costs, as plain numbers: the tau at which it pays, the speed-up it could reach, and its FLOPs.

Knows no model, clock or file. A step is one token of plain decoding; tau counts accepted draft tokens per round, so a
round keeps tau + 1. A NaN that goes in comes out. FLOPs count a multiply and an add as two.
Sources: docs/NOTATION.md; Leviathan et al. (2023), arXiv 2211.17192, section 3.3 (speed-up); Kaplan et al. (2020),
arXiv 2001.08361, section 2.1 (2 N per row; attention).
"""

from dataclasses import dataclass


def speed_up(tau: float, *, step_seconds: float, round_seconds: float) -> float:
    """Tokens per second over those of plain decoding: (tau + 1) * step / round.

    Args:
        tau: accepted draft tokens per round
        step_seconds: seconds of a plain step (t_ar)
        round_seconds: seconds of a whole round (t_draft + t_verify + t_other)

    Raises:
        ValueError: seconds that are not above zero.
    """
    _require_positive(step_seconds=step_seconds, round_seconds=round_seconds)
    return (tau + 1) * step_seconds / round_seconds


def speed_limit(tau: float, *, step_seconds: float, draft_seconds: float, verify_seconds: float) -> float:
    """The speed-up if a round were its two forwards and nothing else: (tau + 1) * t_ar / (t_draft + t_verify).

    All seconds are those of bare forwards, timed apart. Raises ValueError as speed_up does.
    """
    return speed_up(tau, step_seconds=step_seconds, round_seconds=draft_seconds + verify_seconds)


def needed_tau(speedup: float, *, step_seconds: float, round_seconds: float) -> float:
    """Accepted draft tokens per round that a speed-up takes: speedup * round / step - 1; the inverse of speed_up.

    Raises:
        ValueError: a speed-up or seconds that are not above zero.
    """
    _require_positive(speedup=speedup, step_seconds=step_seconds, round_seconds=round_seconds)
    return speedup * round_seconds / step_seconds - 1


def break_even_tau(*, step_seconds: float, round_seconds: float) -> float:
    """Accepted draft tokens per round from which speculation pays: round / step - 1. Raises as needed_tau does."""
    return needed_tau(1.0, step_seconds=step_seconds, round_seconds=round_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a transformer's FLOPs depend on.

    matmul_parameters: weights that multiply every row: projections and output layer, not the embedding table
    layers, width:     for the attention term: layers, and query heads times the size of a head
    """

    matmul_parameters: int
    layers: int = 0
    width: int = 0


def forward_flops(network: Network, rows: int, *, context: int = 0) -> int:
    """FLOPs of one forward over `rows` tokens: 2 N a row, and 4 * layers * width * context a row for attention.

    `context` is the number of keys a row attends to (scores and weighted values take 2 each); 0 leaves the term out.
    Raises ValueError for a negative number.
    """
    for name, value in (("rows", rows), ("context", context)):
        if value < 0:
            raise ValueError(f"{name} = {value} is not allowed; allowed: a whole number >= 0")
    return rows * (2 * network.matmul_parameters + 4 * network.layers * network.width * context)


def training_flops(network: Network, rows: int, *, adapter_parameters: int | None = None) -> int:
    """FLOPs of forward and backward over `rows` processed rows: 6 N a row where all weights are trained.

    Where only adapters are (LoRA): 4 N a row for the frozen weights, whose own gradients are not formed, and 6 a row
    for every parameter of the adapters. Raises ValueError for a negative number.
    """
    for name, value in (("rows", rows), ("adapter_parameters", adapter_parameters or 0)):
        if value < 0:
            raise ValueError(f"{name} = {value} is not allowed; allowed: a whole number >= 0")
    if adapter_parameters is None:
        return 6 * network.matmul_parameters * rows
    return rows * (4 * network.matmul_parameters + 6 * adapter_parameters)


def round_flops(
    target: Network, verify_rows: int, drafter: Network | None = None, draft_rows: int = 0, *, context: int = 0
) -> int:
    """FLOPs of a round: the drafter's rows and the target's.

    Args:
        target: the network that verifies
        verify_rows: the bonus token and all drafted nodes; 1 in plain decoding
        drafter: the network that drafts; None where drafting takes no forward
        draft_rows: rows of all its forwards in the round: tokens committed since the last one, and the window in each
            denoising step
        context: tokens before the round, for the attention term; 0 leaves the term out
    """
    drafting = forward_flops(drafter, draft_rows, context=context) if drafter else 0
    return drafting + forward_flops(target, verify_rows, context=context)


def _require_positive(**values: float) -> None:
    for name, value in values.items():
        if value <= 0:
            raise ValueError(f"{name} = {value:g} is not allowed; allowed: a number > 0")
