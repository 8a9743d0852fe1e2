"""Training of drafters: packed windows equal the drafter in use, objectives equal their formulas, stages resume."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from engines.alignment.drafting import drafter_from_verifier
from engines.alignment.examples import Example
from engines.alignment.losses import Plan, WindowLoss, partly_shown, round_starts
from engines.alignment.mixed import Mixed
from engines.alignment.objectives import ce, log_streak, streak_sum
from engines.alignment.rollouts import sample_rollouts
from engines.alignment.schedule import Schedule
from engines.alignment.trainer import Progress, train
from engines.alignment.windows import Windows, pad_sequences, uniform_anchors, window_log_probs, window_targets
from engines.checkpoints import DrafterConfig
from engines.contract import Request
from engines.decoder import Decoder
from engines.drafters.diffusion import DiffusionDrafter
from engines.embedded.pretraining import IGNORED, next_token_targets
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from tiny_models import TINY, sharpened, write_model

PLAN = Plan(objective=Mixed(weights={"log_streak": 1.0}), window=4, anchors=6, seed=1, pad_id=0, on_policy=0.5)
DRAFTER = DrafterConfig(mask_token_id=4, logits_shift=1)


def some_examples(count: int, seed: int = 0) -> list[Example]:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(5, 500, (14 + 3 * i,), generator=generator).tolist() for i in range(count)]
    return [Example(row[:5], row[5:]) for row in rows]


def fresh_drafter() -> Decoder:
    return drafter_from_verifier(sharpened(TINY, 0), 1)


def test_a_drafter_has_the_layers_of_the_verifier_that_it_is_cut_from() -> None:
    verifier = sharpened(TINY, 0)
    theirs, ours = verifier.state_dict(), drafter_from_verifier(verifier, (1,)).state_dict()

    assert torch.equal(ours["layers.0.qkv.weight"], theirs["layers.1.qkv.weight"])
    assert torch.equal(ours["norm.weight"], theirs["norm.weight"])


@pytest.mark.parametrize("shift", [0, 1])
@torch.inference_mode()
def test_a_packed_window_equals_the_drafter_in_use(shift: int) -> None:
    examples, config = some_examples(3), DrafterConfig(mask_token_id=4, logits_shift=shift)
    decoder = fresh_drafter()
    ids, lengths = pad_sequences(examples, 0)
    windows = Windows(ids, lengths, uniform_anchors(examples, 5, torch.Generator().manual_seed(3)))

    packed = window_log_probs(decoder, config, windows, 4, torch.zeros(3, 5, 4, dtype=torch.bool))

    for row, anchors in enumerate(windows.anchors.tolist()):
        for column, anchor in enumerate(anchors):
            served = DiffusionDrafter(decoder, config, window=4, capacity=64).marginals(
                [ids[row, : anchor + 1].tolist()]
            )[0]
            trained = packed[row, column].index_fill(-1, torch.tensor(4), float("-inf"))  # in use, no mask is proposed
            assert torch.allclose(torch.softmax(served, -1), torch.softmax(trained, -1), atol=1e-5)


def test_targets_are_the_tokens_after_the_anchor_and_end_with_the_text() -> None:
    windows = Windows(torch.tensor([[10, 11, 12, 13, 14, 0]]), torch.tensor([5]), torch.tensor([[1, 3]]))

    targets, valid = window_targets(windows, 3)

    assert targets[valid].tolist() == [12, 13, 14, 14]
    assert valid.tolist() == [[[True, True, True], [True, False, False]]]


def test_anchors_stay_within_the_response_and_have_a_token_after_them() -> None:
    examples = some_examples(4)

    anchors = uniform_anchors(examples, 500, torch.Generator().manual_seed(0))

    for row, example in enumerate(examples):
        total = len(example.prompt_ids) + len(example.response_ids)
        assert sorted(set(anchors[row].tolist())) == list(range(len(example.prompt_ids), total - 1))


def test_rounds_start_behind_the_first_rejected_place() -> None:
    windows = Windows(torch.arange(10, 20)[None], torch.tensor([10]), torch.tensor([[0, 2, 7]]))
    log_probs = torch.zeros(1, 3, 4, 30)
    for column, proposed in enumerate(([11, 12, 9, 14], [9, 9, 9, 9], [18, 19, 9, 9])):
        log_probs[0, column, range(4), proposed] = 1.0

    assert round_starts(log_probs, windows, 4).tolist() == [[3, 3, 7]]


def test_every_second_window_is_masked_throughout_as_in_use() -> None:
    windows = Windows(torch.zeros(2, 9), torch.tensor([9, 9]), torch.zeros(2, 6, dtype=torch.long))

    shown, weights = partly_shown(windows, 4, torch.Generator().manual_seed(0))

    assert not shown[:, ::2].any()
    assert (weights[:, ::2] == 1).all()
    assert shown[:, 1::2].any()
    assert not shown.all(dim=-1).any()


def test_the_streak_sum_is_the_sum_of_products_and_stops_at_the_end_of_the_text() -> None:
    log_q = torch.tensor([0.5, 0.8, 0.9]).log()

    whole, cut = (streak_sum(log_q, torch.tensor(valid)) for valid in ([True] * 3, [True, True, False]))

    assert math.isclose(float(whole), 0.5 + 0.4 + 0.36, abs_tol=1e-6)
    assert math.isclose(float(cut), 0.5 + 0.4, abs_tol=1e-6)


def test_log_streak_is_minus_the_mean_log_of_the_expected_streaks() -> None:
    log_q = torch.tensor([[0.5, 0.8, 0.9], [0.9, 0.1, 0.1]]).log()

    loss = log_streak(log_q, torch.tensor([[True, True, True], [True, False, False]]))

    assert float(loss) == pytest.approx(-(math.log(0.5 + 0.4 + 0.36) + math.log(0.9)) / 2, abs=1e-5)


def test_log_streak_has_the_gradient_of_the_streak_over_the_streak() -> None:
    log_q = torch.tensor([[-2.0, -0.3, -1.0]], requires_grad=True)
    valid = torch.ones(1, 3, dtype=torch.bool)

    log_streak(log_q, valid).backward()

    products = log_q.detach()[0].cumsum(0).exp()
    weights = torch.stack([products[j:].sum() for j in range(3)]) / (products.sum() + 1e-6)
    assert log_q.grad is not None
    assert torch.allclose(log_q.grad[0], -weights, atol=1e-5)


def test_cross_entropy_counts_valid_places_only() -> None:
    log_q = torch.tensor([[-1.0, -3.0, -100.0]])

    assert float(ce(log_q, torch.tensor([[True, True, False]]))) == 2.0


def test_prompts_and_padding_carry_no_target() -> None:
    inputs = torch.tensor([[5, 6, 7, 8], [5, 9, 0, 0]])

    targets = next_token_targets(inputs, torch.tensor([4, 2]), torch.tensor([2, 1]))

    assert targets.tolist() == [[IGNORED, 7, 8, IGNORED], [9, IGNORED, IGNORED, IGNORED]]


def losses_of(folder: Path, *, stage_seconds: float = math.inf) -> tuple[bool, list[float], Decoder]:
    decoder, seen = fresh_drafter().train(), []

    def listen(progress: Progress) -> None:
        seen.append(progress.loss)

    loss_at = WindowLoss(decoder=decoder, drafter=DRAFTER, plan=PLAN, batch_at=lambda n: some_examples(2, n))
    done = train(
        decoder, loss_at, Schedule(steps=6, learning_rate=1e-2), folder, stage_seconds=stage_seconds, listen=listen
    )
    return done, seen, decoder


def test_training_in_stages_gives_the_loss_curve_of_training_at_once(tmp_path: Path) -> None:
    _, at_once, _ = losses_of(tmp_path / "once")

    staged: list[float] = []
    done = False
    while not done:
        done, seen, _ = losses_of(tmp_path / "staged", stage_seconds=0.0)
        staged += seen

    assert staged == pytest.approx(at_once, rel=1e-5)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    decoder = fresh_drafter().train()
    masked = dataclasses.replace(PLAN, objective=Mixed(weights={"ce": 1.0}), noise=True, on_policy=0.0)
    loss_at = WindowLoss(decoder=decoder, drafter=DRAFTER, plan=masked, batch_at=lambda _: some_examples(2))
    seen: list[float] = []

    train(decoder, loss_at, Schedule(steps=30, learning_rate=1e-2), tmp_path, listen=lambda p: seen.append(p.loss))

    assert sum(seen[-5:]) < 0.8 * sum(seen[:5])


def test_a_loss_that_is_not_finite_stops_with_the_step_and_keeps_the_last_state(tmp_path: Path) -> None:
    decoder = fresh_drafter().train()

    def loss_at(step: int) -> torch.Tensor:
        return decoder.embed.weight.sum() * (float("nan") if step == 3 else 1e-3)

    with pytest.raises(FloatingPointError, match="the loss of step 3 is nan"):
        train(decoder, loss_at, Schedule(steps=6, learning_rate=1e-3), tmp_path, save_every=1)

    assert torch.load(tmp_path / "state.pt", weights_only=True)["step"] == 3


def test_a_batch_of_rollouts_gives_each_prompt_what_it_gets_alone() -> None:
    decoder = sharpened(TINY, 0)
    prompts = [[7, 8, 9, 10, 11], [30, 31], [50, 60, 70]]

    def rollouts(batch: int) -> list[list[int]]:
        examples = sample_rollouts(
            decoder, prompts, temperature=0.0, max_tokens=12, batch=batch, seed=1, pad_id=0, end_id=1
        )
        return [example.response_ids for example in examples]

    assert rollouts(3) == rollouts(1)


def test_greedy_rollouts_are_the_texts_of_the_engine(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "verifier")
    engine = ReferenceEngine(str(folder))
    messages = [{"role": "user", "content": "Mia has 42 coins."}]
    request = Request(request_id="r", messages=messages, sampling=Sampling(max_tokens=20))

    (rollout,) = sample_rollouts(
        engine.decoding.target,
        [engine.chat.prompt_ids(messages)],
        temperature=0.0,
        max_tokens=20,
        batch=1,
        seed=0,
        pad_id=0,
        end_id=1,
    )

    assert tuple(rollout.response_ids) == engine.complete(request).token_ids
