"""Penalties at every row of a verify forward (placeholder until exact)."""

from typing import Any

from torch import Tensor


def adjust(logits: Tensor, info: Any, rows: int) -> None:
    """No penalties yet."""
