"""Objectives that compare the drafter's whole laws with the target's, place by place: pure functions of tensors.

The target's law of a place is the one after prefix and x_<j, x the verifier's own tokens. It may be known for its n
most likely tokens alone (stored logits): what is left over on both sides is then compared as one token, which makes
each divergence a lower bound of the true one (data processing), and exact where n = V. Results are scalars to be
minimised, means over the places of `valid` [..., G].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engines.alignment.objectives import NEVER, streak_gains, streak_sum, window_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLaws:
    """The target's most likely tokens of every place and their log-probabilities: both [..., G, n]."""

    tokens: Tensor
    logs: Tensor

    def __post_init__(self) -> None:
        if self.tokens.shape != self.logs.shape:
            given = f"{tuple(self.tokens.shape)} and {tuple(self.logs.shape)}"
            raise ValueError(f"tokens and log-probabilities of the target's laws must have one shape, not {given}")

    def to(self, device: torch.device) -> "TargetLaws":
        """The same on a device."""
        return TargetLaws(tokens=self.tokens.to(device), logs=self.logs.to(device))


def top_laws(target_logs: Tensor, count: int) -> TargetLaws:
    """The `count` most likely tokens of full laws: [..., G, V] -> [..., G, count]."""
    best = target_logs.topk(count, dim=-1)
    return TargetLaws(tokens=best.indices, logs=best.values)


def on_common_tokens(draft_logs: Tensor, target: TargetLaws) -> tuple[Tensor, Tensor]:
    """Log-probabilities of both laws over the target's tokens and, where n < V, the rest as one more token.

    Shapes:
        draft_logs: [..., G, V]
        returns:    target's and drafter's, both [..., G, n + 1], or [..., G, n] where n = V
    """
    own = draft_logs.gather(-1, target.tokens)
    if target.tokens.shape[-1] == draft_logs.shape[-1]:
        return target.logs, own
    draft_rest = draft_logs.scatter(-1, target.tokens, NEVER).logsumexp(dim=-1, keepdim=True)
    target_rest = (1 - target.logs.exp().sum(dim=-1, keepdim=True)).clamp(min=0.0).log()
    return torch.cat((target.logs, target_rest), dim=-1), torch.cat((own, draft_rest), dim=-1)


def place_divergence(draft_logs: Tensor, target: TargetLaws) -> Tensor:
    """Kullback-Leibler divergence of each place's target law from the drafter's, in nats: [..., G]."""
    target_logs, own = on_common_tokens(draft_logs, target)
    # Where the target never goes, the drafter's own -inf must not make the product undefined.
    possible = target_logs > NEVER
    gaps = (target_logs - own).masked_fill(~possible, 0.0)
    return (target_logs.exp() * gaps).sum(dim=-1)


def place_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of values [..., G] over valid places [..., G]."""
    return values.masked_fill(~valid, 0.0).sum() / valid.sum()


def distillspec(draft_logs: Tensor, target: TargetLaws, valid: Tensor) -> Tensor:
    """Divergence KL(p || q) of every place, all places alike, however seldom a draft gets there.

    Source: DistillSpec (Zhou et al., 2024, arXiv 2310.08461), with forward KL on the target's own texts.
    """
    return place_mean(place_divergence(draft_logs, target), valid)


def ar_distillation(draft_logs: Tensor, target: TargetLaws, valid: Tensor) -> Tensor:
    """Divergence KL(p || q) of the first place of every window alone: distillation as for an autoregressive drafter."""
    first = TargetLaws(tokens=target.tokens[..., :1, :], logs=target.logs[..., :1, :])
    return place_mean(place_divergence(draft_logs[..., :1, :], first), valid[..., :1])


def streak_kl(
    draft_logs: Tensor, target: TargetLaws, valid: Tensor, log_q: Tensor, *, draft_temperature: float = 1.0
) -> Tensor:
    """Divergence KL(p || q) of every place, weighed by what the streak would gain there: a mean over windows.

    A text takes about one round per 1 + S tokens, S the expected streak, and the weights, frozen, are the derivatives
    of log(1 + S) with respect to q_j. Whole laws are compared, since the one token that was drawn is a noisy stand-in.

    Args:
        log_q: [..., G] the drafter's log-probabilities of the verifier's own tokens
        draft_temperature: of the drafts that the weights count, towards 0 those of the argmax chain; the laws that are
            compared stay as they are, so that no place is starved
    """
    served = (log_q / draft_temperature - (draft_logs / draft_temperature).logsumexp(dim=-1)).detach()
    places = place_divergence(draft_logs, target).masked_fill(~valid, 0.0)
    lengths = 1 + streak_sum(served, valid)
    return window_mean((streak_gains(served, valid) * places).sum(dim=-1) / lengths, valid)


def tv(draft_logs: Tensor, target: TargetLaws, valid: Tensor) -> Tensor:
    """Total variation 1/2 sum |p - q| of every place: one minus the chance that `leviathan` accepts its token.

    Source: Leviathan et al. (2023), corollary 3.6; SpecDiff-2, Theorem C.3.
    """
    target_logs, own = on_common_tokens(draft_logs, target)
    return place_mean((target_logs.exp() - own.exp()).abs().sum(dim=-1) / 2, valid)
