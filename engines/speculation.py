"""How an arm drafts and verifies, and which rule is exact for which drafts. Plain values, no tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from engines.sampling import SMALLEST_TEMPERATURE, is_temperature, require

Drafting = Literal["diffusion", "autoregressive", "ngram"]
Shape = Literal["chain", "iid", "tree"]
Rule = Literal["walk", "paper", "leviathan", "block", "specinfer", "traversal"]
Auto = Literal["auto"]
DRAFTINGS: tuple[Drafting, ...] = get_args(Drafting)
SHAPES: tuple[Shape, ...] = get_args(Shape)
RULES: tuple[Rule, ...] = get_args(Rule)
AUTO: Auto = "auto"
# A rule that weighs the drafter's law keeps the target's only if every draft was drawn from that law.
RULES_WITH_DRAFT_LAW: tuple[Rule, ...] = ("leviathan", "block", "specinfer", "traversal")
EXACT_FOR: Mapping[Rule, tuple[Shape, ...]] = {
    "walk": SHAPES,
    "paper": SHAPES,
    "leviathan": ("chain",),
    "block": ("chain",),
    "specinfer": ("chain", "iid"),
    "traversal": ("chain", "iid"),
}
LARGEST_WINDOW = 256
LARGEST_BRANCHES = 64
LARGEST_NODES = 1024
"""Drafted nodes of a round, over all drafts."""
MOST_AUTO_NODES = 64
"""Nodes that `auto` verifies in a round, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How an arm drafts and verifies; an arm without it decodes token by token.

    drafter:            model name or directory, or several whose drafts compete in one verification; none for `ngram`
    drafting:           `diffusion` (the window in `steps` denoising forwards), `autoregressive` (a forward per token),
                        or `ngram` (what followed the last tokens where they stood before)
    window:             tokens drafted per round (gamma); `auto` verifies as much of the drafter's window as pays
    shape:              `chain` (one draft), `iid` (num_drafts drafts), `tree` (best-first, `nodes` nodes)
    nodes:              nodes of `tree`; `auto` chooses them every round by measured step times and acceptance
    branches:           nodes of `tree`, at most, whose path the drafter reads before it drafts anew what follows them,
                        all in one further forward; 0: all nodes come from the marginals of one window
    draft_temperature:  at which drafts are drawn, 0 being argmax. None: the request's temperature for a rule that
                        weighs the drafter's law; for the others 0 in `chain` and 1 in `iid`
    rule:               verification rule, one that is exact for the shape (EXACT_FOR)
    steps:              denoising forwards per window
    prefix_cache:       false: the drafter computes its whole prefix anew every round; to see what the cache is worth
    cross_tokenizer:    the drafter has its own tokenizer: the text of its draft is tokenized with the target's
    """

    drafter: str | tuple[str, ...] = ()
    drafting: Drafting = "diffusion"
    window: int | Auto = 16
    shape: Shape = "chain"
    num_drafts: int = 1
    nodes: int | Auto | None = None
    branches: int = 0
    draft_temperature: float | None = None
    rule: Rule = "walk"
    steps: int = 1
    prefix_cache: bool = True
    cross_tokenizer: bool = False

    def __post_init__(self) -> None:
        require(self.shape in SHAPES, "shape", self.shape, ", ".join(SHAPES))
        require(self.rule in RULES, "rule", self.rule, ", ".join(RULES))
        require(self.drafting in DRAFTINGS, "drafting", self.drafting, ", ".join(DRAFTINGS))
        self._check_drafters()
        self._check_sizes()
        if self.shape == "tree" or self.drafting == "ngram":
            # Both take the most likely tokens: a temperature would change the arm's identity and nothing else.
            allowed = f"none for shape {self.shape!r} and drafting {self.drafting!r}"
            require(self.draft_temperature is None, "draft_temperature", self.draft_temperature, allowed)
        if self.shape == "iid":
            allowed = "a number > 0 for shape 'iid', whose drafts would all be the same"
            require(self.draft_temperature != 0, "draft_temperature", self.draft_temperature, allowed)
        if self.draft_temperature is not None:
            allowed = f"0, or a finite number >= {SMALLEST_TEMPERATURE}"
            require(is_temperature(self.draft_temperature), "draft_temperature", self.draft_temperature, allowed)
        if self.is_auto:
            self._check_auto()
        require(
            self.shape in EXACT_FOR[self.rule], "rule", self.rule, f"for shape {self.shape!r}: {self._exact_rules()}"
        )
        if self.rule in RULES_WITH_DRAFT_LAW:
            self._check_draft_law()

    def _check_drafters(self) -> None:
        names = self.drafters
        if self.drafting == "ngram":
            require(not names, "drafter", self.drafter, "none for drafting 'ngram'")
            require(self.shape == "chain", "shape", self.shape, "'chain' for drafting 'ngram'")
            require(not self.cross_tokenizer, "cross_tokenizer", True, "false for drafting 'ngram'")
        else:
            require(bool(names) and all(names), "drafter", self.drafter, "a model name or directory, or a list of them")
            require(len(set(names)) == len(names), "drafter", self.drafter, "different models")
        if self.drafting == "autoregressive":
            require(self.shape == "chain", "shape", self.shape, "'chain' for drafting 'autoregressive'")
        require(self.steps >= 1, "steps", self.steps, "a whole number >= 1")
        diffusion = self.drafting == "diffusion"
        require(diffusion or self.steps == 1, "steps", self.steps, f"1 for drafting {self.drafting!r}")
        require(diffusion or self.prefix_cache, "prefix_cache", False, f"true for drafting {self.drafting!r}")

    def _check_sizes(self) -> None:
        fixed = isinstance(self.window, int)
        allowed = f"a whole number from 1 to {LARGEST_WINDOW}, or 'auto'"
        require(
            self.window == AUTO or (fixed and 1 <= int(self.window) <= LARGEST_WINDOW), "window", self.window, allowed
        )
        if self.shape == "iid":
            require(fixed, "window", self.window, "a whole number for shape 'iid'")
            require(self.num_drafts >= 2, "num_drafts", self.num_drafts, "a whole number >= 2 for shape 'iid'")
            count = int(self.window) * self.num_drafts
            require(count <= LARGEST_NODES, "num_drafts", self.num_drafts, f"window x num_drafts <= {LARGEST_NODES}")
        else:
            require(self.num_drafts == 1, "num_drafts", self.num_drafts, f"1 for shape {self.shape!r}")
        most = LARGEST_BRANCHES if self.shape == "tree" else 0
        allowed = f"a whole number from 0 to {most}" if most else "0, unless the shape is 'tree'"
        require(0 <= self.branches <= most, "branches", self.branches, allowed)
        if self.shape != "tree":
            require(self.nodes is None, "nodes", self.nodes, "nothing, unless the shape is 'tree'")
        elif self.nodes != AUTO:
            require(fixed, "window", self.window, "a whole number where nodes is one")
            sized = isinstance(self.nodes, int) and int(self.window) <= self.nodes <= LARGEST_NODES
            require(
                sized,
                "nodes",
                self.nodes,
                f"a whole number from the window, {self.window}, to {LARGEST_NODES}, or 'auto'",
            )

    def _check_draft_law(self) -> None:
        rule = f"for rule {self.rule!r}"
        require(len(self.drafters) == 1, "drafter", self.drafter, f"one model {rule}")
        require(not self.cross_tokenizer, "cross_tokenizer", True, f"false {rule}")
        require(self.steps == 1, "steps", self.steps, f"1 {rule}")
        require(self.window != AUTO, "window", self.window, f"a whole number {rule}")

    def _check_auto(self) -> None:
        ruled = f"{self.drafting} of {', '.join(self.drafters)}"
        plain = self.drafting == "diffusion" and len(self.drafters) == 1 and not self.cross_tokenizer
        require(plain, "drafter", ruled, "one diffusion drafter with the target's tokenizer for 'auto'")
        require(not self.draft_temperature, "draft_temperature", self.draft_temperature, "0 for 'auto'")

    def _exact_rules(self) -> str:
        return ", ".join(rule for rule in RULES if self.shape in EXACT_FOR[rule])

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafters' names, however many."""
        return (self.drafter,) if isinstance(self.drafter, str) else self.drafter

    @property
    def weighs_draft_law(self) -> bool:
        """Whether the rule needs the drafter's law beside its drafts."""
        return self.rule in RULES_WITH_DRAFT_LAW

    @property
    def is_auto(self) -> bool:
        """Whether every round chooses how much to verify."""
        return AUTO in (self.window, self.nodes)

    @property
    def most_nodes(self) -> int:
        """Drafted nodes that a round can come to, at most."""
        if self.is_auto:
            return MOST_AUTO_NODES
        each = self.nodes if isinstance(self.nodes, int) else int(self.window) * self.num_drafts
        return each * max(1, len(self.drafters))

    def drafting_temperature(self, temperature: float) -> float:
        """Temperature of the drafts of a request at `temperature`."""
        if self.draft_temperature is not None:
            return self.draft_temperature
        if self.weighs_draft_law:
            return temperature
        return 1.0 if self.shape == "iid" else 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """What differs from the defaults: the arm's identity, which a later setting does not change."""
        return {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
