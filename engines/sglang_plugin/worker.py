"""SPECDIFF2's worker: SGLang's scheduler hands it batches, it verifies the drafts that they carry and drafts anew.

A prompt's batch runs target and drafter over the chunk and drafts for the first round. A round is: verify the drafts
in one forward of the target, walk along its draws, move what is kept to the front of the round's cache slots, then let
the drafter take it in and draft for the next round. SGLang undoes whatever is changed in `batch` afterwards; what lasts
is in the result.
"""

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.runtime_context import get_device, get_schedule, get_spec
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_utils import eagle_prepare_for_verify
from sglang.srt.speculative.spec_utils import (
    GrammarTree,
    build_grammar_vocab_mask,
    move_accept_tokens_to_target_kvcache,
    record_stream_each,
    record_stream_for_v2_verify,
)
from torch import Tensor

from engines.sglang_plugin.acceptance import Verdict, draw, select_draft, walk
from engines.sglang_plugin.drafter import Drafter
from engines.sglang_plugin.ranks import as_on_first_rank
from engines.sglang_plugin.settings import read_arm
from engines.sglang_plugin.state import carried, forward_input
from engines.sglang_plugin.tree import Rows, arrange, chain_parents, first_equal, full_mask, links

Publish = Callable[[Tensor], None]


