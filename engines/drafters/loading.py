"""Opens the drafter that an arm asks for, and says what does not fit.

Knows model directories and every kind of drafter; nothing of decoding.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from engines.chat import TOKENIZER_FILE, ChatTokenizer
from engines.checkpoints import load_decoder, read_config, read_drafter_config
from engines.drafters.autoregressive import AutoregressiveDrafting
from engines.drafters.contract import Drafter
from engines.drafters.diffusion import DiffusionDrafter, DiffusionDrafting
from engines.drafters.mixture import Mixture
from engines.drafters.ngram import NgramDrafting
from engines.drafters.translated import TranslatedDrafting
from engines.json_object import read_json
from engines.models import resolve_model
from engines.speculation import Speculation
from results.alignment import read_alignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The engine that a drafter is for: the target's directory and tokenizer, its vocabulary, context and lanes."""

    folder: Path
    chat: ChatTokenizer
    vocab_size: int
    context: int
    lanes: int
    dtype: torch.dtype


def open_drafter(speculation: Speculation, host: Host) -> Drafter:
    """The arm's drafter, or the mixture of its drafters.

    Raises:
        ValueError, OSError: a drafter is missing, is none, or does not fit the target.
    """
    if speculation.drafting == "ngram":
        return NgramDrafting(int(speculation.window), host.lanes)
    drafters = [open_one(resolve_model(name), speculation, host) for name in speculation.drafters]
    return drafters[0] if len(drafters) == 1 else Mixture(tuple(drafters))


def open_one(folder: Path, speculation: Speculation, host: Host) -> Drafter:
    """One model as a drafter."""
    shape, _ = read_config(folder)
    if not speculation.cross_tokenizer:
        refuse_other_tokens(folder, shape.vocab_size, host.folder, host.vocab_size)
    refuse_other_template(folder, host.chat, host.folder)
    if shape.max_position_embeddings < host.context:
        raise ValueError(
            f"{folder}: the drafter's context of {shape.max_position_embeddings} tokens is shorter than the "
            f"target's {host.context}; set max_context in [engine] to the smaller one"
        )
    drafter: AutoregressiveDrafting | DiffusionDrafting
    # A text has other lengths in other tokens; twice the room is plenty, and the model's own context its limit.
    room = min(2 * host.context, shape.max_position_embeddings) if speculation.cross_tokenizer else host.context
    if speculation.drafting == "autoregressive":
        decoder, window = load_decoder(folder, host.dtype), int(speculation.window)
        drafter = AutoregressiveDrafting(decoder, speculation, window, room, host.lanes)
    else:
        config = read_drafter_config(folder)
        window = speculation.window if isinstance(speculation.window, int) else config.window
        decoder = load_decoder(folder, host.dtype)
        model = DiffusionDrafter(
            decoder,
            config,
            window,
            room,
            host.lanes,
            branches=speculation.branches,
            prefix_cache=speculation.prefix_cache,
        )
        drafter = DiffusionDrafting(model, speculation)
    if not speculation.cross_tokenizer:
        return drafter
    return TranslatedDrafting(
        drafter, ChatTokenizer(folder), host.chat, window=window, nodes=speculation.most_nodes, room=room
    )


def refuse_other_tokens(
    folder: Path,
    vocab_size: int,
    target: Path,
    target_size: int,
    remedy: str = "they must be the same, or the arm needs cross_tokenizer = true",
) -> None:
    """Raise ValueError where the drafter's tokens are not the target's; special ones may differ."""
    if vocab_size != target_size:
        raise ValueError(
            f"{folder}: the drafter's vocabulary has {vocab_size} entries, that of the target {target} has "
            f"{target_size}; {remedy}"
        )
    if (folder / TOKENIZER_FILE).is_file() and words(folder) != words(target):
        raise ValueError(f"{folder}: the drafter's tokens are not those of the target {target}; {remedy}")


def refuse_other_template(folder: Path, chat: ChatTokenizer, target: Path) -> None:
    """Raise ValueError where the drafter was aligned under another chat template or thinking flag than is served."""
    record = read_alignment(folder)
    if record is None:
        return
    aligned, served = (record.chat_template, record.thinking), (chat.template_digest, chat.thinking)
    if aligned != served:
        raise ValueError(
            f"{folder}: the drafter was aligned under chat template {aligned[0]} with thinking = {aligned[1]}, the "
            f"target {target} is served under {served[0]} with thinking = {served[1]}; they must be the same"
        )


def words(folder: Path) -> object:
    """What the tokenizer of a model directory calls its tokens."""
    model = read_json(folder / TOKENIZER_FILE).get("model")
    return model.get("vocab") if isinstance(model, dict) else None
