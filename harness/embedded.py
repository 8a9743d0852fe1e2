"""The recipe of the embedded models: joins the arithmetic task with the trainers, stage by stage, resumable.

Each stage leaves its result in the work folder and is skipped when that is there; a training stage that was ended
early goes on from its last checkpoint. Seeds are fixed.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from engines.alignment.trainer import Progress, Schedule, train
from engines.checkpoints import save_decoder
from engines.decoder import DecoderConfig
from engines.embedded.pretraining import Example, new_verifier, pretraining_loss
from engines.embedded.tokenizer import VOCAB_SIZE, build_tokenizer
from tasks.arithmetic import draw_side, training_stories, worked_solution

MAX_EVENTS = 9
TOKENIZER_STORIES = 3000
BATCH_TOKENS = 4096
VERIFIER = DecoderConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=64,
    max_position_embeddings=1024,
    attention_bias=True,
)
VERIFIER_SCHEDULE = Schedule(steps=2400, learning_rate=4e-3)


def events_at(share: float, rng: random.Random) -> int:
    """Curriculum: short problems first; later each length up to the longest is as likely."""
    ceiling = 3 if share < 0.1 else 6 if share < 0.2 else MAX_EVENTS
    return rng.randint(1, ceiling)


def encode_story(tokenizer: PreTrainedTokenizerFast, question: str, solution: str) -> Example:
    """Token ids of a problem as the chat template puts it, and of its solution with the end token."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    response = solution + str(tokenizer.eos_token)
    return Example(
        tokenizer.encode(str(prompt), add_special_tokens=False), tokenizer.encode(response, add_special_tokens=False)
    )


def story_batch(tokenizer: PreTrainedTokenizerFast, step: int, schedule: Schedule, seed: int) -> list[Example]:
    """The training batch of a step: problems of nearly equal length that fill BATCH_TOKENS padded tokens."""
    rng = random.Random(f"{seed}/{step}")
    longest = events_at(step / schedule.steps, rng)
    batch: list[Example] = []
    width = 0
    while True:
        story = draw_side(rng, rng.randint(max(1, longest - 1), longest), held_out=False)
        example = encode_story(tokenizer, story.question, worked_solution(story, rng))
        width = max(width, len(example.prompt_ids) + len(example.response_ids))
        if batch and width * (len(batch) + 1) > BATCH_TOKENS:
            return batch
        batch.append(example)


def make_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Train and save the tokenizer, or load it when it is there."""
    if not (folder / "tokenizer.json").exists():
        stories = training_stories(0, lambda rng: rng.randint(1, 10))
        texts = (text for _ in range(TOKENIZER_STORIES) for text in next(stories))
        build_tokenizer(texts).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def train_verifier(work: Path, stage_seconds: float, listen: Callable[[Progress], None]) -> bool:
    """Pretrain the verifier; True when it is complete and saved as a model directory."""
    folder = work / "verifier"
    tokenizer = make_tokenizer(work / "tokenizer")
    decoder = new_verifier(VERIFIER, seed=0)
    loss_at = pretraining_loss(
        decoder, lambda step: story_batch(tokenizer, step, VERIFIER_SCHEDULE, 1), int(tokenizer.pad_token_id)
    )
    done = train(
        decoder, loss_at, VERIFIER_SCHEDULE, work / "verifier-training", stage_seconds=stage_seconds, listen=listen
    )
    if done:
        save_decoder(
            decoder, folder, extra={"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        )
        tokenizer.save_pretrained(folder)
    return done
