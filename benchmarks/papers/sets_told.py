"""Published results of the paper of joins of sets (Bellas & Gounaris), and the shapes
of its data sets.
"""

from __future__ import annotations

from typing import NamedTuple

from dask_simjoin.sets.methods import AllPairs, GroupJoin, PPJoin

PAPER = "sets"

METHODS = {"ALL": AllPairs(), "PPJ": PPJoin(words=0), "GRP": GroupJoin()}
"""The paper's three algorithms, without bitmaps on a CPU."""

WITH_BITMAPS = "PPJ with bitmaps"
"""The default of PPJoin on a CPU, which is not the paper's."""

THRESHOLDS = ("0.95", "0.9", "0.85", "0.8", "0.75", "0.7", "0.65", "0.6", "0.55", "0.5")
QUICK_THRESHOLDS = ("0.9", "0.7", "0.5")


class Shape(NamedTuple):
    """A data set of Table 3, and the sets that are drawn in its place.

    Attributes
    ----------
    rows, mean, universe
        Published: sets, their mean size, and different tokens.
    made : int
        Sets that are made; of tokens as many, times their share, where there are more
        than 100,000.
    exponent, tail : float
        Ours, as the figures of sizes have no numbers: of the tokens' frequencies, and
        of the gamma distribution of sizes (1: exponential, many small sets; 8: about
        the mean).
    small : bool
        Whether the paper counts its sets among those of up to 10 tokens: it prefers B,
        and C for others.
    """

    rows: float
    mean: float
    universe: float
    made: int
    exponent: float
    tail: float
    small: bool

    def tokens(self, rows: int) -> int:
        """Return the number of distinct tokens in a number of sets."""
        share = rows / self.rows if self.universe > 100_000 else 1.0
        return max(1000, int(self.universe * share))


SHAPES = {
    "AOL": Shape(1.0e7, 3, 3.9e6, 200_000, 0.8, 4.0, True),
    "BMS-POS": Shape(3.2e5, 6.5, 1657, 40_000, 0.8, 1.0, True),
    "DBLP": Shape(1.0e5, 88, 7205, 10_000, 0.7, 8.0, False),
    "ENRON": Shape(2.5e5, 135, 1.1e6, 10_000, 0.8, 1.0, False),
    "KOSARAK": Shape(6.1e5, 8, 4.1e4, 60_000, 1.0, 1.0, True),
    "LIVEJOURNAL": Shape(3.1e6, 36.5, 7.5e6, 30_000, 0.8, 1.0, False),
    "ORKUT": Shape(2.7e6, 120, 8.7e6, 10_000, 0.8, 1.0, False),
}

TABLE5 = {
    "ALL": (1, 1, 0, 1, 2, 3, 4, 4, 5, 3),
    "PPJ": (2, 2, 2, 4, 4, 3, 2, 2, 1, 3),
    "GRP": (4, 4, 5, 2, 1, 1, 1, 1, 1, 1),
}
"""Number of data sets where each algorithm is the best, by the thresholds above."""

TABLE4 = {
    # seconds of the join, of filtering and of serialization, and of verification
    "0.95": (233, 134, 96, 92),
    "0.9": (2815, 1892, 921, 698),
    "0.85": (11367, 8935, 2430, 2311),
}

NO_GAIN = ("ENRON", "KOSARAK", "ORKUT")
"""Fig. 10: the GPU brings these sets no tangible benefit at any threshold, and the
others none below 0.7.
"""

MOST = 2.6
"""The largest published speed-up, of larger DBLP sets (Fig. 11)."""


def winner_of_fig10(data: str, threshold: str) -> str:
    """Return whether the paper's text says that the GPU beats the CPU; it gives no
    numbers.
    """
    return "gpu" if float(threshold) < 0.7 and data not in NO_GAIN else "cpu"
