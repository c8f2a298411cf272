"""What kernels are given, and what they write to."""

from __future__ import annotations

from dask_simjoin.metrics.types import Array

Side = tuple[Array, Array, Array]
"""The offsets, tokens and weights of a block's sets."""

Out = tuple[Array, Array, Array, Array, Array]
"""Where pairs are written: positions of both sides and overlaps; and weights of partners of each set."""

NEXT, FILLED, STAMP, DONE = range(4)
"""Of a search: its next set, how many are in lists, the number of its last visit, and pairs it wrote."""

TOTAL, LISTED, CANDIDATES, VERIFIED, PAIRS = range(5)
"""Of what is counted: the sum of products of weights, and the fields of `Counters`."""
