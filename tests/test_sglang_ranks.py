"""Two ranks of a tensor-parallel group, on two CPU processes (gloo): the first one's drafts and draws count."""

from pathlib import Path

import torch
from torch import Tensor, multiprocessing

from engines.sglang_plugin.acceptance import Verdict, walk
from engines.sglang_plugin.drafter_shapes import propose
from engines.sglang_plugin.ranks import as_on_first_rank
from engines.sglang_plugin.settings import Arm, Further
from engines.sglang_plugin.tree import arrange
from engines.speculation import Speculation

ARM = Arm(speculation=Speculation(drafter="d", window=3, shape="tree", nodes=7), further=Further(shape="tree", nodes=7))


def round_of_rank(rank: int, folder: str) -> None:
    """A rank's drafts and verdict, whose random numbers are its own, before and after the ranks agree."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(rank)
    group = torch.distributed.group.WORLD
    own_drafts = propose(torch.randn(2, 3, 5), ARM)
    own_draws = torch.randint(5, (2, 8), dtype=torch.int32)
    (drafts,) = as_on_first_rank(group, own_drafts)
    (drawn, again) = as_on_first_rank(group, own_draws, torch.arange(2) + rank)
    tokens, parents = (torch.nn.functional.pad(each, (1, 0)) for each in drafts.chunk(2, dim=1))
    verdict = walk(tokens, arrange(parents, 3), drawn)
    torch.save((own_drafts, own_draws, drafts, drawn, again, verdict), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def both_ranks(folder: Path) -> list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Verdict]]:
    multiprocessing.spawn(round_of_rank, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_both_ranks_go_on_with_the_first_ones_drafts_and_draws(tmp_path: Path) -> None:
    first, second = both_ranks(tmp_path)

    assert not torch.equal(first[0], second[0])  # left to themselves they differ
    assert not torch.equal(first[1], second[1])
    for place, own in ((2, 0), (3, 1)):
        assert torch.equal(first[place], first[own])
        assert torch.equal(second[place], first[own])
    assert (second[3].dtype, second[4].tolist()) == (torch.int32, [0, 1])
    assert all(torch.equal(one, other) for one, other in zip(first[5], second[5], strict=True))


def test_one_rank_alone_keeps_what_it_has() -> None:
    tensor = torch.arange(3)

    assert as_on_first_rank(None, tensor)[0] is tensor
