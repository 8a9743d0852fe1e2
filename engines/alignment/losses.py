"""The loss of a training step under a plan: which windows are cut, what is shown of them, what they are compared with.

Knows a decoder, token ids and objectives; no task, file or clock. The batch and the random choices of index n are made
from the seed and n alone, so training can stop and go on anywhere. Windows lie behind their sequence in one packed
forward (windows.py). Compute is counted as it is spent: rows of forwards, padding included.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engines.alignment.examples import Example, at_places, padded_laws
from engines.alignment.mixed import Mixed, window_laws
from engines.alignment.objectives import streak_sum
from engines.alignment.windows import (
    Windows,
    pad_sequences,
    uniform_anchors,
    window_log_probs,
    window_places,
    window_targets,
)
from engines.checkpoints import DrafterConfig
from engines.decoder import Decoder
from engines.memory import refuse_too_large
from engines.speculation import LARGEST_WINDOW
from results.provenance import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one step trains: windows of `window` places at `anchors` places of every sequence of the batch.

    noise:      masked diffusion's: every second window shows some of its places (objective `ce` alone)
    on_policy:  share of the anchors that move to where the drafter's next round would start from them
    """

    objective: Mixed
    window: int
    anchors: int
    seed: int
    pad_id: int
    noise: bool = False
    on_policy: float = 0.0

    def __post_init__(self) -> None:
        if self.window < 1 or self.anchors < 1:
            raise ValueError(f"window and anchors must be at least 1, not {self.window} and {self.anchors}")
        if self.window > LARGEST_WINDOW:
            raise ValueError(
                f"window = {self.window} is not allowed; allowed: a whole number from 1 to {LARGEST_WINDOW}"
            )
        if not 0 <= self.on_policy <= 1:
            raise ValueError(f"on_policy = {self.on_policy} is not allowed; allowed: a share from 0 to 1")
        if self.noise and set(self.objective.weights) != {"ce"}:
            named = ", ".join(self.objective.weights)
            raise ValueError(f"noise is for objective 'ce' alone, not for {named}: others need windows as in use")


