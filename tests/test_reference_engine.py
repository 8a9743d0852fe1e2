"""The reference engine on tiny random models: lossless, exact in its caches, and clear about what it cannot do."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from engines.answer import Answer
from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, read_drafter_config
from engines.contract import Request, Rule, Sampling, Shape, Speculation
from engines.decoder import Decoder
from engines.drafter import DiffusionDrafter
from engines.reference import ReferenceEngine
from results.records import Completion
from tiny_models import TINY, write_decoder, write_drafter, write_model

QUESTIONS = ("Mia has 42 coins.", "First she finds 17.", "How many coins?", "Work step by step.")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "verifier")
    for shift in (0, 1):
        write_drafter(folder / f"drafter{shift}", logits_shift=shift)
    return folder


def request(question: str, *, temperature: float = 0.0, stop: Sequence[str] = (), tokens: int = 40) -> Request:
    sampling = Sampling(temperature=temperature, max_tokens=tokens, seed=11, stop=tuple(stop))
    return Request(request_id=question, messages=[{"role": "user", "content": question}], sampling=sampling)


def answers(models: Path, speculation: Speculation | None, temperature: float) -> list[Completion]:
    engine = ReferenceEngine(str(models / "verifier"), speculation=speculation)
    return list(engine.stream(request(question, temperature=temperature) for question in QUESTIONS))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize(("shape", "drafts", "rule"), [("chain", 1, "walk"), ("iid", 4, "walk"), ("iid", 4, "paper")])
def test_speculation_gives_the_tokens_of_plain_decoding(
    models: Path, shape: Shape, drafts: int, rule: Rule, shift: int, temperature: float
) -> None:
    speculation = Speculation(
        drafter=str(models / f"drafter{shift}"), window=5, shape=shape, num_drafts=drafts, rule=rule
    )

    plain, drafted = answers(models, None, temperature), answers(models, speculation, temperature)

    assert [a.token_ids for a in drafted] == [a.token_ids for a in plain]


def test_the_drafts_of_these_tests_are_accepted_now_and_then(models: Path) -> None:
    drafted = answers(models, Speculation(drafter=str(models / "drafter1"), window=5), 0.0)

    assert sum(r.accepted for a in drafted for r in a.rounds) > 5


def test_rounds_account_for_every_token_and_character(models: Path) -> None:
    for answer in answers(models, Speculation(drafter=str(models / "drafter1"), window=5), 0.0):
        assert sum(r.kept for r in answer.rounds) == len(answer.token_ids)
        assert answer.rounds[-1].chars == len(answer.text)


@pytest.mark.parametrize("shift", [0, 1])
@torch.inference_mode()
def test_cached_marginals_equal_those_of_a_drafter_that_starts_anew(models: Path, shift: int) -> None:
    folder = models / f"drafter{shift}"
    decoder, config = load_decoder(folder, torch.float32), read_drafter_config(folder)
    drafter = DiffusionDrafter(decoder, config, window=5, capacity=64)
    tokens = torch.randint(5, 500, (30,), generator=torch.Generator().manual_seed(2)).tolist()

    worst = 0.0
    for length in (9, 10, 14, 30):
        fresh = DiffusionDrafter(decoder, config, window=5, capacity=64).marginals(tokens[:length])
        cached = drafter.marginals(tokens[:length])
        worst = max(worst, float((cached - fresh)[:, 5:].abs().max()))

    assert worst < 1e-4


def test_the_mask_token_is_never_proposed(models: Path) -> None:
    folder = models / "drafter1"
    config = read_drafter_config(folder)
    drafter = DiffusionDrafter(load_decoder(folder, torch.float32), config, window=5, capacity=64)

    assert (drafter.marginals([7, 8, 9])[:, config.mask_token_id] == float("-inf")).all()


def test_tokens_after_the_end_token_of_an_accepted_run_are_not_kept(models: Path) -> None:
    chat = ChatTokenizer(models / "verifier")
    answer = Answer(chat, Sampling(), max_tokens=40)
    end = next(iter(chat.stop_ids))

    kept = answer.keep([65, 66, end, 67, 68])

    assert (kept, answer.tokens, answer.finish) == (3, [65, 66, end], "stop")


def test_a_stop_string_ends_the_answer_inside_an_accepted_run(models: Path) -> None:
    chat = ChatTokenizer(models / "verifier")
    run = chat.tokenizer.encode("Mia has 42 coins. First she", add_special_tokens=False)
    answer = Answer(chat, Sampling(stop=("coins",)), max_tokens=40)
    kept = answer.keep(run)
    answer.note(kept=kept, drafted=8, accepted=8, draft=0.0, verify=0.0, seconds=1.0)

    completion = answer.completion("r", 3)

    assert (completion.text, completion.finish_reason, completion.rounds[0].accepted < 8) == (
        "Mia has 42 ",
        "stop",
        True,
    )


def test_a_spent_budget_ends_the_answer_with_its_partial_text(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"))
    hurried = dataclasses.replace(request(QUESTIONS[0]), budget_seconds=1e-9)

    answer = engine.complete(hurried)

    assert (answer.finish_reason, len(answer.rounds)) == ("budget", 2)


def test_a_token_cap_ends_the_answer(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(models / "drafter1")))

    answer = engine.complete(request(QUESTIONS[0], tokens=7))

    assert (answer.finish_reason, len(answer.token_ids)) == ("length", 7)


def test_an_answer_may_fill_the_context_to_its_last_token(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(models / "drafter1")))

    answer = engine.complete(request(QUESTIONS[1], tokens=500))

    assert answer.prompt_tokens + len(answer.token_ids) == TINY.max_position_embeddings


def test_a_prompt_longer_than_the_context_is_an_error_of_its_own_request(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"))

    long, short = engine.stream([request("coins " * 200), request(QUESTIONS[0])])

    assert (long.finish_reason, short.finish_reason != "error") == ("error", True)
    assert long.error is not None
    assert "the context only 96" in long.error


def test_the_gap_of_two_tokens_is_that_of_their_logits(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"))
    first = engine.complete(request(QUESTIONS[0])).token_ids[0]

    assert engine.token_gap(request(QUESTIONS[0]), [], first, first) == 0.0
    assert engine.token_gap(request(QUESTIONS[0]), [], first, first + 1) > 0.0


def test_the_step_time_is_settled_or_said_not_to_be(models: Path) -> None:
    warm = ReferenceEngine(str(models / "verifier")).warm_up([request(question) for question in QUESTIONS])

    assert warm.rounds >= 40
    assert warm.settled or warm.rounds >= 200


def test_a_model_directory_without_tokenizer_is_named(tmp_path: Path) -> None:
    write_model(tmp_path / "bare", tokenizer=False)

    with pytest.raises(FileNotFoundError, match=r"bare: model directory without a tokenizer \(no tokenizer\.json\)"):
        ReferenceEngine(str(tmp_path / "bare"))


def test_a_drafter_without_mask_token_is_refused(models: Path) -> None:
    with pytest.raises(ValueError, match="no mask_token_id; a diffusion drafter needs one"):
        ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(models / "verifier")))


def test_a_drafter_of_another_vocabulary_is_refused(models: Path, tmp_path: Path) -> None:
    other = Decoder(dataclasses.replace(TINY, vocab_size=520))
    write_decoder(tmp_path / "other", other, mask_token_id=4, logits_shift=1)

    with pytest.raises(ValueError, match="the drafter's vocabulary has 520 entries"):
        ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(tmp_path / "other")))


def test_an_unknown_model_is_named_with_what_a_model_can_be() -> None:
    with pytest.raises(FileNotFoundError, match="model 'nowhere': no such directory; a model is embedded:NAME"):
        ReferenceEngine("nowhere")