class SpecDiff2Worker(BaseSpecWorker):  # type: ignore[misc]
    """What the scheduler drives."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        super().__init__()
        spec = get_spec()
        drafts = spec.speculative_eagle_topk
        self.arm = read_arm(server_args.speculative_draft_model_path, spec.speculative_num_steps, drafts)
        self.server_args, self._target_worker = server_args, target_worker
        self.device, self.page_size = get_device().device, get_schedule().page_size
        # Names that SGLang's statistics read.
        self.speculative_num_steps, self.topk = self.arm.window, drafts
        self.speculative_num_draft_tokens = 1 + self.arm.nodes
        self.adaptive_controller = None
        self._draft_worker = Drafter(server_args, gpu_id, nccl_port, target_worker, self.arm)
        self.is_tree = self.arm.speculation.shape == "tree"
        parents = chain_parents(self.arm.speculation.num_drafts, self.arm.window).to(self.device)
        self.chains = arrange(parents, self.arm.window)
        group = get_tp_group()
        self.ranks = group.device_group if group.world_size > 1 else None

    @property
    def spec_v2_attn_backends(self) -> tuple[Any, ...]:
        """Attention backends of a round."""
        return (self.target_worker.model_runner.attn_backend, self._draft_worker.draft_runner.attn_backend)

    @property
    def last_shared_read_runner(self) -> Any:
        """The runner that reads a round's slots last: the drafter's, whose forward ends it."""
        return self._draft_worker.draft_runner

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Publish | None = None,
        grammar_barrier: object = None,
        pp_proxy_tensors: object = None,
    ) -> Any:
        """A prompt's chunk, or a round."""
        del grammar_barrier, pp_proxy_tensors
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            return self.prefill(batch, on_publish)
        return self.round(batch, on_publish)

    def prefill(self, batch: Any, on_publish: Publish | None) -> Any:
        """Run target and drafter over a chunk of prompts."""
        result = self.target_worker.forward_batch_generation(batch)
        if on_publish is not None:
            on_publish(batch.seq_lens)
        self._draft_worker.draft_extend(batch)
        bonus = result.next_token_ids
        nothing = torch.zeros(len(bonus), 0, dtype=torch.long, device=self.device)
        drafted = self._draft_worker.draft(batch, bonus, nothing, nothing.sum(-1), nothing)
        (drafted,) = as_on_first_rank(self.ranks, drafted)
        result.next_draft_input = carried(bonus, drafted)
        result.new_seq_lens = batch.seq_lens
        return result

    def round(self, batch: Any, on_publish: Publish | None) -> Any:
        """Verify the drafts that the batch carries, and draft for the next round."""
        bonus, drafted = batch.spec_info.bonus_tokens.long(), batch.spec_info.topk_index
        tokens, rows = self.rows_of(bonus, drafted)
        forward_batch, can_run_graph, positions = self.prepare_verify(batch, tokens, rows)
        output = self.target_worker.forward_batch_generation(batch=None, forward_batch=forward_batch, is_verify=True)
        output = output.logits_output
        verdict, drawn = self.verdict(batch, output.next_token_logits, positions, tokens, rows)
        new_lengths = batch.seq_lens + verdict.counts
        numbered = self.numbered(verdict.rows)
        slots = batch.out_cache_loc
        move_accept_tokens_to_target_kvcache(
            batch, numbered, (verdict.counts - 1).int(), self.token_to_kv_pool_allocator
        )
        if on_publish is not None:
            on_publish(new_lengths)
        if batch.return_logprob:
            compute_spec_logprobs(batch, output, drawn.reshape(-1).int(), accept_index=numbered)
        window = self.arm.window
        kept = torch.cat((bonus[:, None], verdict.tokens[:, :-1]), dim=1)
        last = verdict.tokens.gather(1, verdict.counts[:, None] - 1)[:, 0]
        front = slots.view(len(bonus), -1)[:, : window + 1]
        drafted = self._draft_worker.draft(batch, last, kept, verdict.counts, front)
        (drafted,) = as_on_first_rank(self.ranks, drafted)
        return GenerationBatchResult(
            logits_output=output,
            next_token_ids=verdict.tokens.reshape(-1).int(),
            accept_lens=verdict.counts.int(),
            new_seq_lens=new_lengths,
            can_run_cuda_graph=can_run_graph,
            next_draft_input=carried(last, drafted),
            speculative_num_draft_tokens=self.speculative_num_draft_tokens,
            speculative_output_stride=window + 1,
            extra_keep_alive_refs=[forward_batch],
        )

    def rows_of(self, bonus: Tensor, drafted: Tensor) -> tuple[Tensor, Rows]:
        """Tokens [B, R] of a verify forward and how its rows hang together."""
        if not self.is_tree:
            return torch.cat((bonus[:, None], drafted), dim=1), self.chains
        tokens, parents = drafted.chunk(2, dim=1)
        root = torch.zeros_like(bonus)[:, None]
        return torch.cat((bonus[:, None], tokens), dim=1), arrange(torch.cat((root, parents), dim=1), self.arm.window)

    def prepare_verify(self, batch: Any, tokens: Tensor, rows: Rows) -> tuple[Any, bool, Tensor]:
        """SGLang's forward batch for the verify forward, whether a graph serves it, and positions [B * R]."""
        size, count = tokens.shape
        positions = (batch.seq_lens[:, None] + rows.depths).reshape(-1)
        on_host = batch.seq_lens_cpu
        context = self.target_worker.model_runner.model_config.context_len
        total = int(on_host.sum()) if on_host is not None else size * context
        verify = forward_input(
            rows=count,
            window=self.arm.window,
            branches=self.topk,
            mask=full_mask(batch.seq_lens, rows.sees, (total + size * count) * count),
            # What is drafted past the context's end is never kept.
            positions=positions.clamp(max=context - 1),
            tokens=tokens.reshape(-1),
        )
        batch.spec_info = verify
        stream = torch.get_device_module(self.device).current_stream()
        record_stream_for_v2_verify(batch, verify, stream)
        pool = self.target_worker.model_runner.req_to_token_pool
        forward_batch, can_run_graph = eagle_prepare_for_verify(verify, pool, batch, self.target_worker)
        record_stream_each((batch.input_ids, batch.out_cache_loc), stream)
        return forward_batch, can_run_graph, positions

    def verdict(
        self, batch: Any, logits: Tensor, positions: Tensor, tokens: Tensor, rows: Rows
    ) -> tuple[Verdict, Tensor]:
        """What is kept, and the target's draws [B, R] at every row; `logits` [B * R, V] are adjusted in place."""
        info, (size, count) = batch.sampling_info, tokens.shape
        if batch.has_grammar:
            tree = GrammarTree.from_device(*(each.contiguous() for each in links(rows, size)), tokens)
            mask = build_grammar_vocab_mask(
                reqs=batch.reqs, tree=tree, sampling_info=info, device=logits.device, barrier=None
            )
            if mask is not None:
                mask.apply(logits)
        if info.logit_bias is not None:
            logits.add_(info.logit_bias.repeat_interleave(count, 0))
        selects = self.arm.speculation.rule == "paper" and self.arm.nodes > self.arm.window
        draws = draw(logits, info, positions, count, laws=selects)
        if self.arm.speculation.num_drafts > 1:
            equal = first_equal(tokens[:, 1:].view(size, -1, self.arm.window))
            draws = draws._replace(tokens=draws.tokens.gather(1, equal))
        chosen = select_draft(tokens, rows, draws) if selects else None
        if chosen is None:
            (drawn,) = as_on_first_rank(self.ranks, draws.tokens)
        else:
            drawn, chosen = as_on_first_rank(self.ranks, draws.tokens, chosen)
        return walk(tokens, rows, drawn, chosen), drawn

    def numbered(self, rows: Tensor) -> Tensor:
        """Rows [B, 1 + G] numbered over the whole batch, -1 staying -1."""
        first = self.speculative_num_draft_tokens * torch.arange(len(rows), device=rows.device)[:, None]
        return torch.where(rows < 0, rows, rows + first).int()
