"""SGLang's attention in torch with trees: the backend `specdiff_torch`, for CPUs.

SGLang's own `torch_native` cannot verify drafts. Here a forward of several rows per request under a mask of its own
takes the prefix's keys and values from the pool and its rows' own from the forward, as SGLang's triton backend does;
whatever else is asked is left to `torch_native`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engines.sglang_plugin.settings import ATTENTION


def register_attention() -> None:
    """Make the backend known under its name, also where SGLang lists backends that are deterministic."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS

    ATTENTION_BACKENDS[ATTENTION] = make_backend
    for add in (
        choices.add_attention_backend_choices,
        choices.add_draft_attention_backend_choices,
        choices.add_deterministic_attention_backend_choices,
        choices.add_radix_supported_deterministic_attention_backend_choices,
    ):
        add([ATTENTION])


def make_backend(runner: Any) -> Any:
    """The backend of a model runner; SGLang's classes are imported when it makes one."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    class TreeAttention(TorchNativeAttnBackend):  # type: ignore[misc]
        """`torch_native` with forwards under a mask."""

        def forward_extend(  # noqa: PLR0917 - as the parent has it
            self, q: Tensor, k: Tensor, v: Tensor, layer: Any, forward_batch: Any, save_kv_cache: bool = True
        ) -> Any:
            """Attention of several rows per request."""
            if not forward_batch.forward_mode.is_target_verify():
                return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
            pool = self.token_to_kv_pool
            if save_kv_cache:
                pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
            prefix = [
                self.req_to_token_pool.req_to_token[row, :length].long()
                for row, length in zip(
                    forward_batch.req_pool_indices.tolist(), forward_batch.seq_lens.tolist(), strict=True
                )
            ]
            count = len(q) // len(prefix)
            heads = (layer.tp_q_head_num, layer.tp_k_head_num, layer.tp_v_head_num)
            rows = [each.reshape(len(prefix), count, number, -1) for each, number in zip((q, k, v), heads, strict=True)]
            cached = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
            attended = attend(rows, cached, prefix, forward_batch.spec_info.custom_mask, layer.scaling)
            return attended.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    return TreeAttention(runner)


def attend(
    rows: list[Tensor], cached: tuple[Tensor, Tensor], prefix: list[Tensor], mask: Tensor, scaling: float
) -> Tensor:
    """Attention of the rows of several requests to each request's prefix and to each other.

    Shapes:
        rows:    queries, keys, values [B, R, heads, D]
        cached:  keys, values [slots, heads, D] of the pool
        prefix:  for each request the slots of its prefix
        mask:    flat, for each request [R, prefix + R]: true where a row sees; or [R, R], as SGLang's own n-gram drafts
                 have it on a CPU: then every row sees the whole prefix
        returns: [B, R, heads, D]
    """
    count = rows[0].shape[1]
    among_rows = mask.numel() == len(prefix) * count * count
    outputs, start = [], 0
    for query, key, value, slots in zip(*rows, prefix, strict=True):
        width = count if among_rows else len(slots) + count
        sees = mask[start : start + count * width].view(count, width)
        if among_rows:
            sees = torch.nn.functional.pad(sees, (len(slots), 0), value=True)
        start += count * width
        keys, values = (
            torch.cat((pool[slots].to(own.dtype), own)).transpose(0, 1)
            for pool, own in zip(cached, (key, value), strict=True)
        )
        outputs.append(
            scaled_dot_product_attention(
                query.transpose(0, 1)[None],
                keys[None],
                values[None],
                attn_mask=sees[None, None],
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )[0].transpose(0, 1)
        )
    return torch.stack(outputs)
