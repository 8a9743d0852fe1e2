"""How arms are started: server arguments, environment, what is refused; and how rounds are told apart."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from engines.sampling import Sampling
from engines.serving.arguments import GPU_ONLY, ServerArm, device_of, refusal_of
from engines.serving.memory import GIB, PUBLISHED, estimate, shape_of
from engines.serving.rounds import rounds_of
from engines.speculation import Speculation

CHAIN = Speculation(drafter="d", window=12)
IID = Speculation(drafter="d", window=6, shape="iid", num_drafts=4, rule="paper", draft_temperature=1.5)
TREE = Speculation(drafter="d", window=6, shape="tree", nodes=40)


def arm(**settings: Any) -> ServerArm:
    drafter = "d" if settings.get("speculation") and settings["speculation"].drafters else None
    return ServerArm(**{"model": "m", "context": 1000, "drafter": drafter, **settings})


def flag(server: ServerArm, name: str) -> str | None:
    """The value that follows a flag on the command line."""
    line = server.command_line
    return line[line.index(name) + 1] if name in line else None


def test_a_plain_arm_drafts_nothing() -> None:
    assert [each for each in arm().command_line if "speculative" in each] == []


def test_a_chain_is_specdiff2_with_one_draft() -> None:
    server = arm(speculation=CHAIN)

    assert flag(server, "--speculative-algorithm") == "SPECDIFF2"
    assert flag(server, "--speculative-num-steps") == "12"
    assert flag(server, "--speculative-eagle-topk") == "1"
    assert flag(server, "--speculative-draft-model-path") == "d"


def test_joint_drafts_are_told_by_the_number_of_branches() -> None:
    assert flag(arm(speculation=IID), "--speculative-eagle-topk") == "4"


@pytest.mark.parametrize(
    ("speculation", "settings"),
    [
        (CHAIN, {"shape": "chain", "rule": "walk"}),
        (IID, {"shape": "iid", "rule": "paper", "draft_temperature": 1.5}),
        (TREE, {"shape": "tree", "rule": "walk", "nodes": 40}),
    ],
)
def test_what_sglang_has_no_argument_for_goes_through_the_environment(
    speculation: Speculation, settings: dict[str, Any]
) -> None:
    assert json.loads(arm(speculation=speculation).environment["STREAK_SPECDIFF2"]) == settings


def test_the_plugin_reads_the_settings_that_the_engine_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    from engines.sglang_plugin.settings import read_arm

    server = arm(speculation=TREE)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)

    assert read_arm("d", 6, 1).speculation == TREE


def test_a_cpu_server_has_one_thread_and_room_for_all_requests() -> None:
    server = arm(speculation=CHAIN, concurrency=4)

    assert server.environment["OMP_NUM_THREADS"] == "1"
    assert int(flag(server, "--max-total-tokens") or 0) >= 4 * (1000 + 2 * 13)


def test_a_gpu_server_chooses_its_pool_and_its_attention_itself() -> None:
    server = arm(device="cuda")

    assert flag(server, "--max-total-tokens") is None
    assert flag(server, "--attention-backend") is None
    assert "OMP_NUM_THREADS" not in server.environment


def test_seeds_that_count_need_deterministic_inference() -> None:
    assert "--enable-deterministic-inference" in arm(seeds=True).command_line
    assert "--enable-deterministic-inference" not in arm().command_line


def test_arguments_of_a_study_win_and_are_passed_as_they_are() -> None:
    more = {"attention_backend": "fa3", "tp_size": 2, "disable_radix_cache": True, "sleep_on_idle": False}
    server = arm(more=more)

    assert flag(server, "--attention-backend") == "fa3"
    assert flag(server, "--tp-size") == "2"
    assert "--disable-radix-cache" in server.command_line
    assert "--sleep-on-idle" not in server.command_line


@pytest.mark.parametrize("algorithm", GPU_ONLY)
def test_a_way_to_draft_that_needs_a_gpu_is_refused_on_a_cpu(algorithm: str) -> None:
    more = {"speculative_algorithm": algorithm}

    assert arm(device="cuda", more=more).algorithm == algorithm
    with pytest.raises(ValueError, match=f"algorithm = '{algorithm}' is not allowed"):
        arm(more=more)


@pytest.mark.parametrize(
    ("speculation", "complaint"),
    [
        (Speculation(drafter="d", window="auto"), "window or nodes = 'auto'"),
        (Speculation(drafter="d", rule="leviathan"), "rule = 'leviathan' is not allowed; allowed: walk, paper"),
        (Speculation(drafter="d", steps=2), "steps = 2"),
        (Speculation(drafter="d", prefix_cache=False), "prefix_cache = False"),
        (Speculation(drafter=("d", "e")), "drafter = ('d', 'e')"),
        (Speculation(drafter="d", cross_tokenizer=True), "cross_tokenizer = True"),
        (Speculation(drafter="d", drafting="autoregressive"), "drafting = 'autoregressive'"),
    ],
)
def test_what_only_the_reference_engine_can_do_is_refused(speculation: Speculation, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        arm(speculation=speculation)


@pytest.mark.parametrize("name", ["host", "port", "model_path", "incremental_streaming_output"])
def test_what_the_engine_sets_a_study_cannot(name: str) -> None:
    with pytest.raises(ValueError, match=f"server argument '{name}'"):
        arm(more={name: "x"})


@pytest.mark.parametrize("name", ["model-path", "", "TP_size", "host ", "tp_size=2"])
def test_an_argument_by_another_name_than_sglangs_own_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"server argument = {name!r} is not allowed; allowed: SGLang's names"):
        arm(more={name: "x"})


@pytest.mark.parametrize(
    "name", ["speculative_num_steps", "speculative_draft_model_path", "speculative_eagle_topk", "speculative_algorithm"]
)
def test_what_an_arms_own_keys_say_its_server_arguments_cannot(name: str) -> None:
    arm(more={name: "SPECDIFF2"})
    with pytest.raises(ValueError, match=f"server argument '{name}' = 3 is not allowed; allowed: nothing: the arm's"):
        arm(speculation=CHAIN, more={name: 3})


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="server argument 'device' = 'tpu' is not allowed; allowed: cpu, cuda"):
        device_of({"device": "tpu"})


def test_prompt_lookup_on_a_cpu_is_refused_above_temperature_0() -> None:
    server = arm(speculation=Speculation(drafting="ngram"))

    assert refusal_of(server, Sampling()) is None
    assert "NGRAM is greedy on a CPU" in str(refusal_of(server, Sampling(temperature=1.0)))


def test_seeded_draws_with_min_p_are_refused() -> None:
    sampling = Sampling(temperature=1.0, min_p=0.1, seed=1)

    assert refusal_of(arm(), sampling) is None
    assert "min_p = 0.1" in str(refusal_of(arm(seeds=True), sampling))


def test_penalties_beside_drafts_are_refused() -> None:
    sampling = Sampling(presence_penalty=0.5)

    assert refusal_of(arm(), sampling) is None
    assert "presence_penalty = 0.5" in str(refusal_of(arm(speculation=CHAIN), sampling))


def test_without_speculation_a_round_is_a_token() -> None:
    assert rounds_of([1, 3], None) == [[1], [1, 1, 1]]


def test_chunks_that_are_one_round_each_stay_as_they_are() -> None:
    assert rounds_of([2, 1, 4], [1, 1, 0, 1]) == [[2], [1], [4]]


@pytest.mark.parametrize(
    ("chunks", "histogram"),
    [([5, 1], [1, 1, 1]), ([2, 6, 3], [1, 2, 2]), ([9], [0, 3, 1]), ([4, 4, 4], [4, 0, 0, 2]), ([30], [30])],
)
def test_rounds_of_merged_chunks_are_those_that_were_counted(chunks: list[int], histogram: list[int]) -> None:
    found = rounds_of(chunks, histogram)

    assert [sum(parts) for parts in found] == chunks
    assert sum(map(len, found)) == sum(histogram)


def test_rounds_of_two_merged_chunks_are_found_exactly() -> None:
    found = rounds_of([4, 6, 7], [1, 1, 1, 0, 1, 1])

    assert Counter(size for parts in found for size in parts) == {1: 1, 2: 1, 3: 1, 5: 1, 6: 1}


def test_a_last_round_that_was_cut_counts_as_it_was_accepted() -> None:
    assert rounds_of([2, 1], [0, 1, 0, 1]) == [[2], [4]]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", 72.7),
        ("Qwen/Qwen2.5-14B-Instruct", 14.77),
        ("apple/DiffuCoder-7B-Instruct", 7.62),
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.494),
        ("meta-llama/Llama-2-70b-chat-hf", 68.98),
        ("meta-llama/Llama-2-13b-chat-hf", 13.02),
        ("diffusionfamily/diffullama", 6.74),
    ],
)
def test_published_shapes_have_the_published_number_of_weights(name: str, billions: float) -> None:
    assert PUBLISHED[name].parameters / 1e9 == pytest.approx(billions, rel=0.003)


def test_keys_and_values_of_a_token_of_the_7b_drafter_take_57_kb() -> None:
    assert PUBLISHED["apple/DiffuCoder-7B-Instruct"].token_bytes(2) == 57344


def test_a_bundled_models_memory_follows_from_its_files() -> None:
    shape = shape_of("embedded:verifier")
    found = estimate({"embedded:verifier": "bfloat16"}, tokens=1000)

    assert shape is not None
    assert found.weights == 2 * shape.parameters
    assert found.cache == 1000 * 2 * 8 * 4 * 64 * 2


def test_a_model_of_unknown_shape_is_named_and_not_guessed() -> None:
    found = estimate({"nobody/nothing-1B": "bfloat16"}, tokens=GIB)

    assert (found.weights, found.cache) == (0, 0)
    assert "nobody/nothing-1B" in found.text()
