"""Dream and DiffuCoder as drafters: Qwen2's network and names of weights under an architecture name of their own.

What makes them diffusion models is not in the network: the window's mask and the logits' shift (drafter.py).
"""

from sglang.srt.models.qwen2 import Qwen2ForCausalLM


class DreamModel(Qwen2ForCausalLM):  # type: ignore[misc]
    """The architecture that their config.json names."""
