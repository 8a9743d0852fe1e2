"""From a decoder's shape to the sizes that FLOPs are counted by (results/costs.py)."""

from engines.cache import DecoderConfig
from results.costs import Network


def network_of(config: DecoderConfig) -> Network:
    """Weights that multiply every row: projections and output layer, tied or not; norms and biases are left out."""
    heads, kv_heads = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    attention = config.hidden_size * (2 * heads + 2 * kv_heads)
    feed_forward = 3 * config.hidden_size * config.intermediate_size
    head = config.vocab_size * config.hidden_size
    return Network(
        matmul_parameters=config.num_hidden_layers * (attention + feed_forward) + head,
        layers=config.num_hidden_layers,
        width=heads,
    )
