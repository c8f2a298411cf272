"""The float16 vectors of the filter on tensor cores, its kernels, and a proof that it
loses no pair.

Let a be a point, centered and scaled as in `dask_simjoin.engine.filters.bounds`.  Its
vector h is a rounded to float16.  Its error r = |a - h| is computed in float64 and
rounded up.  A pair has
|a_i - a_j| <= E, where E is `outer`.  So with N = |h|**2

    N_i + N_j - 2<h_i, h_j>  <=  (E + r_i + r_j)**2  <=  T_i + T_j,     T = E**2/2 + 2 E r + 2 r**2

where the last step uses 2 r_i r_j <= r_i**2 + r_j**2.  T_i depends on one point only.
Tensor cores compute Q = s_i + s_j + <h_i, h_j>, with s near (T - N)/2.  So Q >= 0 for
every pair if s covers their rounding.

**Rounding.**  Products of float16 numbers are exact in float32.  Tensor cores add
groups of 4 to 16 products to the sum so far.  In each group, every summand is aligned
to the largest one and truncated, at least 23 bits below the leading bit.  The result is
truncated again.  The vendor does not document this; see Fasi, Higham, Mikaitis &
Pranesh 2021, "Numerical behavior of NVIDIA tensor cores", section 4.

Let M bound all summands.  A group has m products and the sum so far.  Truncating these
m + 1 summands and the result errs by at most 2**-23 M each.  So K products err by at
most 2**-23 M times K (1 + 2/4).

We assume twice that, g M with g = 3 K 2**-23, because the behavior is not documented.
A test measures the error; it has run on an H200 (compute capability 9.0).  The paper's
authors measured compute capabilities 7.0, 7.5 and 8.0.

Any products of coordinates add up to at most (N_i + N_j)/2, and |s| is at most a little
more than (N + T)/2. So M = P_i + P_j with P = N + T + 1 is large enough, and

    s = (T - N)/2 + g P + 2**-24 + 2**-30 |s|

keeps Q >= 0 for every pair.  The last two terms allow for storing s as a sum of three
float16 numbers.  Each of the three is s minus the numbers before it, rounded.  The
remainder after the third is below 2**-33 |s|, or below 2**-25 if numbers underflow.

**Sure pairs.**  Two points are a pair if |a_i - a_j| <= I = `inner`, so also if |h_i -
h_j| <= I - r_i - r_j. Now (I - r_i - r_j)**2 >= I**2 - 2 I (r_i + r_j).  So they are a
pair if N_i + N_j - 2<h_i, h_j> <= G_i + G_j with G = I**2/2 - 2 I r for each point.  If
I < r_i + r_j, the right side is negative, so the condition never holds.  In terms of Q
the condition is Q >= v_i + v_j with v = (T - G)/2 + 2 g P + 2**-23 + 2**-29 |s|.

**Stored vectors.**  A vector is h, then zeros, then (s0, s1, s2, 0, 1, 1, 1, 0), where
s0 + s1 + s2 is s. The zeros make its length a multiple of 16.  A vector without a point
has h = 0 and s0 = -60000, so its Q is negative.

**Nearest neighbors.**  In searches each query has its own E, the distance of its
furthest neighbor so far. Let R be the largest r_j of the data.  Then (E + r_i + r_j)**2
<= T_i + T_j for

    T_i = E**2 + 2 E (r_i + R) + 2 r_i**2,    T_j = 2 r_j**2,

so vectors of data do not depend on E.  As E shrinks, only the query's s_i is computed
again (`query_term`). The rest is as above.

**Long vectors.**  Kernels read vectors slice by slice if they are too long for
registers.  They need no other bounds.  Only g = 3 K 2**-23 depends on the number K of
products.  It is 1.5e-4 for 384 dimensions and 7.4e-4 for 2,048.  The bound neglects the
square of g.  This is safe, because g is twice as large as necessary.  The term s is
added after the coordinates here too, so partial sums stay in the assumed range.  The
norm N and r are sums of K squares in float64.  Their relative error is K 2**-53 <
2**-41, less than the slack that is added to them.

**When it pays.**  The filter passes candidates up to a distance somewhat above E, and
float64 then refuses those that are not pairs.  That distance is about

    sqrt((E + 2 r)**2 + 4 g N)

for points of squared norm N; in high dimensions g dominates.  For unit vectors of 384
dimensions it is 1.004 E for a cosine distance of 0.05, and 1.14 E for 0.001.  The
filter is used if this distance is at most `MAX_PASS_RATIO` times E.

For 100,000 points of 384 dimensions on an H200, this filter was 49 times as fast as the
float32 filter. Float64 decided at least 300 million candidates per second.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.metrics.norms import Index

TILE = 128
"""Points per tile. Each block of GPU threads compares the queries of two tiles."""

TENSOR_DIMS = 9
"""Minimum dimensions for tensor cores, and among their kernels for `tensor_hopper.cu`.

