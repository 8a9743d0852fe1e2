"""The frozen verifier's own continuations of prompts, sampled in batches with transformers.

Knows a model directory and prompts as token ids. Batches hold prompts of any lengths (padded on the left).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from engines.alignment.examples import Example


@torch.inference_mode()
def sample_rollouts(
    folder: Path,
    prompts: Sequence[list[int]],
    *,
    temperature: float,
    max_tokens: int,
    batch: int,
    seed: int,
    pad_id: int,
    end_id: int,
) -> Iterator[Example]:
    """One continuation per prompt, in order; temperature 0 is greedy. The end token is kept where there is one."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for start in range(0, len(prompts), batch):
        chunk = prompts[start : start + batch]
        longest = max(len(prompt) for prompt in chunk)
        ids = torch.tensor([[pad_id] * (longest - len(prompt)) + prompt for prompt in chunk])
        torch.manual_seed(seed + start)
        sampled = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        output = model.generate(
            input_ids=ids,
            attention_mask=(ids != pad_id).long(),
            max_new_tokens=max_tokens,
            pad_token_id=pad_id,
            eos_token_id=end_id,
            **(sampled if temperature else {"do_sample": False}),
        )
        for prompt, row in zip(chunk, output[:, longest:].tolist(), strict=True):
            stop = row.index(end_id) + 1 if end_id in row else len(row)
            yield Example(prompt, row[:stop])
