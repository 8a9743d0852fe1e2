"""The reference engine on tiny random models: lossless, exact in its caches, and clear about what it cannot do."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.answer import Answer
from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, read_drafter_config
from engines.contract import Request
from engines.decoder import Decoder
from engines.drafters.diffusion import DiffusionDrafter
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.speculation import Rule, Shape, Speculation
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
        fresh = DiffusionDrafter(decoder, config, window=5, capacity=64).marginals([tokens[:length]])
        cached = drafter.marginals([tokens[:length]])
        worst = max(worst, float((cached - fresh)[..., 5:].abs().max()))

    assert worst < 1e-4


@pytest.mark.parametrize("prefix", ["causal", "full"])
@pytest.mark.parametrize("shift", [0, 1])
def test_marginals_behind_a_path_are_those_of_a_text_that_holds_it(tmp_path: Path, shift: int, prefix: str) -> None:
    folder = write_drafter(tmp_path, logits_shift=shift, draft_prefix=prefix)
    decoder, config = load_decoder(folder, torch.float32), read_drafter_config(folder)
    text, paths = list(range(20, 43)), [(7,), (9, 8), (9, 11, 12)]
    drafter = DiffusionDrafter(decoder, config, window=5, capacity=64, branches=3)

    before = drafter.marginals([text])
    found = drafter.marginals_below(0, text, paths)

    for path in paths:
        alone = DiffusionDrafter(decoder, config, window=5 - len(path), capacity=64)
        assert torch.allclose(found[path], alone.marginals([[*text, *path]])[0], atol=1e-4)
    assert torch.allclose(drafter.marginals([text]), before, atol=1e-4)


def test_the_mask_token_is_never_proposed(models: Path) -> None:
    folder = models / "drafter1"
    config = read_drafter_config(folder)
    drafter = DiffusionDrafter(load_decoder(folder, torch.float32), config, window=5, capacity=64)

    assert (drafter.marginals([[7, 8, 9]])[..., config.mask_token_id] == float("-inf")).all()


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

    assert (answer.finish_reason, len(answer.rounds)) == ("budget", 1)


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


def test_messages_that_the_chat_template_refuses_are_an_error_of_their_own_request(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    template = (
        "{% if messages|length > 1 %}{{ raise_exception('one message only') }}{% endif %}{{ messages[0].content }}"
    )
    (folder / "chat_template.jinja").write_text(template)
    two = dataclasses.replace(
        request("How many?"), messages=[*request("Mia?").messages, *request("How many?").messages]
    )

    refused, answered = ReferenceEngine(str(folder)).stream([two, request(QUESTIONS[0])])

    assert (refused.finish_reason, answered.finish_reason != "error") == ("error", True)
    assert refused.error == "the chat template refuses the messages: one message only"


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
    write_decoder(tmp_path / "other", other, extra={"mask_token_id": 4, "logits_shift": 1})

    with pytest.raises(ValueError, match="the drafter's vocabulary has 520 entries"):
        ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(tmp_path / "other")))


def test_an_unknown_model_is_named_with_what_a_model_can_be() -> None:
    with pytest.raises(FileNotFoundError, match="model 'nowhere': no such directory; a model is embedded:NAME"):
        ReferenceEngine("nowhere")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_act", "gelu", "hidden_act 'gelu' is not supported; supported: silu"),
        ("use_sliding_window", True, "use_sliding_window True is not supported"),
        ("num_hidden_layers", 1, r"weight 'model\.layers\.1\.\S+' has no place in the model"),
        ("hidden_size", "32", "hidden_size = '32' is not allowed; it must be a whole number from 1 to"),
        ("intermediate_size", 40, r"weight 'layers\.0\.gate_up\.weight' has the shape \(96, 32\)"),
        ("vocab_size", 600, r"weight 'embed\.weight' has the shape \(512, 32\), config.json asks for \(600, 32\)"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path: Path, key: str, value: object, message: str) -> None:
    change_config(write_model(tmp_path), key, value)

    with pytest.raises(ValueError, match=message):
        ReferenceEngine(str(tmp_path))


@pytest.mark.parametrize("mask", [-1, 512, "4", 4.5])
def test_a_mask_token_outside_the_vocabulary_is_refused(models: Path, tmp_path: Path, mask: object) -> None:
    change_config(write_drafter(tmp_path), "mask_token_id", mask)

    with pytest.raises(ValueError, match=r"mask_token_id .* is not allowed; allowed: a whole number from 0 to 511"):
        ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(tmp_path)))


def test_a_drafter_of_a_shorter_context_is_refused(models: Path, tmp_path: Path) -> None:
    change_config(write_drafter(tmp_path), "max_position_embeddings", 64)

    with pytest.raises(ValueError, match="the drafter's context of 64 tokens is shorter than the target's 96"):
        ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(tmp_path)))


def test_a_cut_off_weights_file_is_named(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])

    with pytest.raises(ValueError, match=r"model\.safetensors: not a whole safetensors file"):
        ReferenceEngine(str(tmp_path))


def test_a_chat_template_that_cannot_be_rendered_is_named(tmp_path: Path) -> None:
    (write_model(tmp_path) / "chat_template.jinja").write_text("{% for %}")

    with pytest.raises(ValueError, match="the chat template cannot be rendered"):
        ReferenceEngine(str(tmp_path))


def test_anything_that_could_change_an_answer_changes_the_digest_of_a_model(tmp_path: Path) -> None:
    before = ReferenceEngine(str(write_model(tmp_path))).describe()["model_digest"]
    change_config(tmp_path, "rope_theta", 500.0)

    assert ReferenceEngine(str(tmp_path)).describe()["model_digest"] != before


def test_a_model_in_several_weight_files_is_the_same_model(models: Path, tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    weights = load_file(folder / "model.safetensors")
    halves = {"one.safetensors": sorted(weights)[::2], "two.safetensors": sorted(weights)[1::2]}
    for name, keys in halves.items():
        save_file({key: weights[key] for key in keys}, folder / name)
    index = {"weight_map": {key: name for name, keys in halves.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()

    sharded, whole = (ReferenceEngine(str(path)) for path in (folder, models / "verifier"))

    assert sharded.describe()["model_digest"] != whole.describe()["model_digest"]
    assert sharded.complete(request(QUESTIONS[0])).token_ids == whole.complete(request(QUESTIONS[0])).token_ids


def test_a_warm_up_passes_over_requests_without_rounds(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"))

    assert engine.warm_up([request("coins " * 200), request(QUESTIONS[0])]).rounds >= 40
    assert engine.warm_up([request(QUESTIONS[0], tokens=1)]).rounds == 0


def change_config(folder: Path, key: str, value: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


@pytest.mark.parametrize("text", ["{}", "not json", "[1]"])
def test_a_tokenizer_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (write_model(tmp_path) / "tokenizer.json").write_text(text)

    with pytest.raises(ValueError, match=r"tokenizer\.json: "):
        ReferenceEngine(str(tmp_path))