def refuse_large_batch(plan: Plan, batch_tokens: int, *, longest: int, vocab_size: int, device: str) -> None:
    """Raise ValueError for batches that can never fit into memory, of texts of at most `longest` tokens.

    Counted are the mask among the windows, and their scores and log-probabilities in float32: a training takes more.
    """
    texts, rows = max(1, batch_tokens // longest), plan.anchors * plan.window
    needed = 4 * texts * rows * (rows + 2 * vocab_size)
    asked = f"batches of batch_tokens = {batch_tokens} with anchors = {plan.anchors} and window = {plan.window}"
    refuse_too_large(needed, asked, "anchors or batch_tokens", device)


@dataclass(slots=True)
class Spent:
    """Compute so far: rows forward and backward, rows forward only, windows, and tokens of the texts."""

    trained_rows: int = 0
    probed_rows: int = 0
    windows: int = 0
    tokens: int = 0

    def state_dict(self) -> dict[str, int]:
        """To be kept beside the weights."""
        return {name: getattr(self, name) for name in self.__slots__}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on from what was kept."""
        for name in self.__slots__:
            setattr(self, name, int(state[name]))


@dataclass(slots=True, kw_only=True)
class WindowLoss:
    """Loss of batch `index`; a step of several batches (`accumulate`) shares the weights of its objectives."""

    decoder: Decoder
    drafter: DrafterConfig
    plan: Plan
    batch_at: Callable[[int], Sequence[Example]]
    accumulate: int = 1
    spent: Spent = field(default_factory=Spent)
    streak: float = 0.0
    """Mean expected streak of the last batch's windows; those that show some of their places left out."""

    def __call__(self, index: int) -> Tensor:
        """The mean loss of one batch's windows."""
        plan, generator = self.plan, torch.Generator().manual_seed(self.plan.seed * 1_000_003 + index)
        examples = self.batch_at(index)
        device = self.decoder.embed.weight.device
        ids, lengths = (each.to(device) for each in pad_sequences(examples, plan.pad_id))
        windows = Windows(ids, lengths, uniform_anchors(examples, plan.anchors, generator).to(device))
        shown = torch.zeros(*windows.anchors.shape, plan.window, dtype=torch.bool, device=device)
        weights = None
        if plan.noise:
            shown, weights = (each.to(device) for each in partly_shown(windows, plan.window, generator))
        moved = int(plan.anchors * plan.on_policy)
        if moved:
            windows = self.on_policy(windows, shown, moved)
        targets, valid = window_targets(windows, plan.window)
        target = None
        if plan.objective.needs_target:
            places = window_places(windows, plan.window)
            laws = padded_laws(examples)
            target = at_places(laws.to(device), places)
        log_probs = self.log_probs(windows, shown)
        self.spent.trained_rows += self.rows(windows)
        self.spent.windows += windows.anchors.numel()
        self.spent.tokens += int(lengths.sum())
        self.streak = self.mean_streak(log_probs, targets, valid, shown)
        found = window_laws(log_probs, targets, valid, target=target, noise_weights=weights)
        return plan.objective.loss(found, index // self.accumulate)

    def on_policy(self, windows: Windows, shown: Tensor, moved: int) -> Windows:
        """The first `moved` anchors of every sequence at the starts of the rounds that follow them."""
        probe = Windows(windows.ids, windows.lengths, windows.anchors[:, :moved])
        with torch.no_grad():
            starts = round_starts(self.log_probs(probe, shown[:, :moved]), probe, self.plan.window)
        self.spent.probed_rows += self.rows(probe)
        return Windows(windows.ids, windows.lengths, torch.cat((starts, windows.anchors[:, moved:]), dim=1))

    def log_probs(self, windows: Windows, shown: Tensor) -> Tensor:
        """The drafter's laws of all window places."""
        with torch.autocast(windows.ids.device.type, torch.bfloat16):
            return window_log_probs(self.decoder, self.drafter, windows, self.plan.window, shown)

    @staticmethod
    @torch.no_grad()
    def mean_streak(log_probs: Tensor, targets: Tensor, valid: Tensor, shown: Tensor) -> float:
        """Expected streak of a sampled draft, over the windows that are masked throughout."""
        streaks = streak_sum(log_probs.gather(-1, targets[..., None]).squeeze(-1), valid)
        return float(streaks[~shown.any(dim=-1)].mean())

    def rows(self, windows: Windows) -> int:
        """Rows of a packed forward."""
        width = 1 + self.plan.window - self.drafter.logits_shift
        return windows.ids.numel() + windows.anchors.numel() * width

    def batch_digest(self, index: int) -> str:
        """Names the texts of a batch."""
        return digest_of([[each.prompt_ids, each.response_ids] for each in self.batch_at(index)])


def partly_shown(windows: Windows, window: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Masked diffusion's noise: places whose token is shown, and the weights of the masked ones, both [B, A, G].

    Every second window is masked throughout, as in use; the others at a share drawn evenly from 1/G to 1.
    """
    shape = (*windows.anchors.shape, 1)
    share = torch.rand(shape, generator=generator).clamp(min=1 / window)
    share[:, ::2] = 1.0
    masked = torch.rand((*windows.anchors.shape, window), generator=generator) < share
    masked[..., 0] |= ~masked.any(dim=-1)
    return ~masked, masked / share


def round_starts(log_probs: Tensor, windows: Windows, window: int) -> Tensor:
    """Where the rounds after those at the anchors would start if the drafter served its argmax chain: [B, A].

    An anchor whose round would reach the end of its text stays where it is.
    """
    targets, valid = window_targets(windows, window)
    hits = (log_probs.argmax(dim=-1) == targets) & valid
    following = windows.anchors + hits.cumprod(dim=-1).sum(dim=-1) + 1
    return torch.where(following < windows.lengths[:, None] - 1, following, windows.anchors)
