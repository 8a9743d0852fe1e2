"""Requests that a server cannot answer exactly, refused as they come in, with the reason.

Loads neither torch nor SGLang. A refused request is an error of its own: others go on.
"""

from collections.abc import Mapping
from typing import Any

from engines.sglang_plugin.settings import NAME

NEUTRAL: Mapping[str, float] = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
}
"""Settings that depend on the tokens between the prompt and a drafted node, with the values that leave a law alone."""
SERVER_TEMPERATURE = 1.0
"""SGLang's own where a request names none."""


def refuse_inexact(manager: Any, request: Any, *_others: object) -> None:
    """Called with SGLang's tokenizer manager and every request, before it is taken.

    Raises:
        ValueError: the answer would not be the target's.
    """
    args, sampling = manager.server_args, request.sampling_params or {}
    if args.speculative_algorithm == NAME:
        reason = why_not_drafted(request, sampling, seeded=bool(args.enable_deterministic_inference))
    elif args.speculative_algorithm == "NGRAM" and args.device == "cpu":
        reason = why_not_ngram(sampling)
    else:
        reason = None
    if reason:
        raise ValueError(reason)


def why_not_drafted(request: Any, sampling: Mapping[str, Any], *, seeded: bool) -> str | None:
    """What SPECDIFF2 cannot do exactly of a request; None if it can."""
    for name, neutral in NEUTRAL.items():
        value = sampling.get(name)
        if value is not None and value != neutral:
            return f"{name} = {value!r} is not supported by {NAME}; allowed: {neutral}"
    if sampling.get("min_p") and seeded:
        return f"min_p = {sampling['min_p']!r} is not supported with deterministic inference; allowed: 0"
    if sampling.get("sampling_seed") is not None and not seeded:
        return f"sampling_seed = {sampling['sampling_seed']!r} needs a server with enable_deterministic_inference"
    for name in ("custom_logit_processor", "return_hidden_states"):
        if getattr(request, name, None):
            return f"{name} is not supported by {NAME}"
    return None


def why_not_ngram(sampling: Mapping[str, Any]) -> str | None:
    """SGLang's own drafts are verified greedily on a CPU, at any temperature."""
    temperature = sampling.get("temperature", SERVER_TEMPERATURE)
    return f"temperature = {temperature!r} is not supported by NGRAM on a CPU; allowed: 0" if temperature else None
