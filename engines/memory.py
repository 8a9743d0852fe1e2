"""This machine's memory, and one line where what is asked for can never fit into it.

Knows numbers of bytes. Whether something else takes the memory first is not foreseen.
"""

import os

import torch

GIB = 2**30


def memory_of(device: str) -> int | None:
    """Bytes of the machine, or of the first GPU; None where the system does not say."""
    if device != "cpu":
        return int(torch.cuda.get_device_properties(0).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def refuse_too_large(needed: int, asked: str, remedy: str, device: str = "cpu") -> None:
    """Raise ValueError where more bytes are needed than there are.

    Args:
        asked: what needs them, as the subject of a sentence
        remedy: what to lower
    """
    there = memory_of(device)
    if there is not None and needed > there:
        raise ValueError(
            f"{asked} take at least {needed / GIB:.1f} GiB, {device} has {there / GIB:.1f} GiB; lower {remedy}"
        )
