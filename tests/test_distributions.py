"""From scores to laws: each setting against its definition, and draws against the law."""

import pytest
import torch
from torch import Tensor

from engines.sampling import Sampling
from engines.speculative.distributions import PositionNoise, Seen, adjust, border_gap, log_law, perturbed

SCORES = torch.tensor([2.0, -1.0, 0.5, 3.0, 2.9])


def law(sampling: Sampling, scores: Tensor = SCORES) -> Tensor:
    return log_law(scores, sampling).exp()


def test_at_temperature_0_the_law_is_a_one_hot() -> None:
    assert law(Sampling()).tolist() == [0, 0, 0, 1, 0]


def test_a_temperature_divides_the_scores() -> None:
    assert torch.allclose(law(Sampling(temperature=0.5)), torch.softmax(SCORES / 0.5, -1))


def test_top_k_keeps_the_k_most_likely_tokens() -> None:
    kept = law(Sampling(temperature=1.0, top_k=2))

    assert torch.allclose(kept[[3, 4]], torch.softmax(SCORES[[3, 4]], -1))
    assert kept[[0, 1, 2]].sum() == 0


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.01, {3}), (0.4, {3}), (0.5, {3, 4}), (0.9, {0, 3, 4}), (1.0, {0, 1, 2, 3, 4})]
)
def test_top_p_keeps_the_fewest_tokens_that_hold_p(top_p: float, kept: set[int]) -> None:
    cut = law(Sampling(temperature=1.0, top_p=top_p))

    assert set(cut.nonzero().flatten().tolist()) == kept
    assert cut.sum() == pytest.approx(1.0)


def test_min_p_keeps_tokens_near_the_most_likely_one() -> None:
    cut = law(Sampling(temperature=1.0, min_p=0.5))

    assert set(cut.nonzero().flatten().tolist()) == {3, 4}


def test_cut_offs_follow_one_another() -> None:
    """Top-p works on what top-k has left: 3 and 4 share the law evenly enough for 0.5 to need one token only."""
    cut = law(Sampling(temperature=1.0, top_k=2, top_p=0.5))

    assert set(cut.nonzero().flatten().tolist()) == {3}


def test_a_logit_bias_is_added() -> None:
    assert adjust(SCORES, Sampling(logit_bias=((1, 7.0), (3, -1.0)))).tolist() == [
        2.0,
        6.0,
        0.5,
        2.0,
        pytest.approx(2.9),
    ]


def test_penalties_count_the_tokens_of_prompt_and_answer() -> None:
    sampling = Sampling(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    seen = Seen([1], 5)
    seen.add([3, 3])

    adjusted = adjust(SCORES, sampling, seen.prompt, seen.rows([[]])[0])

    assert adjusted.tolist() == pytest.approx([2.0, -2.0, 0.5, 3.0 / 2 - 0.25 - 1.0, 2.9])


def test_a_nodes_law_counts_its_ancestors() -> None:
    seen = Seen([0], 3)
    seen.add([2])

    assert seen.rows([[], [1], [1, 1]]).tolist() == [[0, 0, 1], [0, 1, 1], [0, 2, 1]]


def test_penalties_without_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="penalties need the counts"):
        adjust(SCORES, Sampling(presence_penalty=1.0))


def test_noise_of_a_position_depends_on_the_seed_and_the_position_alone() -> None:
    once, again = PositionNoise(7, 11), PositionNoise(7, 11)
    once.rows([0, 1])

    assert torch.equal(once.rows([130, 3]), again.rows([130, 3]))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0.7), Sampling(temperature=1.2, top_k=9, top_p=0.8, min_p=0.02)],
    ids=["plain", "cut"],
)
def test_draws_follow_the_law(sampling: Sampling) -> None:
    """Total variation over 20,000 positions at V = 20, seed 5; expected about 0.008, limit 0.02."""
    scores, noise = torch.randn(1, 20, generator=torch.Generator().manual_seed(0)), PositionNoise(5, 20)
    drawn = perturbed(scores.expand(20_000, 20), sampling, noise.rows(list(range(20_000)))).argmax(dim=-1)

    shares = torch.bincount(drawn, minlength=20) / 20_000

    assert 0.5 * (shares - law(sampling, scores[0])).abs().sum() < 0.02


CUT_OFFS = [{"top_k": 2}, {"top_p": 0.7}, {"min_p": 0.3}, {"top_k": 4, "top_p": 0.8}]


@pytest.mark.parametrize("cut_off", CUT_OFFS, ids=str)
def test_scores_that_move_by_less_than_half_the_border_gap_leave_a_token_on_its_side(
    cut_off: dict[str, float],
) -> None:
    """200 random laws (seed 0) at temperature 0.7, each moved at random within its gap."""
    sampling, generator = Sampling(temperature=0.7, **cut_off), torch.Generator().manual_seed(0)  # type: ignore[arg-type]
    for _ in range(200):
        scores = 2 * torch.randn(6, generator=generator, dtype=torch.float64)
        gap = border_gap(scores, sampling, 1)
        moved = scores + 0.49 * 0.7 * gap * (2 * torch.rand(6, generator=generator, dtype=torch.float64) - 1)

        assert (law(sampling, moved)[1] > 0) == (law(sampling, scores)[1] > 0)


def test_a_token_at_the_border_of_top_k_has_no_gap() -> None:
    assert border_gap(torch.tensor([1.0, 1.0, 0.0]), Sampling(temperature=1.0, top_k=1), 1) == 0


def test_a_token_whose_coming_hangs_on_the_mass_above_it_has_a_small_gap() -> None:
    """Half of the probability lies above the second token, and top-p asks for hardly more."""
    scores = torch.tensor([0.5, 0.3, 0.2]).log()

    assert border_gap(scores, Sampling(temperature=1.0, top_p=0.501), 1) < 0.01


def test_without_cut_offs_there_is_no_border() -> None:
    assert border_gap(SCORES, Sampling(temperature=1.0), 0) == float("inf")
