"""What an arm asks of SPECDIFF2, and which requests it refuses: without SGLang."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from engines.sglang_plugin.requests import refuse_inexact
from engines.sglang_plugin.settings import SETTINGS_VARIABLE, Further, read_arm, read_further


def in_environment(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    monkeypatch.setenv(SETTINGS_VARIABLE, json.dumps(settings))


def test_without_settings_an_arm_is_a_chain_that_is_walked() -> None:
    assert read_further({}) == Further(shape="chain", rule="walk")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "a JSON object is needed"),
        ('{"shap": "tree"}', "unknown key 'shap'; known keys: shape, rule, nodes"),
        ('{"rule": "block"}', "rule = 'block' is not allowed; allowed: walk, paper on SGLang"),
        ('{"nodes": "24"}', "nodes = '24' is not allowed; allowed: a whole number"),
        ('{"nodes": true}', "nodes = True is not allowed"),
        ('{"draft_temperature": "hot"}', "draft_temperature = 'hot' is not allowed"),
        ('{"mask_token_id": -1}', "mask_token_id = -1 is not allowed"),
        ('{"logits_shift": 2}', "logits_shift = 2 is not allowed; allowed: 0 or 1"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="STREAK_SPECDIFF2") as raised:
        read_further({SETTINGS_VARIABLE: text})

    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "settings", "complaint"),
    [
        ((None, 8, 1), {}, "needs speculative_draft_model_path"),
        (("d", None, 1), {}, "needs speculative_num_steps"),
        (("d", 300, 1), {}, "window = 300 is not allowed"),
        (("d", 8, 4), {}, "num_drafts = 4 is not allowed; allowed: 1 for shape 'chain'"),
        (("d", 8, 1), {"shape": "iid"}, "num_drafts = 1 is not allowed"),
        (("d", 8, 1), {"shape": "tree"}, "nodes is missing"),
        (("d", 8, 1), {"shape": "tree", "nodes": 4}, "nodes = 4 is not allowed"),
        (("d", 8, 1), {"shape": "tree", "nodes": 2000}, "nodes = 2000 is not allowed"),
        (("d", 8, 3), {"shape": "tree", "nodes": 20}, "num_drafts = 3 is not allowed"),
        (("d", 8, 1), {"nodes": 20}, "nodes = 20 is not allowed"),
        (("d", 8, 4), {"shape": "iid", "draft_temperature": 0}, "draft_temperature = 0 is not allowed"),
    ],
)
def test_a_wrong_arm_is_refused(
    arguments: tuple[Any, ...], settings: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_environment(monkeypatch, **settings)

    with pytest.raises(ValueError, match=re.escape(complaint)):
        read_arm(*arguments)


@pytest.mark.parametrize(
    ("drafts", "settings", "nodes"),
    [
        (1, {}, 8),
        (None, {}, 8),
        (4, {"shape": "iid", "rule": "paper"}, 32),
        (1, {"shape": "tree", "nodes": 20}, 20),
        (2, {"shape": "tree", "nodes": 20}, 20),
    ],
)
def test_a_round_verifies_as_many_nodes_as_its_shape_has(
    drafts: int | None, settings: dict[str, Any], nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_environment(monkeypatch, **settings)

    assert read_arm("d", 8, drafts).nodes == nodes


def manager(algorithm: str | None, *, device: str = "cpu", seeded: bool = False) -> Any:
    args = SimpleNamespace(speculative_algorithm=algorithm, device=device, enable_deterministic_inference=seeded)
    return SimpleNamespace(server_args=args)


def asked(sampling: dict[str, Any] | None, **others: Any) -> Any:
    return SimpleNamespace(sampling_params=sampling, **others)


@pytest.mark.parametrize(
    ("sampling", "seeded"),
    [
        ({"frequency_penalty": 0.1}, False),
        ({"presence_penalty": -0.1}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"min_new_tokens": 1}, False),
        ({"min_p": 0.1}, True),
        ({"sampling_seed": 1}, False),
    ],
)
def test_what_cannot_be_exact_is_refused(sampling: dict[str, Any], seeded: bool) -> None:
    name = next(iter(sampling))

    with pytest.raises(ValueError, match=f"^{name} = "):
        refuse_inexact(manager("SPECDIFF2", seeded=seeded), asked(sampling))


@pytest.mark.parametrize("name", ["custom_logit_processor", "return_hidden_states"])
def test_what_the_verification_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        refuse_inexact(manager("SPECDIFF2"), asked({}, **{name: "something"}))


@pytest.mark.parametrize(
    "sampling", [None, {"temperature": 1.0, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.0}]
)
def test_other_requests_go_through(sampling: dict[str, Any] | None) -> None:
    refuse_inexact(manager("SPECDIFF2"), asked(sampling))


@pytest.mark.parametrize("sampling", [{"temperature": 0.5}, {}])
def test_n_gram_drafts_on_a_cpu_are_refused_above_temperature_0(sampling: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="NGRAM on a CPU; allowed: 0"):
        refuse_inexact(manager("NGRAM"), asked(sampling))


@pytest.mark.parametrize(
    ("algorithm", "device", "sampling"),
    [("NGRAM", "cpu", {"temperature": 0}), ("NGRAM", "cuda", {}), (None, "cpu", {"frequency_penalty": 1.0})],
)
def test_other_servers_answer_as_they_do_without_the_plugin(
    algorithm: str | None, device: str, sampling: dict[str, Any]
) -> None:
    refuse_inexact(manager(algorithm, device=device), asked(sampling))
