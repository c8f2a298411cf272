"""The float16 vectors of the filter on tensor cores, and a proof that the filter loses no pair.

Let a be a point, centered and scaled as in `dask_simjoin.engine.filters.bounds`.  Its vector h is a rounded
to float16.  Its error r = |a - h| is computed in float64 and rounded up.  A pair has
|a_i - a_j| <= E, where E is `outer`.  So with N = |h|**2

    N_i + N_j - 2<h_i, h_j>  <=  (E + r_i + r_j)**2  <=  T_i + T_j,     T = E**2/2 + 2 E r + 2 r**2

where the last step uses 2 r_i r_j <= r_i**2 + r_j**2.  T_i depends on one point only.  Tensor cores compute
Q = s_i + s_j + <h_i, h_j>, with s near (T - N)/2.  So Q >= 0 for every pair if s covers their rounding.

**Rounding.**  Products of float16 numbers are exact in float32.  Tensor cores add groups of 4 to 16 products
to the sum so far.  In each group, every summand is aligned to the largest one and truncated, at least 23 bits
below the leading bit.  The result is truncated again.  The vendor does not document this; see Fasi, Higham,
Mikaitis & Pranesh 2021, "Numerical behavior of NVIDIA tensor cores", section 4.

Let M bound all summands.  A group has m products and the sum so far.  Truncating these m + 1 summands and the
result errs by at most 2**-23 M each.  So K products err by at most 2**-23 M times K (1 + 2/4).

We assume twice that, g M with g = 3 K 2**-23, because the behavior is not documented.  A test measures the
error; it has run on an H200 (compute capability 9.0).  The paper's authors measured compute capabilities 7.0,
7.5 and 8.0.

Any products of coordinates add up to at most (N_i + N_j)/2, and |s| is at most a little more than (N + T)/2.
So M = P_i + P_j with P = N + T + 1 is large enough, and

    s = (T - N)/2 + g P + 2**-24 + 2**-30 |s|

keeps Q >= 0 for every pair.  The last two terms allow for storing s as a sum of three float16 numbers.  Each
of the three is s minus the numbers before it, rounded.  The remainder after the third is below 2**-33 |s|, or
below 2**-25 if numbers underflow.

**Sure pairs.**  Two points are a pair if |a_i - a_j| <= I = `inner`, so also if |h_i - h_j| <= I - r_i - r_j.
Now (I - r_i - r_j)**2 >= I**2 - 2 I (r_i + r_j).  So they are a pair if N_i + N_j - 2<h_i, h_j> <= G_i + G_j
with G = I**2/2 - 2 I r for each point.  If I < r_i + r_j, the right side is negative, so the condition never
holds.  In terms of Q the condition is Q >= v_i + v_j with v = (T - G)/2 + 2 g P + 2**-23 + 2**-29 |s|.

**Stored vectors.**  A vector is h, then zeros, then (s0, s1, s2, 0, 1, 1, 1, 0), where s0 + s1 + s2 is s.
The zeros make its length a multiple of 16.  A vector without a point has h = 0 and s0 = -60000, so its Q is
negative.

**Nearest neighbors.**  In searches each query has its own E, the distance of its furthest neighbor so far.
Let R be the largest r_j of the data.  Then (E + r_i + r_j)**2 <= T_i + T_j for

    T_i = E**2 + 2 E (r_i + R) + 2 r_i**2,    T_j = 2 r_j**2,

so vectors of data do not depend on E.  As E shrinks, only the query's s_i is computed again (`query_term`).
The rest is as above.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.metrics.norms import Index

TILE = 128
"""Points per tile. Each block of GPU threads compares the queries of two tiles."""

MAX_DIMS = 200
"""Maximum dimensions for kernels that keep the vectors of queries in registers."""

STAGE = 512
"""Pairs that a warp collects in shared memory before it writes them. A block has 8 warps."""

NOWHERE = -60000.0
"""The number s0 of a vector without a point. It makes every product with this vector negative."""


def width(dims: int) -> int:
    """Return the length of a stored vector: coordinates, 8 more numbers, and padding to a multiple of 16."""
    return -(-(dims + 8) // 16) * 16


def shared_bytes(dims: int, *, counting: bool = False) -> int:
    """Return the bytes of dynamic shared memory for a block of `tensor.cu`."""
    return 2 * TILE * (width(dims) + 8) * 2 + (0 if counting else 8 * STAGE * 4)


def shared_in_all(dims: int) -> int:
    """Return all bytes of shared memory for a block: static arrays are lists of tiles and a box."""
    return shared_bytes(dims) + 9216 + 8 * dims


def search_bytes(dims: int, listed: int = 0) -> int:
    """Return the bytes of dynamic shared memory for a block of a neighbor search.

    `listed`: neighbors per query in shared memory.
    """
    return 2 * TILE * (width(dims) + 8) * 2 + 2 * TILE * listed * 16


def shared_in_search(dims: int, listed: int = 0) -> int:
    """Return all bytes of shared memory for a search's block, including static arrays."""
    return search_bytes(dims, listed) + 15360 + 8 * dims


