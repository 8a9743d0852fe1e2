"""What an arm asks of SPECDIFF2, read from SGLang's server arguments and one environment variable, and checked.

Loads neither torch nor SGLang. What the settings mean and allow is said by engines/speculation.py, as for every engine.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from engines.sampling import require
from engines.speculation import Rule, Shape, Speculation

NAME = "SPECDIFF2"
SETTINGS_VARIABLE = "STREAK_SPECDIFF2"
ATTENTION = "specdiff_torch"
RULES: tuple[Rule, ...] = ("walk", "paper")
TREE_BRANCHES = 2
"""speculative_eagle_topk of a tree once it is resolved: SGLang's attention takes 1 for a causal chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """What SGLang has no server argument for; None where a drafter's config.json says it."""

    shape: Shape = "chain"
    rule: Rule = "walk"
    nodes: int | None = None
    draft_temperature: float | None = None
    mask_token_id: int | None = None
    logits_shift: int | None = None

    def __post_init__(self) -> None:
        require(self.rule in RULES, "rule", self.rule, f"{', '.join(RULES)} on SGLang")
        for name in ("nodes", "mask_token_id", "logits_shift"):
            value = getattr(self, name)
            require(value is None or type(value) is int, name, value, "a whole number")
        number = self.draft_temperature
        require(number is None or type(number) in (int, float), "draft_temperature", number, "a number")
        require(self.mask_token_id is None or self.mask_token_id >= 0, "mask_token_id", self.mask_token_id, ">= 0")
        require(self.logits_shift in (None, 0, 1), "logits_shift", self.logits_shift, "0 or 1")

    @property
    def of_drafter(self) -> dict[str, int]:
        """Keys that take the place of those of the drafter's config.json."""
        named = {"mask_token_id": self.mask_token_id, "logits_shift": self.logits_shift}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """How SPECDIFF2 drafts and verifies: N drafted nodes a round, no more than `window` deep."""

    speculation: Speculation
    further: Further

    @property
    def window(self) -> int:
        """Tokens that a window has places for."""
        return int(self.speculation.window)

    @property
    def nodes(self) -> int:
        """Drafted nodes of every round."""
        return self.speculation.most_nodes


def read_further(environment: Mapping[str, str] = os.environ) -> Further:
    """The settings in the environment variable.

    Raises:
        ValueError: it is no JSON object, or has an unknown key or a value that is not allowed.
    """
    text = environment.get(SETTINGS_VARIABLE, "{}")
    known = [field.name for field in fields(Further)]
    try:
        raw: Any = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{SETTINGS_VARIABLE}: not JSON ({error}): {text!r}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{SETTINGS_VARIABLE}: a JSON object is needed, found {text!r}")
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ValueError(f"{SETTINGS_VARIABLE}: unknown key {unknown[0]!r}; known keys: {', '.join(known)}")
    try:
        return Further(**raw)
    except ValueError as error:
        raise ValueError(f"{SETTINGS_VARIABLE}: {error}") from error


def read_arm(drafter: str | None, window: int | None, num_drafts: int | None) -> Arm:
    """The arm of a server's arguments, with what the environment adds.

    Raises:
        ValueError: a setting is missing or not allowed.
    """
    if not drafter:
        raise ValueError(f"{NAME} needs speculative_draft_model_path, a masked-diffusion drafter's directory or name")
    if window is None:
        raise ValueError(f"{NAME} needs speculative_num_steps, the window")
    further = read_further()
    speculation = Speculation(
        drafter=drafter,
        window=window,
        shape=further.shape,
        rule=further.rule,
        num_drafts=1 if further.shape == "tree" and num_drafts == TREE_BRANCHES else num_drafts or 1,
        nodes=further.nodes,
        draft_temperature=further.draft_temperature,
    )
    return Arm(speculation=speculation, further=further)
