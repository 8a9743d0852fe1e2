"""A forecast from model directories: opens the drafter as the engine would, and plays recorded texts with it.

Knows model directories, and no task; the playing is in forecast.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, read_config, read_drafter_config
from engines.compute import network_of
from engines.contract import NumberFormat
from engines.drafters.loading import Host, open_drafter
from engines.forecast import RecordedText, own_log_probs, play, refuse_unplayable
from engines.models import resolve_model
from engines.speculation import Speculation
from results.costs import round_flops
from results.records import Round

DTYPES: dict[NumberFormat, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def forecast_rounds(
    verifier: Path,
    chat: ChatTokenizer,
    speculation: Speculation,
    texts: Sequence[RecordedText],
    *,
    number_format: NumberFormat,
) -> list[tuple[Round, ...]]:
    """The rounds that an arm would make on texts that the verifier wrote; the first of each is its prefill.

    Raises ValueError or OSError for an arm that cannot be forecast, or a drafter that does not fit the verifier.
    """
    refuse_unplayable(speculation)
    shape, _ = read_config(verifier)
    host = Host(
        folder=verifier,
        chat=chat,
        vocab_size=shape.vocab_size,
        context=max(len(text.prompt_ids) + len(text.response_ids) for text in texts),
        lanes=1,
        dtype=DTYPES[number_format],
    )
    drafter = open_drafter(speculation, host)
    if speculation.rule == "leviathan":
        target = load_decoder(verifier, torch.float32)
        texts = [replace(text, log_p=own_log_probs(target, text)) for text in texts]
    return play(drafter, speculation, texts, shape.vocab_size)


def flops_ratio(verifier: Path, speculation: Speculation, rounds: Sequence[Sequence[Round]], *, context: int) -> float:
    """FLOPs of a kept token over those of a plainly decoded one, the prompts left out.

    Args:
        speculation: with one diffusion drafter
        rounds: of each text, the first one being its prefill
        context: mean number of tokens before a round
    """
    (name,) = speculation.drafters
    folder, whole = resolve_model(name), [each for own in rounds for each in own[1:]]
    target, drafter = (network_of(read_config(each)[0]) for each in (verifier, folder))
    config, kept = read_drafter_config(folder), sum(each.kept for each in whole)
    window = 1 + int(speculation.window) - config.logits_shift
    cached = speculation.prefix_cache and config.prefix == "causal"
    read = kept if cached else len(whole) * speculation.steps * context
    spent = round_flops(
        target,
        len(whole) + sum(each.drafted for each in whole),
        drafter,
        read + len(whole) * speculation.steps * window,
        context=context,
    )
    return spent / (kept * round_flops(target, 1, context=context))