def rows(n: int) -> int:
    """Return the number of vectors for `n` points: padded to full blocks of queries."""
    return -(-n // (2 * TILE)) * 2 * TILE


def make_vectors(y: np.ndarray, bounds: Bounds) -> Index:
    """Return the vectors of points, and the terms v that show where pairs are sure.

    Parameters
    ----------
    y : array (n, d), float64
        Points in the index's order.
    bounds : Bounds

    Returns
    -------
    dict of arrays
        ``vectors`` (rows, width), float16, where rows is n rounded up to a multiple of 256.
        ``vectors_sure`` (rows,), float32: for each point the largest v in its tile.
    """
    vectors, norm, r = _rounded(bounds.scaled(y))
    n, k = len(y), vectors.shape[1]
    outer, inner = bounds.outer, bounds.inner
    t = outer**2 / 2 + 2 * outer * r + 2 * r * r
    g = 3 * k * 2.0**-23
    p = norm + t + 1
    s = (t - norm) / 2 + g * p + 2.0**-24
    s += 2.0**-30 * np.abs(s)
    sure = (t - inner**2 / 2 + 2 * inner * r) / 2 + 2 * g * p + 2.0**-23 + 2.0**-29 * np.abs(s)
    _finish(vectors, n, s)
    padded = np.zeros(len(vectors), np.float32)
    # the kernel adds two of these in float32, and 2**-20 covers its rounding
    padded[:n] = sure * (1 + 2.0**-20)
    return {"vectors": vectors, "vectors_sure": np.repeat(padded.reshape(-1, TILE).max(axis=1), TILE)}


def make_nearest_vectors(y: np.ndarray, bounds: Bounds) -> Index:
    """Return the vectors of points for neighbor searches, and N and r of each.

    Parameters
    ----------
    y : array (n, d), float64
        Points in the index's order.
    bounds : Bounds

    Returns
    -------
    dict of arrays
        ``vectors`` (rows, width), float16, where rows is n rounded up to a multiple of 256.  ``norm``,
        ``error`` (n,), float64: N and r.  ``most_error`` (1,), float64: the largest r.
    """
    vectors, norm, r = _rounded(bounds.scaled(y))
    t = 2 * r * r
    g = 3 * vectors.shape[1] * 2.0**-23
    s = (t - norm) / 2 + g * (norm + t + 1) + 2.0**-24
    s += 2.0**-30 * np.abs(s)
    _finish(vectors, len(y), s)
    return {"vectors": vectors, "norm": norm, "error": r, "most_error": r.max(keepdims=True)}


def query_term(outer: Any, norm: Any, error: Any, most_error: float, width: int) -> Any:
    """Compute s_i of queries, by the kernel's formula.

    `outer`: E. `norm`, `error`: N and r of the queries. `most_error`: R. `width`: length of a vector.
    """
    t = outer**2 + 2 * outer * (error + most_error) + 2 * error**2
    s = (t - norm) / 2 + 3 * width * 2.0**-23 * (norm + t + 1) + 2.0**-24
    return s + 2.0**-30 * abs(s)


def _rounded(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the vectors, with their last eight numbers still 0, and N and r of each point."""
    n, d = a.shape
    vectors = np.zeros((rows(n), width(d)), np.float16)
    vectors[:n, :d] = a
    h = vectors[:n, :d].astype(np.float64)
    norm = (h * h).sum(axis=1)
    h -= a
    h *= h
    # 2**-40 covers the rounding of the sum, 2**-50 the rounding of scaled points
    r = np.sqrt(h.sum(axis=1)) * (1 + 2.0**-40) + np.sqrt(norm) * 2.0**-50
    return vectors, norm, r


def _finish(vectors: np.ndarray, n: int, s: np.ndarray) -> None:
    """Write the last eight numbers of each vector. `s` (n,): term s of the points; it is overwritten."""
    k = vectors.shape[1]
    vectors[n:, k - 8] = NOWHERE
    for place in range(3):
        vectors[:n, k - 8 + place] = s
        s -= vectors[:n, k - 8 + place].astype(np.float64)
    vectors[:, k - 4 : k - 1] = 1
