"""The shape of a decoder, and the memory of its keys and values: several sequences side by side, one to a lane.

Knows tensors only. Letters: B lanes of this forward, T its rows, S key slots, H heads, D head width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

HIDDEN = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The shape of a decoder, named as transformers' configurations name it."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    rope_theta: float = 10_000.0


class KVCache:
    """Keys and values of committed tokens, allocated once: [layer, key or value, lane, H_kv, S, D].

    `lengths` counts the committed slots of each lane. A forward serves the lanes of `active` and writes its rows behind
    their committed slots without committing; `commit_path` says which of those rows stay. Rows that are not committed
    are overwritten by the next forward.
    """

    # float32 whatever the weights are in, unless asked otherwise: on CPUs torch's attention is faster in it than in
    # bfloat16 for the one row of plain decoding (docs/LOG.md).
    def __init__(self, config: DecoderConfig, lanes: int, capacity: int, dtype: torch.dtype = torch.float32) -> None:
        self.store = torch.zeros(
            config.num_hidden_layers, 2, lanes, config.num_key_value_heads, capacity, config.head_dim, dtype=dtype
        )
        self.lengths = [0] * lanes
        self.active = range(lanes)

    @property
    def dtype(self) -> torch.dtype:
        """Number format of keys and values."""
        return self.store.dtype

    @property
    def end(self) -> int:
        """Committed slots of the longest active lane."""
        return max(self.lengths[lane] for lane in self.active)

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the rows of a forward behind each active lane's committed slots; returns what the rows may look at.

        Shapes:
            keys, values: [B, H_kv, T, D]
            returns:      both [B, H_kv, end + T, D]; slots behind a lane's own rows hold what nobody may see
        """
        store, active, rows = self.store[layer], self.active, keys.shape[2]
        starts = self.lengths[active.start : active.stop]
        if starts.count(starts[0]) == len(starts):
            store[0, active.start : active.stop, :, starts[0] : starts[0] + rows] = keys
            store[1, active.start : active.stop, :, starts[0] : starts[0] + rows] = values
        else:
            for row, (lane, start) in enumerate(zip(active, starts, strict=True)):
                store[0, lane, :, start : start + rows] = keys[row]
                store[1, lane, :, start : start + rows] = values[row]
        seen = store[:, active.start : active.stop, :, : max(starts) + rows]
        return seen[0], seen[1]

    def commit(self, rows: int) -> None:
        """Keep the first `rows` rows of the last forward in every active lane."""
        for lane in self.active:
            self.lengths[lane] += rows

    def commit_path(self, lane: int, path: list[int]) -> None:
        """Keep the given rows of the last forward, in that order, packed behind the lane's committed slots."""
        kept, start = len(path), self.lengths[lane]
        if path != list(range(kept)):
            slots = torch.tensor(path) + start
            self.store[:, :, lane, :, start : start + kept] = self.store[:, :, lane, :, slots]
        self.lengths[lane] += kept

    def clear(self, lane: int) -> None:
        """Forget a lane and what lies in it: a number that is none would pass through any mask."""
        self.store[:, :, lane] = 0.0
        self.lengths[lane] = 0

    def move(self, source: int, target: int) -> None:
        """Put a lane's sequence into another lane."""
        length = self.lengths[source]
        self.store[:, :, target, :, :length] = self.store[:, :, source, :, :length]
        self.lengths[target] = length


def stack_masks(masks: list[Tensor], slots: int) -> Tensor:
    """Masks of several lanes as one: additive, [B, 1, T, slots].

    Each is [rows, its lane's slots]. Rows that a lane does not have see the first slot alone, since a row that saw
    nothing would be undefined; slots that it does not have stay hidden.
    """
    rows = max(mask.shape[0] for mask in masks)
    stacked = torch.full((len(masks), 1, rows, slots), HIDDEN, dtype=masks[0].dtype)
    stacked[..., 0] = 0.0
    for lane, mask in enumerate(masks):
        stacked[lane, 0, : mask.shape[0], : mask.shape[1]] = mask
    return stacked
