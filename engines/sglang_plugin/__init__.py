"""SPECDIFF2 inside SGLang: drafts of a masked-diffusion model, verified losslessly, as a plugin of an unpatched SGLang.

SGLang finds `register` through the entry point group `sglang.srt.plugins` and calls it in each of its processes. This
file loads neither torch nor SGLang. How an arm's settings reach the algorithm:

    server argument                       arm
    speculative_algorithm                 "SPECDIFF2"
    speculative_draft_model_path          drafter: a model directory, or a hub's name
    speculative_num_steps                 window: tokens drafted per round
    speculative_eagle_topk                num_drafts for shape `iid`; 1 for `chain` and `tree`

and, as a JSON object in the environment variable STREAK_SPECDIFF2, what SGLang has no argument for:

    shape                `chain` (default), `iid` or `tree`
    rule                 `walk` (default) or `paper`
    nodes                drafted nodes of a `tree`; nothing for the other shapes
    draft_temperature    as in engines/speculation.py; nothing for a `tree`
    mask_token_id, logits_shift    of a drafter whose config.json does not say them

All of it is read and checked once, when SGLang resolves its server arguments; speculative_num_draft_tokens follows
from it. No CUDA graphs are captured: disable_cuda_graph=True everywhere. On a CPU the server further needs
device="cpu", attention_backend="specdiff_torch", sampling_backend="pytorch", and the environment that
`cpu_environment()` of engines/sglang_plugin/cpu.py returns, set before SGLang is imported. Request seeds need
enable_deterministic_inference=True; SGLang ignores them without it.
"""


def register() -> None:
    """What SGLang calls in each of its processes, before it resolves its server arguments."""
    from engines.sglang_plugin.registration import register_algorithm

    register_algorithm()
