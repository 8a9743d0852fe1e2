"""Where a training begins and what it leaves: parents as decoders, checkpoints as whole model directories.

Knows model directories. A checkpoint is written beside its place and moved there when it is complete, so a directory
of that name is whole or not there.
"""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engines.alignment.drafting import drafter_from_verifier
from engines.cache import DecoderConfig
from engines.chat import TOKENIZER_FILE, TOKENIZER_SETTINGS, ChatTokenizer
from engines.checkpoints import (
    DrafterConfig,
    load_decoder,
    read_config,
    read_drafter_config,
    save_decoder,
    weight_files,
)
from engines.decoder import Decoder
from engines.drafters.loading import refuse_other_tokens
from results.alignment import RECORD_FILE, AlignmentRecord
from results.ledger import write_rows

TOKENIZER_FILES = (
    TOKENIZER_FILE,
    TOKENIZER_SETTINGS,
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a training begins with. The drafter reads its prefix causally from here on, whatever its parent did."""

    decoder: Decoder
    drafter: DrafterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A model by its configuration alone: its shape, and what makes it a drafter, None for a plain one."""

    shape: DecoderConfig
    drafter: DrafterConfig | None


def outline_of(folder: Path, verifier: Path) -> Outline:
    """The outline of a parent's directory.

    Raises:
        ValueError, OSError: no such model, no weights, or another vocabulary than the verifier's.
    """
    shape, raw = read_config(folder)
    refuse_other_tokens(folder, shape.vocab_size, verifier, read_config(verifier)[0].vocab_size)
    weight_files(folder)
    return Outline(shape=shape, drafter=read_drafter_config(folder) if raw.get("mask_token_id") is not None else None)


def child_of(
    parent: Outline,
    chat: ChatTokenizer,
    *,
    named: str,
    layers: tuple[int, ...] | None,
    mask_token_id: int | None,
    window: int,
) -> tuple[DecoderConfig, DrafterConfig]:
    """Shape and settings of a drafter that begins with a parent.

    Args:
        chat: the verifier's tokenizer
        named: the parent's name, for errors
        layers: those that are kept, by number from 0; None for all
        mask_token_id: for a parent that has none; None: as its config or the verifier's tokenizer says

    Raises:
        ValueError: layers or a mask token that cannot be.
    """
    shape, known = parent.shape, parent.drafter
    if layers is not None:
        if max(layers) >= shape.num_hidden_layers:
            allowed = f"numbers from 0 to {shape.num_hidden_layers - 1}, as {named} has"
            raise ValueError(f"layers = {list(layers)} is not allowed; allowed: {allowed}")
        shape = replace(shape, num_hidden_layers=len(layers))
    if known is not None:
        if mask_token_id not in (None, known.mask_token_id):
            allowed = f"{known.mask_token_id}, as {named} has, or no such key"
            raise ValueError(f"mask_token_id = {mask_token_id} is not allowed; allowed: {allowed}")
        mask, shift = known.mask_token_id, known.logits_shift
    else:
        found = mask_token_id if mask_token_id is not None else chat.tokenizer.mask_token_id
        if found is None or not 0 <= found < shape.vocab_size or found in chat.stop_ids:
            ends = ", ".join(map(str, sorted(chat.stop_ids)))
            raise ValueError(
                f"mask_token_id = {found} is not allowed; a drafter of {named} needs a token of 0 to "
                f"{shape.vocab_size - 1} that no text holds, and none that ends texts ({ends}): set mask_token_id"
            )
        # A causal model's row predicts the token after it, and so its drafter's first row may as well.
        mask, shift = int(found), 1
    return shape, DrafterConfig(mask_token_id=mask, logits_shift=shift, prefix="causal", window=window)


def open_parent(
    folder: Path, verifier: Path, *, layers: tuple[int, ...] | None, mask_token_id: int | None, window: int
) -> Start:
    """The parent as a decoder to train, in float32.

    Args:
        folder: a drafter's directory (also a stock one: Dream, DiffuCoder, DiffuLLaMA), or any model for `layers`
        verifier: whose tokens the drafter must have

    Raises:
        ValueError, OSError: as outline_of and child_of, and for weights that cannot be read.
    """
    parent, chat = outline_of(folder, verifier), ChatTokenizer(verifier)
    _, config = child_of(parent, chat, named=str(folder), layers=layers, mask_token_id=mask_token_id, window=window)
    decoder = load_decoder(folder, torch.float32)
    if layers is not None:
        decoder = drafter_from_verifier(decoder, layers)
    return Start(decoder=decoder.requires_grad_(True), drafter=config)


def publish(decoder: Decoder, drafter: DrafterConfig, verifier: Path, record: AlignmentRecord, folder: Path) -> None:
    """Write a checkpoint: weights in bfloat16, configuration, the verifier's tokenizer, and alignment.json.

    Raises OSError where the disk refuses it; what was in `folder` before is then still there.
    """
    scratch = scratch_of(folder)
    try:
        _, raw = read_config(verifier)
        special = {key: raw[key] for key in ("eos_token_id", "pad_token_id") if raw.get(key) is not None}
        keys = {
            "mask_token_id": drafter.mask_token_id,
            "logits_shift": drafter.logits_shift,
            "draft_prefix": drafter.prefix,
            "draft_window": drafter.window,
        }
        save_decoder(decoder, scratch, extra=special | keys)
        for name in TOKENIZER_FILES:
            if (verifier / name).is_file():
                shutil.copyfile(verifier / name, scratch / name)
        write_rows(scratch / RECORD_FILE, [record.to_json()])
        put_in_place(scratch, folder)
    except OSError as error:
        raise OSError(f"{folder}: the checkpoint could not be written: {error}") from error
    finally:
        remove(scratch)


def copy_checkpoint(checkpoint: Path, folder: Path) -> Path:
    """Copy a checkpoint into `folder`, in place of an older one of its name; its new place.

    Raises OSError where the disk refuses it, an older one is then still there; ValueError as refuse_taken.
    """
    place = folder / checkpoint.name
    refuse_taken(place)
    scratch = scratch_of(place)
    try:
        shutil.copytree(checkpoint, scratch)
        put_in_place(scratch, place)
    except OSError as error:
        # Of a whole directory there is one reason a file: the first says it.
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise OSError(f"{place}: the checkpoint could not be copied: {reason}") from error
    finally:
        remove(scratch)
    return place


def refuse_taken(place: Path) -> None:
    """Raise ValueError where the place of a copy holds anything but an older checkpoint: it would be lost."""
    if (place / RECORD_FILE).is_file() or not os.path.lexists(place):
        return
    if not place.is_dir() or any(place.iterdir()):
        raise ValueError(f"{place}: something else than a checkpoint with {RECORD_FILE} is there; it is not replaced")


def scratch_of(place: Path) -> Path:
    """Where a directory is made before it is moved to its place; what a killed command left there is gone."""
    scratch = place.with_name(f".{place.name}.partial")
    remove(scratch)
    return scratch


def put_in_place(scratch: Path, place: Path) -> None:
    """Move a complete directory to its place, where half of an older one is at no time; the older one goes last."""
    older = place.with_name(f".{place.name}.older")
    remove(older)
    if os.path.lexists(place):
        place.rename(older)
    try:
        scratch.rename(place)
    except OSError:
        if os.path.lexists(older):
            older.rename(place)
        raise
    remove(older)


def remove(path: Path) -> None:
    """Take away what is there, if anything; of a link the link alone."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
