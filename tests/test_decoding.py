"""The decode loop on tiny random models: every arm, alone or side by side, writes what plain decoding writes."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.checkpoints import read_drafter_config
from engines.contract import Request
from engines.drafters.diffusion import DiffusionDrafting
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from engines.speculation import EXACT_FOR, RULES, RULES_WITH_DRAFT_LAW, Drafting, Speculation
from results.records import Completion
from tiny_models import TINY, write_drafter, write_model, write_other_tokens

QUESTIONS = ("Mia has 42 coins.", "First she finds 17.", "How many coins?", "Work step by step.", "Mia?")
LAW: dict[str, Any] = {"top_k": 40, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.2, "presence_penalty": 0.3}
LAW |= {"frequency_penalty": 0.1, "logit_bias": ((70, 2.0),)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "verifier")
    write_drafter(folder / "drafter")
    write_drafter(folder / "unshifted", logits_shift=0)
    write_drafter(folder / "stock", draft_prefix="full")
    write_model(folder / "small", layers=1)
    write_other_tokens(folder / "foreign")
    return folder


def requests(temperature: float = 0.0, tokens: int = 40, **law: Any) -> list[Request]:
    sampling = Sampling(temperature=temperature, max_tokens=tokens, seed=11, **law)
    return [
        Request(request_id=question, messages=[{"role": "user", "content": question}], sampling=sampling)
        for question in QUESTIONS
    ]


def answers(models: Path, arm: dict[str, Any] | None, asked: Sequence[Request], **engine: Any) -> list[Completion]:
    speculation = None
    if arm is not None:
        named = arm.get("drafter", "drafter") if arm.get("drafting") != "ngram" else ()
        names = [str(models / name) for name in ([named] if isinstance(named, str) else named)]
        drafter = names[0] if len(names) == 1 else tuple(names)
        speculation = Speculation(**{"window": 5, **arm, "drafter": drafter})
    opened = ReferenceEngine(str(models / "verifier"), speculation=speculation, **engine)
    found = {each.request_id: each for each in opened.stream(asked)}
    return [found[each.request_id] for each in asked]


def tokens(completions: Sequence[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


TWO = {"branches": 2}
ARMS: dict[str, dict[str, Any]] = {
    "chain": {},
    "chain, mask row predicts its own place": {"drafter": "unshifted"},
    "chain, full attention": {"drafter": "stock"},
    "chain, no prefix cache": {"prefix_cache": False},
    "chain, two denoising steps": {"steps": 2},
    "chain, five steps, full attention": {"drafter": "stock", "steps": 5},
    "sampled chain": {"draft_temperature": 1.5},
    "iid, walk": {"shape": "iid", "num_drafts": 4},
    "iid, paper": {"shape": "iid", "num_drafts": 4, "rule": "paper"},
    "tree, walk": {"shape": "tree", "nodes": 12},
    "tree, paper": {"shape": "tree", "nodes": 12, "rule": "paper"},
    "tree, branches drafted anew": {"shape": "tree", "nodes": 12, "branches": 3},
    "tree, branches, full attention": {"drafter": "stock", "shape": "tree", "nodes": 12, "branches": 3},
    "tree, branches, mask row predicts its own place": {"drafter": "unshifted", "shape": "tree", "nodes": 9} | TWO,
    "tree, branches, no prefix cache": {"shape": "tree", "nodes": 12, "branches": 3, "prefix_cache": False},
    "tree, as many nodes as pay": {"shape": "tree", "nodes": "auto"},
    "tree, as many nodes as pay, branches": {"shape": "tree", "nodes": "auto", "branches": 4},
    "chain, as long as pays": {"window": "auto"},
    "small causal drafter": {"drafting": "autoregressive", "drafter": "small"},
    "prompt lookup": {"drafting": "ngram"},
    "other tokens": {"drafter": "foreign", "cross_tokenizer": True},
    "other tokens, tree": {"drafter": "foreign", "cross_tokenizer": True, "shape": "tree", "nodes": 12},
    "two drafters": {"drafter": ("drafter", "unshifted")},
    "two drafters, paper": {"drafter": ("drafter", "unshifted"), "rule": "paper"},
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS.keys())
def test_speculation_writes_the_tokens_of_plain_decoding(models: Path, arm: dict[str, Any], temperature: float) -> None:
    asked = requests(temperature)

    drafted = answers(models, arm, asked)

    assert tokens(drafted) == tokens(answers(models, None, asked))


LAW_ARMS = [
    {"rule": rule, "shape": shape} | ({"num_drafts": 3} if shape == "iid" else {})
    for rule in RULES_WITH_DRAFT_LAW
    for shape in EXACT_FOR[rule]
] + [{"rule": rule, "drafting": "autoregressive", "drafter": "small"} for rule in RULES_WITH_DRAFT_LAW]


@pytest.mark.parametrize("law", [{}, LAW], ids=["plain", "cut and penalized"])
@pytest.mark.parametrize("arm", LAW_ARMS, ids=lambda arm: " ".join(map(str, arm.values())))
def test_rules_with_the_drafters_law_write_the_tokens_of_plain_decoding_at_temperature_0(
    models: Path, arm: dict[str, Any], law: dict[str, Any]
) -> None:
    asked = requests(**law)

    assert tokens(answers(models, arm, asked)) == tokens(answers(models, None, asked))


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS.keys())
def test_every_arm_can_fill_the_context_to_its_last_token(models: Path, arm: dict[str, Any], concurrency: int) -> None:
    asked = requests(tokens=500, logit_bias=((1, -1e6),))

    full = answers(models, arm, asked, concurrency=concurrency)

    assert {each.prompt_tokens + len(each.token_ids) for each in full} == {TINY.max_position_embeddings}
    assert tokens(full) == tokens(answers(models, None, asked))


def test_a_text_that_outgrows_a_drafter_with_other_tokens_goes_on_without_drafts(models: Path) -> None:
    speculation = Speculation(drafter=str(models / "foreign"), window=5, cross_tokenizer=True)
    engine = ReferenceEngine(str(models / "verifier"), speculation=speculation)
    drafter: Any = engine.decoding.drafter
    drafter.room = len(drafter.theirs.prompt_ids(requests()[0].messages)) + 12

    (answer,) = engine.stream(requests()[:1])

    drafted = [each.drafted > 0 for each in answer.rounds[1:]]
    assert tokens([answer]) == tokens(answers(models, None, requests()[:1]))
    assert (drafted[0], drafted[-1]) == (True, False)


@pytest.mark.parametrize("name", ["chain", "iid, paper", "tree, walk", "small causal drafter", "prompt lookup"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_cut_offs_bias_and_penalties_are_the_same_law_with_and_without_drafts(
    models: Path, name: str, temperature: float
) -> None:
    asked = requests(temperature, **LAW)

    assert tokens(answers(models, ARMS[name], asked)) == tokens(answers(models, None, asked))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "arm",
    [None, *(ARMS[name] for name in ("chain", "iid, paper", "tree, walk", "small causal drafter", "other tokens"))],
)
def test_requests_side_by_side_get_the_tokens_that_each_gets_alone(
    models: Path, arm: dict[str, Any] | None, temperature: float
) -> None:
    asked = [
        dataclasses.replace(r, sampling=dataclasses.replace(r.sampling, max_tokens=n))
        for r, n in zip(requests(temperature), (9, 40, 3, 25, 14), strict=True)
    ]

    assert tokens(answers(models, arm, asked, concurrency=3)) == tokens(answers(models, arm, asked))


@pytest.mark.parametrize("name", ["chain", "tree, walk", "two drafters", "small causal drafter", "other tokens"])
def test_drafts_are_accepted_now_and_then(models: Path, name: str) -> None:
    drafted = answers(models, ARMS[name], requests())

    assert sum(r.accepted for a in drafted for r in a.rounds) > 5


def test_a_looked_up_draft_is_what_followed_before(models: Path) -> None:
    biased = requests(logit_bias=((70, 60.0), (71, 59.0)), frequency_penalty=2.0)

    drafted = answers(models, ARMS["prompt lookup"], biased)

    assert sum(r.accepted for a in drafted for r in a.rounds) > 20


@pytest.mark.parametrize("rule", [rule for rule in RULES if "iid" in EXACT_FOR[rule]])
def test_the_same_seed_gives_the_same_tokens_again(models: Path, rule: str) -> None:
    arm, asked = {"shape": "iid", "num_drafts": 3, "rule": rule}, requests(1.0)

    assert tokens(answers(models, arm, asked)) == tokens(answers(models, arm, asked))


def test_without_seeds_answers_differ(models: Path) -> None:
    asked = [dataclasses.replace(r, sampling=dataclasses.replace(r.sampling, seed=None)) for r in requests(1.0)]

    assert tokens(answers(models, None, asked)) != tokens(answers(models, None, asked))


def test_a_failed_request_leaves_nothing_behind_for_the_next_in_its_lane(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speculation = Speculation(drafter=str(models / "drafter"), window=5)
    engine = ReferenceEngine(str(models / "verifier"), speculation=speculation, concurrency=2)
    first, second, third = requests()[:3]
    alone = {each.request_id: each.token_ids for each in engine.stream([second, third])}
    drafter: Any = engine.decoding.drafter
    verify = engine.decoding.verify

    def spoil_the_first_lane(*arguments: Any) -> list[torch.Tensor]:
        scores = verify(*arguments)
        monkeypatch.undo()
        engine.decoding.cache.store[:, :, 0] = float("nan")
        drafter.drafter.cache.store[:, :, 0] = float("nan")
        return [torch.full_like(scores[0], float("nan")), *scores[1:]]

    monkeypatch.setattr(engine.decoding, "verify", spoil_the_first_lane)
    answered = {each.request_id: each for each in engine.stream([first, second, third])}

    assert answered.pop(first.request_id).finish_reason == "error"
    assert {name: each.token_ids for name, each in answered.items()} == alone


def test_a_logit_bias_on_no_token_of_the_model_is_an_error_of_the_request(models: Path) -> None:
    (answer,) = answers(models, None, requests(logit_bias=((512, 1.0),))[:1])

    assert answer.error == "logit_bias names token 512, the model has tokens 0 to 511"


def test_scores_that_are_not_numbers_end_their_own_request(models: Path) -> None:
    engine = ReferenceEngine(str(models / "verifier"), concurrency=2)
    healthy, spoiled = requests()[:2]
    (before,) = engine.stream([healthy])
    fine = {*engine.chat.prompt_ids(healthy.messages), *before.token_ids}
    poison = next(token for token in engine.chat.prompt_ids(spoiled.messages) if token not in fine)
    target = engine.decoding.target
    with torch.no_grad():
        head = target.embed.weight.clone()
        target.embed.weight[poison] = float("nan")
        target.lm_head.weight = torch.nn.Parameter(head)

    answered = {each.request_id: each for each in engine.stream([healthy, spoiled])}

    assert answered[healthy.request_id].token_ids == before.token_ids
    failed = answered[spoiled.request_id]
    assert (failed.finish_reason, failed.error) == ("error", "the target's scores are not numbers")


@pytest.mark.parametrize("drafting", ["diffusion", "autoregressive"])
def test_a_drafter_whose_scores_are_not_numbers_is_an_error_of_the_request(models: Path, drafting: Drafting) -> None:
    name = "drafter" if drafting == "diffusion" else "small"
    speculation = Speculation(drafter=str(models / name), window=5, drafting=drafting)
    engine = ReferenceEngine(str(models / "verifier"), speculation=speculation)
    drafter: Any = engine.decoding.drafter
    model = drafter.drafter.decoder if isinstance(drafter, DiffusionDrafting) else drafter.decoder
    with torch.no_grad():
        model.norm.weight.fill_(float("nan"))

    (answer,) = engine.stream(requests()[:1])

    assert (answer.finish_reason, answer.error) == ("error", "the drafter's scores are not numbers")


def test_forwards_can_be_timed_apart(models: Path) -> None:
    speculation = Speculation(drafter=str(models / "drafter"), window=5)
    engine = ReferenceEngine(str(models / "verifier"), speculation=speculation)

    bare = engine.bare_forwards(40, 5)

    assert bare.draft_seconds > 0
    assert bare.verify_seconds > 0
    assert ReferenceEngine(str(models / "verifier")).bare_forwards(40, 0).draft_seconds == 0
    with pytest.raises(ValueError, match="context 97 with 5 nodes cannot be timed; allowed: 1 to 96 tokens"):
        engine.bare_forwards(97, 5)


@pytest.mark.parametrize(
    ("kind", "given", "shift", "prefix"),
    [
        ("Dream", {}, 1, "full"),
        ("llama", {}, 1, "full"),
        ("qwen2", {}, 0, "causal"),
        ("Dream", {"logits_shift": 0, "draft_prefix": "causal"}, 0, "causal"),
    ],
)
def test_stock_checkpoints_have_the_shift_and_prefix_of_their_kind(
    tmp_path: Path, kind: str, given: dict[str, Any], shift: int, prefix: str
) -> None:
    config = json.loads((write_model(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": kind, "mask_token_id": 4} | given))

    drafter = read_drafter_config(tmp_path)

    assert (drafter.logits_shift, drafter.prefix) == (shift, prefix)


def test_a_drafter_of_other_tokens_without_the_flag_is_refused(models: Path) -> None:
    with pytest.raises(ValueError, match="or the arm needs cross_tokenizer = true"):
        ReferenceEngine(str(models / "verifier"), speculation=Speculation(drafter=str(models / "foreign")))
