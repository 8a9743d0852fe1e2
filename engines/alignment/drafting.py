"""A drafter to begin with: a decoder cut from the verifier.

Knows a verifier's weights; no task, no file, no training.
"""

import dataclasses
from collections.abc import Sequence

from engines.decoder import Decoder


def drafter_from_verifier(verifier: Decoder, layers: int | Sequence[int]) -> Decoder:
    """A decoder of some of the verifier's layers (a number: of its first ones), with its embeddings and last norm."""
    taken = range(layers) if isinstance(layers, int) else layers
    drafter = Decoder(dataclasses.replace(verifier.config, num_hidden_layers=len(taken)))
    drafter.load_state_dict(
        {name: parameter for name, parameter in verifier.state_dict().items() if not name.startswith("layers.")}
        | {
            f"layers.{place}.{name}": parameter
            for place, layer in enumerate(taken)
            for name, parameter in verifier.layers[layer].state_dict().items()
        }
    )
    return drafter
