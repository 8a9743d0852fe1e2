"""A stand-in in torch for `sgl_kernel`, SGLang's compiled operations, where none built for the CPU is installed.

Knows tensors only, nothing of SGLang. It holds what SGLang 0.5.23 calls on a CPU with an attention backend in torch:
the bookkeeping of cache slots, the trees of built-in n-gram drafting, and the hash behind seeded draws. Every other
name, in some submodules too, is a function that raises when it is called: SGLang imports many that it never calls.
Names, order of arguments and results are those that SGLang's callers expect; each result is written into an argument.
"""

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import NoReturn

import torch
from torch import Tensor

LOW_32 = 0xFFFFFFFF
LOW_64 = 0xFFFFFFFFFFFFFFFF
NONE = -1
# Whatever else SGLang asks for is not there, which it takes note of.
SUBMODULES = (
    "attention",
    "elementwise",
    "flash_attn",
    "gemm",
    "grammar",
    "kvcacheio",
    "mamba",
    "memory",
    "moe",
    "quantization",
    "sampling",
    "speculative",
    "top_k",
    "utils",
)


def ranges(rows: Tensor, starts: Tensor, ends: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """(row, start, end, place in a packed list) of every row that has slots."""
    place = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if end > start:
            yield row, start, end, place
            place += end - start


def assign_req_to_token_pool_cpu(
    rows: Tensor, table: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, _row_length: int
) -> None:
    """table[row, start:end] = the next of the packed slots."""
    for row, start, end, place in ranges(rows, starts, ends):
        table[row, start:end] = slots[place : place + end - start]


def assign_extend_cache_locs_cpu(
    rows: Tensor, table: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, _row_length: int
) -> None:
    """The next of the packed slots = table[row, start:end]."""
    for row, start, end, place in ranges(rows, starts, ends):
        slots[place : place + end - start] = table[row, start:end]


def fill_accept_out_cache_loc_cpu(accepted: Tensor, slots: Tensor, packed: Tensor) -> None:
    """The slots of all accepted rows (-1: none), packed in order."""
    kept = slots[accepted[accepted >= 0].long()]
    packed[: kept.numel()] = kept


def copy_all_layer_kv_cache_cpu(addresses: Tensor, strides: Tensor, targets: Tensor, sources: Tensor) -> None:
    """In every buffer: row `target` = row `source`, all sources being read before any target is written.

    Buffers come as addresses and bytes per row.
    """
    if not targets.numel():
        return
    rows = 1 + int(torch.cat((targets, sources)).max())
    for address, stride in zip(addresses.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(address & LOW_64)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, stride)
        buffer[targets.long()] = buffer[sources.long()]


def reconstruct_indices_from_tree_mask(  # noqa: PLR0917 - the caller gives them by place
    mask: Tensor,
    lengths: Tensor,
    positions: Tensor,
    index: Tensor,
    first_child: Tensor,
    next_sibling: Tensor,
    batch: int,
    nodes: int,
) -> None:
    """From who sees whom in a tree of draft nodes to positions, row numbers and links (-1: none).

    Shapes:
        mask:   [batch * nodes * nodes]; a row sees its ancestors and itself
        others: [batch, nodes], but lengths [batch] and positions [batch * nodes]
    """
    order = torch.arange(nodes)
    above = mask.reshape(-1)[: batch * nodes * nodes].view(batch, nodes, nodes).bool() & (order < order[:, None])
    positions.copy_((above.sum(-1) + lengths[:, None]).reshape(-1))
    index.copy_(torch.arange(batch * nodes).view(batch, nodes))
    parent = torch.where(above, order, NONE).amax(-1)
    # [batch, node, other]: other is a child of node; other is a later child of node's parent
    child = parent[:, None, :] == order[:, None]
    sibling = (parent[:, None, :] == parent[:, :, None]) & (parent[:, :, None] >= 0) & (order > order[:, None])
    for links, found in ((first_child, child), (next_sibling, sibling)):
        links.copy_(torch.where(found.any(-1), found.int().argmax(-1), NONE))


def verify_tree_greedy_cpu(
    *,
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's tokens; callers name the arguments, so their names are given.

    Shapes:
        predicts:         [B * N] out, the target's token at every row that the walk came to
        accept_index:     [B, G + 1] out, row numbers of the walk; what is behind it stays as it was
        accept_token_num: [B] out, accepted draft tokens
        others:           [B, N]; row numbers, first child and next sibling of every node, -1 for none
    """
    target = target_predict.reshape(-1)
    wanted = target.tolist()
    links = (retrive_index, candidates, retrive_next_token, retrive_next_sibling)
    for b, (rows, tokens, child, sibling) in enumerate(zip(*(each.tolist() for each in links), strict=True)):
        path = [0]
        while len(path) < accept_index.shape[1]:
            node = child[path[-1]]
            while node != NONE and tokens[node] != wanted[rows[path[-1]]]:
                node = sibling[node]
            if node == NONE:
                break
            path.append(node)
        walked = torch.tensor([rows[node] for node in path])
        accept_index[b, : len(path)] = walked.to(accept_index.dtype)
        accept_token_num[b] = len(path) - 1
        predicts[walked] = target[walked].to(predicts.dtype)


def mixed(state: Tensor, word: Tensor) -> Tensor:
    """One step of MurmurHash3 (32 bits) in int64, whose products wrap and so keep the low 32 bits right."""
    word = (word * 0xCC9E2D51) & LOW_32
    word = ((word << 15) | (word >> 17)) & LOW_32
    state = state ^ ((word * 0x1B873593) & LOW_32)
    state = ((state << 13) | (state >> 19)) & LOW_32
    return (state * 5 + 0xE6546B64) & LOW_32


def murmur_hash32_cpu(seed: Tensor, positions: Tensor, columns: Tensor) -> Tensor:
    """MurmurHash3 of (low and high half of the seed, position, column): uint32 [rows, columns]."""
    seeds = seed.view(torch.int64) if seed.dtype == torch.uint64 else seed.to(torch.int64)
    state = torch.zeros_like(seeds)
    for word in (seeds & LOW_32, (seeds >> 32) & LOW_32, positions.to(torch.int64) & LOW_32):
        state = mixed(state, word)
    state = mixed(state[:, None], columns.to(torch.int64) & LOW_32) ^ 16
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & LOW_32
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & LOW_32
    return (state ^ (state >> 16)).to(torch.uint32)


LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")
LIBRARY.define("murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor col_indices) -> Tensor")
LIBRARY.impl("murmur_hash32_cpu", murmur_hash32_cpu, "CPU")


def missing(name: str) -> Callable[..., NoReturn]:
    """A function for a name that is not there: importing it is fine, calling it is not."""

    def call(*_arguments: object, **_options: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in on this CPU")

    return call


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(name)


class Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Submodules whose names are those of this file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module of ours for the names below this package that are known."""
        del path, target
        package, _, name = fullname.rpartition(".")
        return importlib.util.spec_from_loader(fullname, self) if package == __name__ and name in SUBMODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill it: names that are not in it are looked up here."""
        vars(module).update(__getattr__=lambda name: getattr(sys.modules[__name__], name))


sys.meta_path.append(Submodules())
