"""A forecast from model directories: opens the drafter as the engine would, and plays recorded texts with it.

Knows model directories, and no task; the playing is in forecast.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, read_config
from engines.contract import NumberFormat
from engines.drafters.loading import Host, open_drafter
from engines.forecast import RecordedText, own_log_probs, play, refuse_unplayable
from engines.speculation import Speculation
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
