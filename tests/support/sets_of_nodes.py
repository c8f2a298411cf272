"""Sets of nodes by their roots, and their numbers by definition."""

import numpy as np

from dask_simjoin.tasks.counts import component_roots


def some_sets(
    n: int, edges: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw roots (n,) of sets, which nodes take part (n,) bool, alone or with others,
    and their rows.
    """
    taking = rng.uniform(size=n) < 0.7
    left, right = rng.integers(0, max(n, 1), (2, edges if n else 0))
    both = taking[left] & taking[right]
    return (
        component_roots(n, left[both], right[both]),
        taking,
        rng.permutation(n).astype(np.int32),
    )


def numbers_of(parent: np.ndarray, taking: np.ndarray, order: np.ndarray) -> list[int]:
    """Return the numbers of the sets of nodes, by their least rows; -1 for nodes that
    take no part.
    """
    least = {
        int(root): int(order[parent == root].min())
        for root in np.unique(parent[taking])
    }
    number = {root: k for k, root in enumerate(sorted(least, key=least.__getitem__))}
    return [
        number[int(root)] if there else -1
        for root, there in zip(parent, taking, strict=True)
    ]
