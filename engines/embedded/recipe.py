"""The training side of the embedded models: shapes, schedules and seeds, and one function per stage.

Knows token ids and folders; harness/embedded.py brings the texts of the small world. Every stage is resumable: its
state lies in the work folder, and the result is a model directory beside it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from engines.alignment.drafting import drafter_from_verifier
from engines.alignment.examples import Example
from engines.alignment.losses import Plan, WindowLoss
from engines.alignment.mixed import Mixed
from engines.alignment.rollouts import sample_rollouts
from engines.alignment.schedule import Schedule
from engines.alignment.trainer import Progress, train
from engines.cache import DecoderConfig
from engines.chat import ChatTokenizer
from engines.checkpoints import DrafterConfig, load_decoder, save_decoder
from engines.decoder import Decoder
from engines.embedded.pretraining import new_verifier, pretraining_loss
from engines.embedded.tokenizer import VOCAB_SIZE, build_tokenizer

Batches: TypeAlias = Callable[[int], Sequence[Example]]
Objective = Literal["masked_diffusion", "log_streak"]

VERIFIER = DecoderConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=64,
    # The texts it learns from have some 600 tokens; that much room is for measurements of long contexts.
    max_position_embeddings=4096,
    attention_bias=True,
)
VERIFIER_SCHEDULE = Schedule(steps=4800, learning_rate=4e-3)
# More steps on long problems: without them 24 of 30 problems of six events were right (docs/LOG.md).
LONG_SCHEDULE = Schedule(steps=1500, learning_rate=3e-3, decay_from=0.3)
# Cut from the verifier: with the fourth layer behind the first, a drafter learns faster than with the second.
DRAFTER_LAYERS = (0, 3)
DRAFTER_WINDOW = 16
DRAFTER_ANCHORS = 24
UNALIGNED_SCHEDULE = Schedule(steps=1500, learning_rate=3e-3, weight_decay=0.0, adamw_ratio=0.5)
ALIGNED_SCHEDULE = Schedule(steps=2200, learning_rate=2e-3, weight_decay=0.0, adamw_ratio=0.5, decay_from=0.3)
CAUSAL_SCHEDULE = Schedule(steps=1000, learning_rate=3e-3, weight_decay=0.0, adamw_ratio=0.5)
ROLLOUT_TOKENS = 420
ROLLOUT_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where a stage works, for how long, with how many threads, and who listens."""

    work: Path
    threads: int
    seconds: float = math.inf
    listen: Callable[[Progress], None] = lambda progress: None


def make_tokenizer(work: Path, texts: Iterator[str]) -> ChatTokenizer:
    """Train the tokenizer on sample texts and save it, or load it when it is there."""
    folder = work / "tokenizer"
    if not (folder / "tokenizer.json").exists():
        build_tokenizer(texts).save_pretrained(folder)
    return ChatTokenizer(folder)


def save_with_tokenizer(chat: ChatTokenizer, decoder: Decoder, folder: Path, **extra: int) -> None:
    """A complete model directory: weights, configuration and tokenizer."""
    special = {"eos_token_id": chat.tokenizer.eos_token_id, "pad_token_id": chat.tokenizer.pad_token_id}
    chat.tokenizer.save_pretrained(folder)
    save_decoder(decoder, folder, extra={**special, **extra})


def pretrain_verifier(stage: Stage, chat: ChatTokenizer, batch_at: Batches) -> bool:
    """Train the verifier on worked solutions; True when it is complete and saved as work/verifier."""
    torch.set_num_threads(stage.threads)
    decoder = new_verifier(VERIFIER, seed=0)
    step = 0
    for folder, schedule in {"verifier-training": VERIFIER_SCHEDULE, "verifier-long": LONG_SCHEDULE}.items():
        loss_at = pretraining_loss(decoder, partial(batch_from, batch_at, step), chat.tokenizer.pad_token_id)
        state = stage.work / folder
        if not train(decoder, loss_at, schedule, state, stage_seconds=stage.seconds, listen=stage.listen):
            return False
        step += schedule.steps
    save_with_tokenizer(chat, decoder, stage.work / "verifier")
    return True


def batch_from(batch_at: Batches, first: int, step: int) -> Sequence[Example]:
    """The batch of a step counted from `first`."""
    return batch_at(first + step)


def verifier_rollouts(
    stage: Stage, chat: ChatTokenizer, prompts: Sequence[list[int]], *, temperature: float, seed: int
) -> Iterator[Example]:
    """The finished verifier's own solutions of the prompts, in order."""
    torch.set_num_threads(stage.threads)
    return sample_rollouts(
        load_decoder(stage.work / "verifier", torch.bfloat16),
        prompts,
        temperature=temperature,
        max_tokens=ROLLOUT_TOKENS,
        batch=ROLLOUT_BATCH,
        seed=seed,
        pad_id=chat.tokenizer.pad_token_id,
        end_id=chat.tokenizer.eos_token_id,
    )


def cut_from(folder: Path) -> Decoder:
    """A drafter to train: two layers of the verifier in `folder`."""
    return drafter_from_verifier(load_decoder(folder, torch.float32), DRAFTER_LAYERS).requires_grad_(True)


def train_causal_drafter(stage: Stage, chat: ChatTokenizer, batch_at: Batches) -> bool:
    """Train the small autoregressive drafter on next tokens; True when it is saved as work/causal."""
    torch.set_num_threads(stage.threads)
    decoder = cut_from(stage.work / "verifier")
    loss_at = pretraining_loss(decoder, batch_at, chat.tokenizer.pad_token_id)
    folder = stage.work / "causal-training"
    done = train(decoder, loss_at, CAUSAL_SCHEDULE, folder, stage_seconds=stage.seconds, listen=stage.listen)
    if done:
        save_with_tokenizer(chat, decoder, stage.work / "causal")
    return done


def train_drafter(
    stage: Stage,
    chat: ChatTokenizer,
    batch_at: Batches,
    *,
    name: str,
    parent: str,
    objective: Objective,
    schedule: Schedule,
    seed: int,
) -> bool:
    """Train drafter `name` from `parent` (layers of the verifier, or a drafter); True when it is saved.

    `masked_diffusion` trains uniform anchors. `log_streak` trains half uniform anchors and half the starts of rounds
    that follow them under the drafter as it is: rounds start behind a rejection, so at hard places.
    """
    torch.set_num_threads(stage.threads)
    folder = stage.work / parent
    decoder = cut_from(folder) if parent == "verifier" else load_decoder(folder, torch.float32).requires_grad_(True)
    drafter = DrafterConfig(mask_token_id=chat.tokenizer.mask_token_id, logits_shift=1)
    noise = objective == "masked_diffusion"
    plan = Plan(
        objective=Mixed(weights={"ce" if noise else objective: 1.0}),
        window=DRAFTER_WINDOW,
        anchors=DRAFTER_ANCHORS,
        seed=seed,
        pad_id=chat.tokenizer.pad_token_id,
        noise=noise,
        on_policy=0.0 if noise else 0.5,
    )
    loss_at = WindowLoss(decoder=decoder, drafter=drafter, plan=plan, batch_at=batch_at)
    folder = stage.work / f"{name}-training"
    done = train(decoder, loss_at, schedule, folder, stage_seconds=stage.seconds, listen=stage.listen)
    if done:
        save_with_tokenizer(
            chat,
            decoder,
            stage.work / name,
            mask_token_id=drafter.mask_token_id,
            logits_shift=drafter.logits_shift,
            draft_window=DRAFTER_WINDOW,
        )
    return done