With fewer dimensions they do not pay, because boxes exclude most candidates.
"""

MAX_DIMS = 200
"""Maximum dimensions for kernels that keep the vectors of queries in registers. Joins do
so in fewer dimensions: see `program`.
"""

STAGE = 512
"""Pairs that a warp collects in shared memory before it writes them. A block has 8
warps.
"""


def width(dims: int) -> int:
    """Return the length of a stored vector: coordinates and 8 more numbers, padded to a
    multiple of 16.
    """
    return -(-(dims + 8) // 16) * 16


def shared_bytes(dims: int, *, counting: bool = False) -> int:
    """Return the bytes of dynamic shared memory for a block of `tensor.cu`."""
    return 2 * TILE * (width(dims) + 8) * 2 + (0 if counting else 8 * STAGE * 4)


def shared_in_all(dims: int) -> int:
    """Return all bytes of shared memory for a block of `tensor.cu`.

    They include static arrays: lists of tiles, and a box.
    """
    return shared_bytes(dims) + 9216 + 8 * dims


def search_bytes(dims: int, listed: int = 0) -> int:
    """Return the bytes of dynamic shared memory for a block of a neighbor search.

    `listed`: number of neighbors per query that are kept in shared memory.
    """
    return 2 * TILE * (width(dims) + 8) * 2 + 2 * TILE * listed * 16


def shared_in_search(dims: int, listed: int = 0) -> int:
    """Return all bytes of shared memory for a search's block, including static arrays."""
    return search_bytes(dims, listed) + 15360 + 8 * dims


