"""The verifier's laws of its own texts: for every token of a response the n most likely tokens with log-probabilities.

Knows a decoder and texts. Objectives that compare laws need them (divergences.py). They are computed once, by plain
forwards over the finished texts, and kept in `laws.jsonl` beside them, so that the verifier need not be in memory while
a drafter is trained. The law is the one that a text was drawn from, at temperature 0 that at temperature 1: the
one-hot of the greedy token would say no more than the token does.
"""

import base64
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engines.alignment.corpus import KEY, Text
from engines.alignment.divergences import TargetLaws, top_laws
from engines.alignment.examples import Example
from engines.checkpoints import load_decoder
from engines.decoder import Decoder, causal_mask
from engines.sampling import Sampling
from engines.speculative.distributions import log_law
from results.ledger import Ledger, read_rows

LAWS_FILE = "laws.jsonl"
LAW_KEY = (*KEY, "top_logs")


def open_scorer(folder: Path) -> Decoder:
    """The verifier in float32, for its laws."""
    return load_decoder(folder, torch.float32)


@torch.inference_mode()
def text_laws(verifier: Decoder, text: Text, count: int, top_p: float) -> TargetLaws:
    """The laws of a text's response: [R, n], n at most the vocabulary."""
    ids = torch.tensor([text.prompt_ids + text.response_ids[:-1]])
    rows = ids.shape[1]
    hidden = verifier(ids, torch.arange(rows), causal_mask(rows, verifier.embed.weight.dtype))
    scores = verifier.logits(hidden[0, len(text.prompt_ids) - 1 :]).float()
    law = log_law(scores, Sampling(temperature=text.temperature or 1.0, top_p=top_p))
    return top_laws(law, min(count, law.shape[-1]))


def unscored(folder: Path, texts: Sequence[Text], count: int) -> list[Text]:
    """Texts that have no laws of this n yet."""
    path = folder / LAWS_FILE
    rows = read_rows(path, LAW_KEY) if path.is_file() else ()
    have = {tuple(row[name] for name in LAW_KEY) for row in rows}
    return [text for text in texts if (*text.key, count) not in have]


def score_texts(
    folder: Path, texts: Iterable[Text], verifier: Decoder, *, count: int, top_p: float, listen: Callable[[], None]
) -> None:
    """Score texts with this n, one by one; what is scored stays where a later one fails."""
    with Ledger(folder / LAWS_FILE, key=LAW_KEY) as ledger:
        for text in texts:
            ledger.append(law_row(text, text_laws(verifier, text, count, top_p), count))
            listen()


def law_row(text: Text, laws: TargetLaws, count: int) -> dict[str, Any]:
    """A line of laws.jsonl: little-endian arrays [R, n] in base64, and the mean probability outside of the n."""
    left_over = (1 - laws.logs.exp().sum(dim=-1)).clamp(min=0).mean()
    return dict(zip(KEY, text.key, strict=True)) | {
        "top_logs": count,
        "kept": laws.tokens.shape[-1],
        "left_over": float(left_over),
        "tokens": packed(laws.tokens.numpy().astype("<i4")),
        "logs": packed(laws.logs.numpy().astype("<f4")),
    }


def packed(values: np.ndarray[Any, Any]) -> str:
    """An array as text."""
    return base64.b64encode(values.tobytes()).decode()


def read_laws(folder: Path, texts: Sequence[Text], count: int) -> tuple[list[Example], float]:
    """The texts as examples with their laws, and the mean probability that the laws leave out, over all tokens.

    Raises ValueError where a text is not scored, or its laws are damaged.
    """
    path = folder / LAWS_FILE
    rows = {
        tuple(row[name] for name in KEY): row
        for row in (read_rows(path, LAW_KEY) if path.is_file() else ())
        if row["top_logs"] == count
    }
    examples, left_over, tokens = [], 0.0, 0
    for text in texts:
        if text.key not in rows:
            raise ValueError(f"{path}: no laws with top_logs = {count} of prompt {text.key[0]}")
        laws = laws_of(rows[text.key], text, path)
        examples.append(Example(text.prompt_ids, text.response_ids, laws))
        left_over += left_over_of(rows[text.key], text, path) * len(text.response_ids)
        tokens += len(text.response_ids)
    return examples, left_over / max(1, tokens)


def left_over_of(row: Mapping[str, Any], text: Text, path: Path) -> float:
    """The mean probability that a line's laws leave out. Raises ValueError where it does not say."""
    value = row.get("left_over")
    if not isinstance(value, int | float):
        raise ValueError(f"{path}: the laws of prompt {text.key[0]} are damaged: left_over = {reprlib.repr(value)}")
    return float(value)


def laws_of(row: Mapping[str, Any], text: Text, path: Path) -> TargetLaws:
    """The laws in a line. Raises ValueError where there are none."""
    try:
        shape = (len(text.response_ids), int(row["kept"]))
        tokens, logs = (
            np.frombuffer(base64.b64decode(row[name]), dtype=kind)
            for name, kind in (("tokens", "<i4"), ("logs", "<f4"))
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: the laws of prompt {text.key[0]} are damaged: {error!r}") from None
    if tokens.size != shape[0] * shape[1] or logs.size != tokens.size:
        raise ValueError(f"{path}: the laws of prompt {text.key[0]} are not {shape[0]} x {shape[1]} numbers")
    return TargetLaws(
        tokens=torch.from_numpy(tokens.reshape(shape).copy()), logs=torch.from_numpy(logs.reshape(shape).copy())
    )
