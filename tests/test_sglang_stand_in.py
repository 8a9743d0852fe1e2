"""The stand-in for SGLang's CPU kernels does what SGLang's callers expect of the real ones."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from engines.sglang_plugin.cpu import STAND_IN, cpu_environment
from engines.sglang_plugin.stand_in import sgl_kernel
from engines.sglang_plugin.tree import arrange, best_first, links

ROWS, STARTS, ENDS = torch.tensor([2, 0, 1]), torch.tensor([1, 4, 0]), torch.tensor([4, 4, 2])
SEEDS = range(10)


def test_slots_are_handed_out_request_after_request() -> None:
    table = torch.zeros(3, 5, dtype=torch.int32)

    sgl_kernel.assign_req_to_token_pool_cpu(ROWS, table, STARTS, ENDS, torch.tensor([11, 12, 13, 14, 15]), 5)

    assert table.tolist() == [[0, 0, 0, 0, 0], [14, 15, 0, 0, 0], [0, 11, 12, 13, 0]]


def test_slots_are_read_back_packed() -> None:
    table, slots = torch.arange(15).view(3, 5), torch.zeros(5, dtype=torch.long)

    sgl_kernel.assign_extend_cache_locs_cpu(ROWS, table, STARTS, ENDS, slots, 5)

    assert slots.tolist() == [11, 12, 13, 5, 6]


def test_slots_of_accepted_rows_are_packed_in_order() -> None:
    packed = torch.zeros(6, dtype=torch.long)

    sgl_kernel.fill_accept_out_cache_loc_cpu(
        torch.tensor([[0, 2, -1], [5, -1, -1]], dtype=torch.int32), torch.arange(100, 108), packed
    )

    assert packed.tolist() == [100, 102, 105, 0, 0, 0]


def test_rows_move_as_if_all_were_read_first() -> None:
    buffers = [torch.arange(12.0).view(4, 3), torch.arange(8, dtype=torch.int16).view(4, 2)]
    expected = [buffer[[0, 2, 1, 2]].tolist() for buffer in buffers]
    addresses = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64).view(torch.int64)
    strides = torch.tensor([buffer[0].numel() * buffer.element_size() for buffer in buffers])

    sgl_kernel.copy_all_layer_kv_cache_cpu(addresses, strides, torch.tensor([1, 2, 3]), torch.tensor([2, 1, 2]))

    assert [buffer.tolist() for buffer in buffers] == expected


def test_nothing_moves_without_rows() -> None:
    buffer = torch.ones(2, 2)

    sgl_kernel.copy_all_layer_kv_cache_cpu(
        torch.tensor([buffer.data_ptr()]), torch.tensor([8]), torch.tensor([], dtype=torch.long), torch.tensor([])
    )

    assert buffer.tolist() == [[1, 1], [1, 1]]


def trees(seed: int) -> tuple[Tensor, Tensor]:
    """Tokens and parents of two random trees of 1 + 9 rows."""
    generator = torch.Generator().manual_seed(seed)
    return best_first(2 * torch.randn(2, 3, 4, generator=generator), 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tree_is_read_from_its_mask(seed: int) -> None:
    rows = arrange(trees(seed)[1], 3)
    positions, numbers = torch.zeros(20, dtype=torch.long), torch.zeros(2, 10, dtype=torch.long)
    first, after = torch.zeros(2, 10, dtype=torch.long), torch.zeros(2, 10, dtype=torch.long)

    sgl_kernel.reconstruct_indices_from_tree_mask(
        rows.sees.reshape(-1), torch.tensor([5, 9]), positions, numbers, first, after, 2, 10
    )

    assert torch.equal(positions.view(2, 10), rows.depths + torch.tensor([[5], [9]]))
    assert torch.equal(numbers, torch.arange(20).view(2, 10))
    assert [first.tolist(), after.tolist()] == [each.tolist() for each in links(rows, 2)]


def kept_by_hand(tokens: list[int], parents: list[int], drawn: list[int]) -> list[int]:
    """Rows of a walk along the target's tokens."""
    path = [0]
    while True:
        below = [row for row in range(1, len(tokens)) if parents[row] == path[-1] and tokens[row] == drawn[path[-1]]]
        if not below:
            return path
        path.append(below[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_trees_are_walked_along_the_targets_tokens(seed: int) -> None:
    tokens, parents = trees(seed)
    drawn = torch.randint(4, (2, 10), generator=torch.Generator().manual_seed(seed + 100))
    predicts = torch.full((20,), -7, dtype=torch.int32)
    accepted, counts = torch.full((2, 4), -1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    first, after = links(arrange(parents, 3), 2)

    sgl_kernel.verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accepted,
        accept_token_num=counts,
        candidates=tokens,
        retrive_index=torch.arange(20).view(2, 10),
        retrive_next_token=first,
        retrive_next_sibling=after,
        target_predict=drawn,
    )

    paths = [kept_by_hand(tokens[b].tolist(), parents[b].tolist(), drawn[b].tolist()) for b in range(2)]
    assert counts.tolist() == [len(path) - 1 for path in paths]
    assert [row[row >= 0].tolist() for row in accepted] == [[10 * b + row for row in paths[b]] for b in range(2)]
    walked = [10 * b + row for b in range(2) for row in paths[b]]
    assert predicts[walked].tolist() == drawn.view(-1)[walked].tolist()


def murmur3(data: bytes) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) of whole words, in Python's own numbers (Appleby, public domain)."""
    low, state = 0xFFFFFFFF, 0
    for start in range(0, len(data), 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0xCC9E2D51 & low
        word = (word << 15 | word >> 17) & low
        state ^= word * 0x1B873593 & low
        state = (state << 13 | state >> 19) & low
        state = (state * 5 + 0xE6546B64) & low
    state ^= len(data)
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        state = (state ^ state >> shift) * factor & low
    return state ^ state >> 16


def test_the_hash_is_murmur3_of_seed_position_and_column() -> None:
    seeds, positions, columns = [0, 42, 2**63 + 12345], [0, 7, 70000], [0, 1, 151935]

    hashed = torch.ops.sgl_kernel.murmur_hash32_cpu(
        torch.tensor(seeds, dtype=torch.uint64), torch.tensor(positions), torch.tensor(columns)
    )

    expected = [
        [
            murmur3(b"".join(n.to_bytes(size, "little") for n, size in ((seed, 8), (at, 4), (column, 4))))
            for column in columns
        ]
        for seed, at in zip(seeds, positions, strict=True)
    ]
    assert hashed.tolist() == expected


def test_the_hash_by_hand_is_the_published_one() -> None:
    assert murmur3(b"test") == 0xBA6BD213


def test_any_other_name_may_be_imported_but_not_called() -> None:
    function = sgl_kernel.some_cuda_kernel

    with pytest.raises(NotImplementedError, match="some_cuda_kernel has no stand-in"):
        function(1, device="cuda")


def imported(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(STAND_IN)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_submodule_has_the_same_names() -> None:
    code = "import sgl_kernel, sgl_kernel.moe as moe; print(moe.SUBMODULES is sgl_kernel.SUBMODULES)"

    assert imported(code) == "True"


def test_an_unknown_submodule_is_not_there() -> None:
    assert imported("import sgl_kernel.scalar_type") == "ModuleNotFoundError: No module named 'sgl_kernel.scalar_type'"


def test_the_cpu_engines_environment_sets_one_thread_and_finds_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr("engines.sglang_plugin.cpu.has_cpu_kernels", lambda: False)

    environment = cpu_environment()

    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(STAND_IN), "/elsewhere"]


def test_kernels_that_are_built_for_a_cpu_are_left_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.sglang_plugin.cpu.has_cpu_kernels", lambda: True)

    assert "PYTHONPATH" not in cpu_environment()
