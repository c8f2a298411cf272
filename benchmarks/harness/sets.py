"""Sets of tokens of the shapes that papers measure, as blocks that kernels take."""

from __future__ import annotations

import numpy as np

from dask_simjoin.sets.token_ids import SetBlock

SHAPES = {
    # sets, mean size, tokens, exponent of the token frequencies
    "queries": (1_000_000, 3.0, 400_000, 0.8),
    "texts": (64_000, 130.0, 7_000, 0.7),
}
"""Search queries of few words, as in AOL; 2-grams of texts, as in DBLP and, by their
sizes, ENRON.
"""

COPIES = 0.2
"""This share of the sets are copies of another one, except for some tokens."""

CHANGED = 0.4
"""At most this share of a copy's tokens differ from the original's."""


def make_sets(kind: str, number: int | None = None) -> SetBlock:
    """Draw sets of a shape: this many before equal ones are collapsed, or as many as
    the shape has.
    """
    usual, mean, universe, exponent = SHAPES[kind]
    return sets_like(
        number or usual, mean, universe, exponent, 8.0 if mean >= 10 else None
    )


def sets_like(
    number: int, mean: float, universe: int, exponent: float, tail: float | None
) -> SetBlock:
    """Draw sets; `tail` is the shape of the gamma distribution of sizes, or None for
    Poisson's.
    """
    rng = np.random.default_rng(0)
    if tail is None:
        sizes = 1 + rng.poisson(mean - 1, number)
    else:
        sizes = 1 + rng.gamma(tail, mean / tail, number).astype(np.int64)
    frequencies = 1.0 / (np.arange(universe) + 20.0) ** exponent
    totals = np.cumsum(frequencies / frequencies.sum())
    rows = np.repeat(np.arange(number), sizes)
    tokens = np.searchsorted(totals, rng.random(len(rows))).clip(0, universe - 1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    copies = rng.choice(number, int(COPIES * number), replace=False)
    models = rng.integers(0, number, len(copies))
    share = CHANGED * rng.random(len(copies))
    for copy, model, changed in zip(
        copies.tolist(), models.tolist(), share.tolist(), strict=True
    ):
        one, other = (
            tokens[starts[copy] : starts[copy + 1]],
            tokens[starts[model] : starts[model + 1]],
        )
        kept = min(len(one), len(other) - int(changed * len(other)))
        one[:kept] = other[:kept]
    return block_of(rows, tokens, universe)


def block_of(rows: np.ndarray, tokens: np.ndarray, universe: int) -> SetBlock:
    """Put sets, given as pairs of rows and tokens, in the order of joins, equal ones
    collapsed.
    """
    both = np.sort(rows * universe + tokens)
    rows, tokens = np.divmod(both[np.append(True, both[1:] != both[:-1])], universe)
    frequency = np.bincount(tokens, minlength=universe)
    rank = np.empty(universe, np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(universe)
    rank -= np.count_nonzero(frequency == 0)
    rows, tokens = np.divmod(np.sort(rows * universe + rank[tokens]), universe)
    sizes = np.bincount(rows)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    offsets, found, weights = [np.zeros(1, np.int64)], [], []
    for size in np.unique(sizes[sizes > 0]).tolist():
        first = starts[:-1][sizes == size]
        table = tokens[first[:, None] + np.arange(size)]
        # big-endian bytes compare like the tokens
        ordered = table.astype(">i4").view(f"V{4 * size}").ravel()
        table = table[np.argsort(ordered)]
        new = np.concatenate([[True], (table[1:] != table[:-1]).any(axis=1)])
        weights.append(np.diff(np.append(np.flatnonzero(new), len(table))))
        found.append(table[new].ravel())
        offsets.append(offsets[-1][-1] + size * np.arange(1, np.count_nonzero(new) + 1))
    return {
        "offsets": np.concatenate(offsets).astype(np.int64),
        "tokens": np.concatenate(found).astype(np.int32),
        "universe": int(tokens.max()) + 1,
        "weights": np.concatenate(weights).astype(np.int64),
    }
