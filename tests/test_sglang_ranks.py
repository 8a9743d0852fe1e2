"""Two ranks of a tensor-parallel group, on two CPU processes (gloo): the first one's drafts and draws count."""

from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engines.sglang_plugin.acceptance import Verdict, walk
from engines.sglang_plugin.drafter_shapes import propose
from engines.sglang_plugin.ranks import as_on_first_rank
from engines.sglang_plugin.settings import Arm, Further
from engines.sglang_plugin.tree import arrange
from engines.speculation import Speculation

ARM = Arm(speculation=Speculation(drafter="d", window=3, shape="tree", nodes=7), further=Further(shape="tree", nodes=7))


class Rank(NamedTuple):
    """What a rank drew and drafted by itself, and what it went on with."""

    own_drafts: Tensor
    own_draws: Tensor
    drafts: Tensor
    drawn: Tensor
    chosen: Tensor
    verdict: Verdict


def round_of_rank(rank: int, folder: str) -> None:
    """A rank's drafts and verdict, whose random numbers are its own, before and after the ranks agree."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(rank)
    group = torch.distributed.group.WORLD
    own_drafts = propose(torch.randn(2, 3, 5), ARM)
    own_draws = torch.randint(5, (2, 8), dtype=torch.int32)
    (drafts,) = as_on_first_rank(group, own_drafts)
    (drawn, chosen) = as_on_first_rank(group, own_draws, torch.arange(2) + rank)
    tokens, parents = (torch.nn.functional.pad(each, (1, 0)) for each in drafts.chunk(2, dim=1))
    verdict = walk(tokens, arrange(parents, 3), drawn)
    torch.save((own_drafts, own_draws, drafts, drawn, chosen, tuple(verdict)), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def both_ranks(folder: Path) -> list[Rank]:
    context = get_context("spawn")
    ranks = [context.Process(target=round_of_rank, args=(rank, str(folder))) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    saved = [torch.load(folder / f"{rank}.pt") for rank in range(2)]
    return [Rank._make([*tensors, Verdict(*verdict)]) for *tensors, verdict in saved]


def test_both_ranks_go_on_with_the_first_ones_drafts_and_draws(tmp_path: Path) -> None:
    first, second = both_ranks(tmp_path)

    assert not torch.equal(first.own_drafts, second.own_drafts)  # left to themselves they differ
    assert not torch.equal(first.own_draws, second.own_draws)
    for rank in (first, second):
        assert torch.equal(rank.drafts, first.own_drafts)
        assert torch.equal(rank.drawn, first.own_draws)
        assert (rank.drawn.dtype, rank.chosen.tolist()) == (torch.int32, [0, 1])


def test_both_ranks_keep_the_same(tmp_path: Path) -> None:
    first, second = both_ranks(tmp_path)

    assert all(torch.equal(one, other) for one, other in zip(first.verdict, second.verdict, strict=True))


def test_one_rank_alone_keeps_what_it_has() -> None:
    tensor = torch.arange(3)

    assert as_on_first_rank(None, tensor)[0] is tensor