def rows(n: int) -> int:
    """Return the number of vectors for `n` points: padded to full blocks of queries."""
    return -(-n // (2 * TILE)) * 2 * TILE


MAX_PASS_RATIO = 2.0
"""The filter is not used if typical candidates pass it up to a distance above this
multiple of E.
"""

SLICE, ALIGNED = 64, 1024
"""For `tensor_hopper.cu`: numbers per slice of a vector, and alignment of slices in
bytes.
"""

SLICINGS = ((4, 3), (2, 3), (2, 2))
"""Ways to slice vectors, fastest first: (numbers per slice / 16, slices in shared
memory).
"""


def sliced_shared_bytes(slicing: tuple[int, int], *, counting: bool = False) -> int:
    """Return the bytes of dynamic shared memory for a block of `tensor_wide.cu`."""
    depth, stages = slicing
    return stages * 3 * TILE * 16 * depth * 2 + (0 if counting else 8 * STAGE * 4)


def sliced_shared_in_all(dims: int, slicing: tuple[int, int]) -> int:
    """Return all bytes of shared memory for a block of `tensor_wide.cu`, including
    static arrays.
    """
    return sliced_shared_bytes(slicing) + 9216 + 8 * dims


def program(
    dims: int, shared: int, *, counting: bool = False
) -> tuple[str, dict[str, int], int] | None:
    """Return the kernel for `dims` dimensions, its constants, and its bytes of dynamic
    shared memory.

    `shared`: bytes of shared memory that a block may use. None means that the kernel
    needs more than that.
    """
    constants = {"WIDTH": width(dims)}
    # with long vectors, too few registers are left: see decision 19
    if dims < 128:
        if shared_in_all(dims) > shared:
            return None
        return "tensor", constants, shared_bytes(dims, counting=counting)
    slicing = next(
        (one for one in SLICINGS if sliced_shared_in_all(dims, one) <= shared), None
    )
    if slicing is None:
        return None
    constants |= dict(zip(("DEPTH", "STAGES"), slicing, strict=True))
    return "tensor_wide", constants, sliced_shared_bytes(slicing, counting=counting)


def hopper_program(
    dims: int, shared: int, *, counting: bool = False
) -> tuple[str, dict[str, int], int] | None:
    """Return the kernel for compute capability 9.0, `tensor_hopper.cu`: see `program`.

    RESIDENT: shared memory has room for the vectors of 256 queries and for slices of
    points.  Vectors are then so short that testing sums takes longer than the products.
    So there are 16 warps instead of 8, and while some test, others multiply.  On an
    H200, this made joins of 32 and 64 dimensions 13 and 17 % faster.
    """
    # static arrays: lists of tiles, counts of queries, boxes
    numbers, static = width(dims), 10496 + 8 * dims
    slices, tile, slice_bytes = (
        -(-numbers // SLICE),
        TILE * sliced_width(numbers) * 2,
        TILE * SLICE * 2,
    )
    for resident, stages in ((1, 4), (1, 3), (0, 4), (0, 3), (0, 2)):
        vectors = (
            2 * tile + stages * min(tile, slice_bytes)
            if resident
            else stages * 3 * slice_bytes
        )
        warps, buffer = (16, STAGE // 2) if resident else (8, STAGE)
        size = ALIGNED + vectors + (0 if counting else warps * buffer * 4)
        if size + static <= shared:
            constants = {
                "WIDTH": numbers,
                "STAGES": stages,
                "LATER": steps_later(slices, stages),
                "SHARE": clusters_of_queries(numbers),
                "RESIDENT": resident,
                "WARPS": warps,
                "BUFFER": buffer,
            }
            return "tensor_hopper", constants, size
    return None


def sliced_width(width: int) -> int:
    """Return the padded length of a vector in `tensor_hopper.cu`: its last slice has
    16, 32 or 64 numbers.
    """
    rest = (width - 1) % SLICE + 1
    return width if rest <= SLICE // 2 else width - rest + SLICE


def clusters_of_queries(width: int) -> int:
    """Return how many clusters of thread blocks of `tensor_hopper.cu` share a block of
    queries.

    On an H200, two clusters instead of one made joins of 1,024 and 1,536 dimensions 2
    and 6 % faster. They made joins of 768 and 2,048 dimensions 4 and 2 % slower.
    """
    return 2 if 1024 <= width < 2048 else 1


def steps_later(slices: int, stages: int) -> int:
    """Return how many more tiles a block of `tensor_hopper.cu` compares after its
    output has become full.

    Call the result n. All warps of a block must stop at the same tile. A warp that
    fills the output at its tile j announces that tile j + n will be the first one left
    out. Every warp must see this before it writes tile j + n.

    Before that, a warp multiplies the last slice of tile j + n, number (j + n) * slices
    + slices - 1. This slice overwrote the slice that is `stages` numbers earlier, so
    all warps had released that one. A warp that has released a slice of tile j + 1 has
    written tile j, and announced its stop. So n is large enough if the earlier slice is
    number (j + 1) * slices or later. This means n >= (stages + 1) / slices.
    """
    return -(-(stages + 1) // slices)


def pays(dims: int, outer: float, typical: float) -> bool:
    """Return whether the filter pays. `typical`: typical scaled distance of points from
    the center.
    """
    g = 3 * width(dims) * 2.0**-23
    return (
        math.hypot(outer + 2 * 2.0**-12 * typical, 2 * math.sqrt(g) * typical)
        <= MAX_PASS_RATIO * outer
    )


def make_vectors(y: np.ndarray, bounds: Bounds) -> Index:
    """Return the vectors of points, and their terms v. A sum Q that is at least v_i +
    v_j proves a pair.

    `y` (n, d): points in the index's order.  ``vectors`` (rows, width), float16, where
    rows is n rounded up to a multiple of 256.  ``vectors_sure`` (rows,), float32: for
    each point the largest v in its tile.
    """
    vectors, norm, r = _rounded(bounds.scaled(y))
    n, k = len(y), vectors.shape[1]
    outer, inner = bounds.outer, bounds.inner
    t = outer**2 / 2 + 2 * outer * r + 2 * r * r
    g = 3 * k * 2.0**-23
    p = norm + t + 1
    s = (t - norm) / 2 + g * p + 2.0**-24
    s += 2.0**-30 * np.abs(s)
    sure = (
        (t - inner**2 / 2 + 2 * inner * r) / 2
        + 2 * g * p
        + 2.0**-23
        + 2.0**-29 * np.abs(s)
    )
    _finish(vectors, n, s)
    padded = np.zeros(len(vectors), np.float32)
    # the kernel adds two of these in float32, and 2**-20 covers its rounding
    padded[:n] = sure * (1 + 2.0**-20)
    return {
        "vectors": vectors,
        "vectors_sure": np.repeat(padded.reshape(-1, TILE).max(axis=1), TILE),
    }


def make_nearest_vectors(y: np.ndarray, bounds: Bounds) -> Index:
    """Return the vectors of points for neighbor searches, and N and r of each point.

    `y` and ``vectors`` are as in `make_vectors`.  ``norm``, ``error`` (n,), float64: N
    and r. ``most_error`` (1,), float64: the largest r.
    """
    vectors, norm, r = _rounded(bounds.scaled(y))
    t = 2 * r * r
    g = 3 * vectors.shape[1] * 2.0**-23
    s = (t - norm) / 2 + g * (norm + t + 1) + 2.0**-24
    s += 2.0**-30 * np.abs(s)
    _finish(vectors, len(y), s)
    return {
        "vectors": vectors,
        "norm": norm,
        "error": r,
        "most_error": r.max(keepdims=True),
    }


def query_term(outer: Any, norm: Any, error: Any, most_error: float, width: int) -> Any:
    """Compute s_i of queries, by the kernel's formula.

    `outer`: E. `norm`, `error`: N and r of the queries. `most_error`: R. `width`:
    length of a vector.
    """
    t = outer**2 + 2 * outer * (error + most_error) + 2 * error**2
    s = (t - norm) / 2 + 3 * width * 2.0**-23 * (norm + t + 1) + 2.0**-24
    return s + 2.0**-30 * abs(s)


def _rounded(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the vectors, with their last eight numbers still 0, and N and r of each
    point.
    """
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
    """Write the last eight numbers of each vector. `s` (n,): term s of the points; it
    is overwritten.
    """
    k = vectors.shape[1]
    # this s0 makes Q negative for every pair with a vector without a point
    vectors[n:, k - 8] = -60000.0
    for place in range(3):
        vectors[:n, k - 8 + place] = s
        s -= vectors[:n, k - 8 + place].astype(np.float64)
    vectors[:, k - 4 : k - 1] = 1
