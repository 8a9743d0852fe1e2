"""Small windows with random laws of drafter and target, for tests of objectives."""

import torch

from engines.alignment.divergences import top_laws
from engines.alignment.mixed import WindowLaws, window_laws


def random_windows(seed: int = 0, *, window: int = 4, vocab_size: int = 6) -> WindowLaws:
    """Six windows of random laws in double precision, the second and the last one cut off by the end of their text."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 3, window, vocab_size)
    draft, target = (torch.randn(shape, generator=generator, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    tokens = torch.randint(vocab_size, shape[:-1], generator=generator)
    lengths = torch.tensor([[window, 1, window], [window, window, 2]])
    valid = torch.arange(window) < lengths[..., None]
    return window_laws(draft, tokens, valid, target=top_laws(target, vocab_size))
