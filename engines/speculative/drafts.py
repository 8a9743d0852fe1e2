"""Draft shapes: from the marginals of one denoising step to a tree of candidate tokens.

Knows tensors only. `chain` is the argmax of every place; `iid` are K joint drafts, the first of them the argmax chain
and the others are samples, merged into a trie. The drafts of `iid` are for rules that need no draft probabilities.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ROOT = -1
"""Parent of the nodes that follow the bonus token."""


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


def trie(drafts: list[list[int]]) -> DraftTree:
    """Merge drafts with common beginnings into one tree."""
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
        tree.leaves.append(node)
    return tree


def draft_chain(marginals: Tensor) -> DraftTree:
    """The argmax chain. marginals: [G, V] scores."""
    return trie([marginals.argmax(dim=-1).tolist()])


def draft_iid(marginals: Tensor, num_drafts: int, temperature: float, generator: torch.Generator) -> DraftTree:
    """The argmax chain and num_drafts - 1 joint samples, as a trie. marginals: [G, V] scores; temperature > 0."""
    law = torch.softmax(marginals.float() / temperature, dim=-1)
    sampled = torch.multinomial(law, num_drafts - 1, replacement=True, generator=generator)
    return trie([marginals.argmax(dim=-1).tolist(), *sampled.T.tolist()])


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
