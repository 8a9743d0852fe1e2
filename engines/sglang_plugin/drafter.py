"""The diffusion drafter on SGLang's own model runner: one forward a round, with an exact prefix cache.

The drafter's keys and values stand in a pool of its own under the slot numbers of the target's, so that hits in the
radix cache, chunked prefill, retraction and eviction need no bookkeeping. A round's forward has for each request

    the tokens that the round has just kept, causal: their keys and values are what the cache keeps,
    then the window: the new bonus token and the masks, which see the prefix, these tokens and each other,
    then rows that pad the request to a fixed width and see themselves alone.

No row of the first kind sees a mask, so the cache never depends on a window. The window's own keys are taken from the
forward and thrown away: they are written to SGLang's dummy slot. This is the drafter of engines/drafters/diffusion.py
(`causal`) for many requests at once; a stock checkpoint that was trained to see its whole text at once is run the same
way, which costs acceptance and changes no text.
"""

from typing import Any

import torch
from sglang.srt.configs.draft_parallel import DraftParallelSpec, DraftTPExecution
from sglang.srt.layers.moe.utils import draft_model_build_scope
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_device
from sglang.srt.speculative.base_spec_worker import EagleDraftWorkerBase
from sglang.srt.speculative.draft_parallel import resolve_draft_parallel_layout
from sglang.srt.speculative.spec_utils import draft_pp_context, draft_tp_context
from torch import Tensor

from engines.sglang_plugin.arguments import configuration, read_drafter
from engines.sglang_plugin.drafter_shapes import propose, window_sees
from engines.sglang_plugin.settings import Arm
from engines.sglang_plugin.state import forward_input
from engines.sglang_plugin.tree import full_mask

DUMMY_SLOT = 0


class Drafter(EagleDraftWorkerBase):  # type: ignore[misc]
    """The draft model with what SGLang asks of a drafting worker."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any, arm: Arm) -> None:
        super().__init__()
        self.arm, self.device = arm, get_device().device
        self.topk = arm.speculation.num_drafts
        self.parallel_layout = resolve_draft_parallel_layout(
            DraftParallelSpec(tp_execution=DraftTPExecution.TARGET_LAYOUT)
        )
        self.context = target_worker.model_runner.model_config.context_len
        with draft_tp_context(self.parallel_layout), draft_pp_context(), draft_model_build_scope():
            self.draft_worker = TpModelWorker(
                server_args=server_args,
                gpu_id=gpu_id,
                nccl_port=nccl_port,
                is_draft_worker=True,
                context_length=self.context,
            )
        self.draft_runner = self.draft_worker.model_runner
        config = read_drafter(configuration(server_args.speculative_draft_model_path), arm)
        self.mask_token_id, self.shift = config.mask_token_id, config.logits_shift
        # With a shift the row before a place predicts it: the bonus token's row takes part, the last mask is not there.
        self.width = 1 + arm.window - self.shift

    def alloc_memory_pool(self, **options: Any) -> None:
        """The pool of keys and values, under the target's slot numbers."""
        self.draft_worker.alloc_memory_pool(**options)

    def init_attention_backend(self) -> None:
        """Nothing beside the runner's own: no step follows another."""

    def _capture_cuda_graphs(self) -> None:
        """None are captured."""

    def draft_extend(self, batch: Any) -> None:
        """Read a chunk of prompts, causal."""
        with draft_tp_context(self.parallel_layout):
            self.draft_worker.forward_batch_generation(batch, is_verify=True)  # is_verify: nothing is sampled

    def draft(self, batch: Any, bonus: Tensor, kept: Tensor, counts: Tensor, slots: Tensor) -> Tensor:
        """Take in what a round has kept and draft for the next one.

        Args:
            batch: its seq_lens are the lengths before the kept tokens
            bonus: [B] the new last tokens
            kept: [B, C] tokens before them, of which the first `counts` [B] are new to the cache
            slots: [B, C] where their keys and values go

        Returns:
            drafts, as `state.carried` takes them
        """
        window, rows = self.arm.window, kept.shape[1] + self.width
        order = torch.arange(rows, device=self.device)
        place = order - counts[:, None]  # 0: the bonus token; below: kept; above: masks and padding
        padding = (0, self.width)
        ids = torch.where(place < 0, torch.nn.functional.pad(kept, padding), self.mask_token_id)
        ids = torch.where(place == 0, bonus[:, None].long(), ids)
        slots = torch.where(place < 0, torch.nn.functional.pad(slots, padding), DUMMY_SLOT)
        positions = (batch.seq_lens[:, None] + order).clamp(max=self.context - 1)
        logits = self.forward(batch, ids, slots, positions, window_sees(counts, kept.shape[1], self.width))
        predicting = counts[:, None] + 1 - self.shift + torch.arange(window, device=self.device)
        marginals = torch.take_along_dim(logits.view(len(ids), rows, -1), predicting[..., None], dim=1)
        # A drafter whose scores are no numbers drafts nonsense; drawing from them would end the server.
        marginals = marginals.float().nan_to_num()
        marginals[..., self.mask_token_id] = float("-inf")
        return propose(marginals, self.arm)

    def forward(self, batch: Any, ids: Tensor, slots: Tensor, positions: Tensor, sees: Tensor) -> Tensor:
        """Scores of rows [B, W] after each request's cached prefix: [B * W, V]."""
        size, rows = ids.shape
        lengths, on_host = batch.seq_lens, batch.seq_lens_cpu
        total = int(on_host.sum()) if on_host is not None else size * self.context
        spec_info = forward_input(
            rows=rows,
            window=self.arm.window,
            branches=1,
            mask=full_mask(lengths, sees, (total + size * rows) * rows),
            positions=positions.reshape(-1),
            tokens=ids.reshape(-1),
        )
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=size,
            input_ids=ids.reshape(-1),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=lengths,
            seq_lens_cpu=on_host,
            seq_lens_sum=total,
            out_cache_loc=slots.reshape(-1),
            positions=positions.reshape(-1),
            spec_algorithm=batch.spec_algorithm,
            spec_info=spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            global_num_token_non_padded_cpu=size * rows,
        )
        translator = self.draft_runner.kv_index_translator
        plan = translator.plan(
            req_pool_indices=batch.req_pool_indices,
            seq_lens=lengths,
            seq_lens_cpu=on_host,
            write_virtual=forward_batch.out_cache_loc,
            read_extent=rows,
        )
        plan.bind(forward_batch, translator)
        with torch.inference_mode(), draft_tp_context(self.parallel_layout):
            output = self.draft_runner.forward(forward_batch).logits_output
        return output.next_token_logits  # type: ignore[no-any-return]
