"""One compact decoder for every Qwen2/Llama-type model here: verifier, drafter and trainee alike.

Knows tensors only: no tokenizer, file, clock or sampling. The maths is that of Qwen2 and Llama (RMSNorm, rotary
positions, grouped-query attention, SwiGLU) with fused projections; tests/test_decoder.py holds its logits to those of
transformers. Letters: B batch, T rows of this forward, S key slots, H heads, D head width, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engines.attention import WindowMask, attend
from engines.cache import HIDDEN, DecoderConfig, KVCache

LOOK_AHEAD = 1024
"""Positions past the context that drafts may stand on; what is kept never does."""


class DecoderLayer(nn.Module):
    """Attention and feed-forward with their norms; q, k, v in one projection, gate and up in another."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        c, self.config = config, config
        q_width, kv_width = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.attention_norm = nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.qkv = nn.Linear(c.hidden_size, q_width + 2 * kv_width, bias=c.attention_bias)
        self.out = nn.Linear(q_width, c.hidden_size, bias=False)
        self.mlp_norm = nn.RMSNorm(c.hidden_size, eps=c.rms_norm_eps)
        self.gate_up = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=False)
        self.down = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(
        self,
        x: Tensor,
        rotary: tuple[Tensor, Tensor],
        mask: Tensor | WindowMask | None,
        cache: KVCache | None,
        index: int,
        *,
        skip: int = 0,
    ) -> Tensor:
        """Keys and values of all rows, the rest for those behind the first `skip`.

        Shapes:
            x:       [B, T, hidden]
            mask:    as for `attend`
            returns: [B, T - skip, hidden]
        """
        c = self.config
        batch, rows, _ = x.shape
        heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        qkv = self.qkv(self.attention_norm(x)).view(batch, rows, heads + 2 * kv_heads, c.head_dim).transpose(1, 2)
        rotated = rotate(qkv[:, : heads + kv_heads], rotary)
        q, k, v = rotated[:, :heads], rotated[:, heads:], qkv[:, heads + kv_heads :]
        if cache is not None:
            k, v = cache.extend(index, k, v)
            q = q.to(cache.dtype)
        if skip:
            x, q, mask = x[:, skip:], q[:, :, skip:], mask[..., skip:, :] if isinstance(mask, Tensor) else mask
        attended = attend(q, k, v, mask).to(x.dtype)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, rows - skip, heads * c.head_dim))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        added: Tensor = x + self.down(F.silu(gate) * up)
        return added


class Decoder(nn.Module):
    """Token ids and positions to hidden states; `logits` turns the rows that are wanted into scores over V."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: DecoderConfig, inv_freq: Tensor | None = None) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.embed.weight
        cos, sin = rotary_table(config, inv_freq)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor | WindowMask | None = None,
        cache: KVCache | None = None,
        *,
        skip: int = 0,
    ) -> Tensor:
        """Hidden states of the given rows after the last norm, but for the first `skip` rows.

        Of these the last layer makes keys and values alone: where they are only read for the cache, that is all they
        are needed for.

        Shapes:
            ids, positions: [B, T]; positions may be [T] when all rows of the batch share them
            mask:           additive, broadcast to [B, H, T, M], for the last M of S = cache.end + T slots; every row
                            sees those before them, and without a mask all; or a WindowMask
            returns:        [B, T - skip, hidden]
        """
        x = self.embed(ids)
        cos, sin = self.cos[positions].to(x.dtype), self.sin[positions].to(x.dtype)
        if positions.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = layer(x, (cos, sin), mask, cache, index, skip=skip if index == last else 0)
        normed: Tensor = self.norm(x)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary: [..., hidden] -> [..., V]."""
        scores: Tensor = self.lm_head(hidden)
        return scores


def rotary_table(config: DecoderConfig, inv_freq: Tensor | None) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine per position, each [max_position, D], laid out for `rotate`."""
    if inv_freq is None:
        inv_freq = config.rope_theta ** (-torch.arange(0, config.head_dim, 2).double() / config.head_dim)
    rows = config.max_position_embeddings + LOOK_AHEAD
    angles = torch.outer(torch.arange(rows).double(), inv_freq.double())
    return torch.cat((angles.cos(), angles.cos()), -1).float(), torch.cat((-angles.sin(), angles.sin()), -1).float()


def causal_mask(rows: int, dtype: torch.dtype = torch.float32, *, before: int = 0) -> Tensor:
    """Additive mask: every row sees `before` cached rows, the rows above it and itself; [rows, before + rows]."""
    return torch.full((rows, before + rows), HIDDEN, dtype=dtype).triu_(1 + before)


def prefill(decoder: Decoder, cache: KVCache, lane: int, prompt: list[int]) -> Tensor:
    """Read a prompt into an empty lane; the hidden state of its last token: [1, hidden]."""
    cache.active, rows = range(lane, lane + 1), len(prompt)
    ids, mask = torch.tensor([prompt]), causal_mask(rows, cache.dtype)
    hidden: Tensor = decoder(ids, torch.arange(rows), mask, cache, skip=rows - 1)[0]
    cache.commit(rows)
    return hidden


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions in the half-split layout: the sine table carries the sign of the swapped halves."""
    cos, sin = rotary
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin
