"""Draft shapes: from the marginals of a denoised window to trees of candidate tokens.

Knows tensors only. `chain` is one draft, `iid` are K joint drafts merged into a trie, `tree` is the argmax chain and
then, best first, the nodes of largest product of marginals (DDTree, arXiv 2604.12989); behind its forks, marginals that
know the path may take the place of those that do not. A draft temperature of 0 takes the argmax of every place.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

ROOT = -1
"""Parent of the nodes that follow the bonus token."""
Path = tuple[int, ...]
"""Tokens from the first place downwards."""
NOWHERE: Mapping[Path, Tensor] = MappingProxyType({})


class DraftTree(NamedTuple):
    """Candidate tokens below the bonus token; parents come before their children.

    tokens:   N token ids
    parents:  N indices of nodes, ROOT for the first place
    depths:   N, 1 for the first place
    leaves:   for each draft in order the index of its last node
    """

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    leaves: list[int]

    def path(self, node: int) -> list[int]:
        """Nodes from the first place down to `node`."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def children(self) -> list[dict[int, int]]:
        """For the bonus token (row 0) and every node (row 1 + n): which node carries which token below it."""
        below: list[dict[int, int]] = [{} for _ in range(len(self.tokens) + 1)]
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            below[parent + 1][token] = node
        return below

    def first(self, count: int) -> "DraftTree":
        """The tree of the first `count` nodes, one draft per leaf of it."""
        parents = self.parents[:count]
        inner = set(parents)
        leaves = [node for node in range(len(parents)) if node not in inner]
        return DraftTree(self.tokens[:count], parents, self.depths[:count], leaves)


NO_DRAFT = DraftTree([], [], [], [])


def trie(drafts: Sequence[Sequence[int]]) -> DraftTree:
    """Merge drafts with common beginnings into one tree; empty drafts are left out."""
    tree = DraftTree([], [], [], [])
    below: dict[tuple[int, int], int] = {}
    for draft in drafts:
        node = ROOT
        for depth, token in enumerate(draft, start=1):
            child = below.get((node, token))
            if child is None:
                child = below[node, token] = len(tree.tokens)
                tree.tokens.append(token)
                tree.parents.append(node)
                tree.depths.append(depth)
            node = child
        if draft:
            tree.leaves.append(node)
    return tree


def draft_chain(marginals: Tensor) -> DraftTree:
    """The most likely token of every place. marginals: [G, V] scores."""
    return trie([marginals.argmax(dim=-1).tolist()])


def draft_samples(laws: Tensor, count: int, generator: torch.Generator, *, argmax: Tensor | None = None) -> DraftTree:
    """`count` joint drafts as a trie, each place drawn from its own law.

    Shapes:
        laws:   [G, V] probabilities
        argmax: [G, V] scores whose argmax chain takes the place of the first draft; rules that weigh the drafter's law
                are exact for true samples only, so for them nothing is swapped in
    """
    swapped = [] if argmax is None else [argmax.argmax(dim=-1).tolist()]
    drawn = torch.multinomial(laws, count - len(swapped), replacement=True, generator=generator)
    return trie(swapped + drawn.T.tolist())


class RankedTree(NamedTuple):
    """A tree with the drafter's log-probability of each node's path."""

    tree: DraftTree
    path_logs: list[float]

    def forks(self, most: int, depth: int) -> list[Path]:
        """Tokens from the first place down to the likeliest nodes that have siblings and are not as deep as `depth`.

        What follows them depends on which of them it is, and marginals cannot say that.
        """
        tree, siblings = self.tree, Counter(self.tree.parents)
        forks = [n for n, parent in enumerate(tree.parents) if siblings[parent] > 1 and tree.depths[n] < depth]
        forks.sort(key=lambda node: -self.path_logs[node])
        return [tuple(tree.tokens[on] for on in tree.path(node)) for node in forks[:most]]


def ranked_chain(marginals: Tensor) -> RankedTree:
    """The argmax chain with its log-probabilities. marginals: [G, V] scores."""
    best = torch.log_softmax(marginals.float(), dim=-1).max(dim=-1)
    return RankedTree(trie([best.indices.tolist()]), best.values.cumsum(dim=-1).tolist())


def draft_tree(
    marginals: Tensor, nodes: int, *, floor: float | None = None, below: Mapping[Path, Tensor] = NOWHERE
) -> RankedTree:
    """The argmax chain, then the nodes of largest product of marginals, best first, up to `nodes` in all.

    Every next node is either the next most likely sibling of one that is there or its most likely child, so a heap
    of these finds the best ones without looking at the others.

    Args:
        marginals: [G, V] scores
        nodes: node budget, at least G without a floor
        floor: log-probability below which no node is wanted. The chain, too, then grows only as far as it is among the
            best: every beginning of the result is the best tree of its size
        below: scores [G - len(path), V] of the places behind some paths, which count there instead of `marginals`
    """
    known = {path: ranked(scores, nodes, floor) for path, scores in below.items()}
    grown = Growth(ranked(marginals, nodes, floor), known)
    if floor is None:
        node = ROOT
        for _ in range(marginals.shape[0]):
            node = grown.add(node, 0)
    else:
        grown.offer(ROOT, 0)
    while grown.heap and len(grown.path_logs) < nodes:
        loss, _, parent, rank = heapq.heappop(grown.heap)
        if floor is not None and -loss < floor:
            break
        grown.offer(grown.add(parent, rank), 0)
    return RankedTree(grown.tree.first(len(grown.path_logs)), grown.path_logs)


class Ranked(NamedTuple):
    """For every place the most likely tokens in order, and their log-probabilities."""

    tokens: list[list[int]]
    logs: list[list[float]]


def ranked(marginals: Tensor, nodes: int, floor: float | None) -> Ranked:
    """The tokens of every place that a tree of `nodes` nodes above the floor could hold. marginals: [G, V] scores."""
    logs = torch.log_softmax(marginals.float(), dim=-1)
    widest = marginals.shape[1] if floor is None else max(1, int((logs >= floor).sum(dim=-1).amax()))
    best = logs.topk(min(nodes, widest), dim=-1)
    return Ranked(best.indices.tolist(), best.values.tolist())


class Growth:
    """A tree as it grows, and the heap of the nodes that could be next."""

    def __init__(self, first: Ranked, below: Mapping[Path, Ranked]) -> None:
        self.below = below
        self.tree = DraftTree([], [], [], [])
        self.path_logs: list[float] = []
        self.paths: list[Path] = []
        self.laws = [(first, 0)]  # of the children of the bonus token (row 0) and of every node: whose, and which place
        self.heap: list[tuple[float, int, int, int]] = []  # -log of the path, depth, parent, rank among its siblings

    def above(self, parent: int) -> float:
        """Log-probability of the path to `parent`."""
        return 0.0 if parent == ROOT else self.path_logs[parent]

    def offer(self, parent: int, rank: int) -> None:
        """Put a node that could be next on the heap."""
        (_, logs), place = self.laws[parent + 1]
        if place < len(logs) and rank < len(logs[place]) and logs[place][rank] > float("-inf"):
            depth = 0 if parent == ROOT else self.tree.depths[parent]
            heapq.heappush(self.heap, (-self.above(parent) - logs[place][rank], depth, parent, rank))

    def add(self, parent: int, rank: int) -> int:
        """Add a node and offer its next sibling; returns the node."""
        law, place = self.laws[parent + 1]
        token, log = law.tokens[place][rank], law.logs[place][rank]
        path = (*(() if parent == ROOT else self.paths[parent]), token)
        self.tree.tokens.append(token)
        self.tree.parents.append(parent)
        self.tree.depths.append(len(path))
        self.path_logs.append(self.above(parent) + log)
        self.paths.append(path)
        self.laws.append((self.below[path], 0) if path in self.below else (law, place + 1))
        self.offer(parent, rank + 1)
        return len(self.path_logs) - 1


def ancestors_mask(tree: DraftTree, visible: int, dtype: torch.dtype) -> Tensor:
    """Additive mask of a verify forward: every row sees the prefix, the bonus token, its ancestors and itself.

    Shapes:
        visible: number of committed key slots before the bonus token
        returns: [1 + N, visible + 1 + N]
    """
    rows = len(tree.tokens) + 1
    own = torch.full((rows, rows), float("-inf"), dtype=dtype)
    own[:, 0] = 0.0
    if tree.parents == list(range(-1, rows - 2)):  # a chain is the plain causal triangle
        own.triu_(1)
    else:
        seen = own.numpy() if dtype == torch.float32 else own.float().numpy()
        for node, parent in enumerate(tree.parents):
            seen[node + 1, 1:] = seen[parent + 1, 1:]
            seen[node + 1, node + 1] = 0.0
        own = torch.from_numpy(seen).to(dtype)
    return torch.cat((torch.zeros(rows, visible, dtype=dtype), own), dim=1)
