"""Helpers that work on NumPy and CuPy arrays without importing CuPy; and narrow points.

Narrow points are float32 numbers that give the float64 coordinates of points exactly.
Joins on GPUs decide pairs by float64 coordinates, but most tables store embeddings as
float32. So an index keeps the float32 numbers, in half of the memory. Kernels compute
the float64 coordinates when they decide a pair, so the results are the same to the bit.

The metric computes the coordinates of a row from its numbers x: they are x itself, or
for cosine ``x / length``, rounded to float64. See
`dask_simjoin.metrics.distances.Metric.divided`. Narrow points are an array of one of
two kinds:

- float32 (n, d): the coordinates.
- uint32 (n, d + 2): the bits of d float32 numbers, then the lower and the upper half of
  the row's length. The row is divided by its length, a float64 number. The dtype is an
  integer type because the array holds bits, which must not be used as coordinates.

Points are stored like this only if all their coordinates can be recomputed without any
difference. The values are checked, not the dtypes. So integers, float64 columns and
lists can become narrow points, too.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from dask_simjoin.metrics.norms import Array, ArrayModule, Frame, Ids, Series

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Item size in bytes -> unsigned dtype of that size. Values of any dtype are copied as
these integers.
"""


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def module_of(array: Array) -> ArrayModule:
    """Return the module of an array: NumPy or CuPy."""
    return sys.modules["cupy"] if _library(array) == "cupy" else np


def to_host(array: Array) -> np.ndarray:
    """Return an array as a NumPy array; only arrays on a GPU are copied."""
    return array.get() if _library(array) == "cupy" else np.asarray(array)


def all_of(flags: Array) -> bool:
    """Return whether all flags (n,) are set.

    CuPy compiles `any`, `all` and sums of booleans on first use, which takes seconds
    for each size class. We use the minimum and maximum of bytes instead, because these
    are compiled already. `any_of` and `all_of_rows` use them, too.
    """
    if module_of(flags) is np:
        return bool(flags.all())
    return not len(flags) or bool(flags.view(np.uint8).min())


def any_of(flags: Array) -> bool:
    """Return whether at least one of the flags (n,) is set."""
    if module_of(flags) is np:
        return bool(flags.any())
    return bool(len(flags)) and bool(flags.view(np.uint8).max())


def all_of_rows(flags: Array) -> Array:
    """Return for each row of flags (n, k) whether all its flags are set (n,)."""
    xp = module_of(flags)
    if xp is np or not flags.size:
        return flags.all(axis=1) if xp is np else xp.ones(len(flags), bool)
    return flags.view(np.uint8).min(axis=1).view(bool)


def count_of(flags: Array) -> int:
    """Count the flags (n,) that are set."""
    return int(flags.sum() if module_of(flags) is np else flags.astype(np.int64).sum())


def tally(places: Array, number: int, weights: Array | None = None) -> Array:
    """Return how often each index from 0 to `number` - 1 occurs in `places` (number,),
    int64.

    With `weights`, return the sum of the weights of each index instead (float64).
    """
    xp, kind = module_of(places), np.int64 if weights is None else np.float64
    if xp is np:
        return np.bincount(places, weights, minlength=number).astype(kind, copy=False)
    found = xp.zeros(number, kind)
    if weights is None:
        count_up(found, places)
    elif len(places):
        _adder(True)(places, weights, found)
    return found


def count_up(counts: Array, *places: Array) -> None:
    """Count how often each index from 0 to n - 1 occurs in the arrays `places`. Add
    this to `counts` (n,), int64.
    """
    for some in places:
        if module_of(counts) is np:
            counts += np.bincount(some, minlength=len(counts))
        elif len(some):
            _adder(False)(some, counts)


def lower_to(low: Array, places: Array, labels: Array) -> None:
    """Lower the entries of `low` at `places` to labels; arrays are int64."""
    if module_of(low) is np:
        np.minimum.at(low, places, labels)
    elif len(places):
        body = "atomicMin(&low[place], label)"
        _elementwise("S place, int64 label", "raw int64 low", body, "simjoin_lower_to")(
            places, labels, low
        )


def _adder(weighted: bool) -> Any:
    """Return a kernel that replaces CuPy's `bincount`.

    `bincount` checks for negative numbers, so it also compiles `any`.
    """
    body = f"atomicAdd(&sum[place], U({'weight' if weighted else '1'}))"
    name = "simjoin_tally" if weighted else "simjoin_count"
    return _elementwise(
        "S place, T weight" if weighted else "S place", "raw U sum", body, name
    )


def float32_below(values: Array) -> Array:
    """Round values down to float32, so that lower bounds stay lower bounds.

    Each value must be -1 or at least 0. On a GPU, a subnormal result may become 0.
    """
    if module_of(values) is not np:
        return _elementwise(
            "float64 x",
            "float32 y",
            "y = __double2float_rd(x)",
            "simjoin_float32_below",
        )(values)
    with np.errstate(over="ignore", under="ignore"):
        found = values.astype(np.float32)
        return np.where(found > values, np.nextafter(found, np.float32(-np.inf)), found)


def looked_up(table: Array, places: Array) -> Array:
    """Return `table[places]`, with -1 for negative places; `table` is int32."""
    if module_of(places) is not np:
        body = "found = place < 0 ? -1 : table[place]"
        return _elementwise(
            "S place, raw int32 table", "int32 found", body, "simjoin_looked_up"
        )(places, table)
    if not len(table):
        return np.full(places.shape, -1, np.int32)
    return np.where(places < 0, np.int32(-1), table[places])


def inverse_of(order: Array) -> Array:
    """Return the inverse of a permutation (n,), as int32."""
    place = module_of(order).empty(len(order), np.int32)
    if module_of(order) is np:
        place[order] = np.arange(len(order), dtype=np.int32)
    else:
        _elementwise(
            "S row", "raw int32 place", "place[row] = i", "simjoin_inverse_of"
        )(order, place)
    return place


def rows_of_places(values: Array, order: Array) -> Array:
    """Return values (n,) in the order of rows. `order` (n,): the row of each value."""
    out = module_of(values).empty_like(values)
    out[order] = values
    return out


def labels_at(order: Array, labels: Array) -> Array:
    """Return labels (n,), int64, in the order of rows. `order` (n,): the row of each
    label.

    A GPU writes only labels that are not -1: it takes most of the time to write numbers
    in random places.
    """
    if module_of(labels) is np:
        return rows_of_places(labels, order)
    out = sys.modules["cupy"].empty_like(labels)
    out.data.memset_async(0xFF, out.nbytes)  # -1 in all entries
    body = "if (label != -1) out[row] = label"
    _elementwise("S row, int64 label", "raw int64 out", body, "simjoin_labels_at")(
        order, labels, out
    )
    return out


def put_entries(
    rows: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array
) -> None:
    """Write entries of a CSR matrix on a GPU.

    `at` (n,): for each row, the index of its next entry in `out` and `out_values`;
    updated.
    """
    body = """
        const long long place = (long long)atomicAdd((unsigned long long*)&at[row], 1ull);
        columns[place] = column;
        values[place] = value;
    """
    given = "S row, C column, float64 value"
    found = "raw int64 at, raw D columns, raw float64 values"
    _elementwise(given, found, body, "simjoin_put")(
        rows, columns, values, at, out, out_values
    )


@cache
def _elementwise(given: str, found: str, body: str, name: str) -> Any:
    return sys.modules["cupy"].ElementwiseKernel(given, found, body, name)


def on_gpu(values: Ids | Series) -> bool:
    """Return whether an index or a column is stored on a GPU."""
    return _library(values) == "cudf"


def values_of(column: Ids | Series) -> Array:
    """Return a column or an index as an array on the same device. It must not have
    missing values.
    """
    return column.values if on_gpu(column) else column.to_numpy()


def column_like(values: Array, dtype: Any) -> Array:
    """Return int64 values (n,) as a column. For bool, the column shows which are not 0.
    Other dtypes have 8 bytes, and get the bits of the values.
    """
    return values != 0 if dtype == np.bool_ else values.view(dtype)


def columns_like(values: Array, example: Frame, xp: ArrayModule) -> dict[Any, Array]:
    """Split `values` (n, k) into columns with the names and 8-byte dtypes of `example`.

    `values` has dtype int64 and holds the bits of the columns.
    """
    kinds = zip(example.columns, example.dtypes, strict=True)
    return {
        name: xp.ascontiguousarray(values[:, k]).view(kind)
        for k, (name, kind) in enumerate(kinds)
    }


FLOAT64, FLOAT32, DIVIDED = range(3)
"""How points are stored: as float64 coordinates, or as narrow points of either kind."""

STORAGE = {
    np.dtype(np.float64): FLOAT64,
    np.dtype(np.float32): FLOAT32,
    np.dtype(np.uint32): DIVIDED,
}
"""dtype of points -> how they are stored."""

MIN_DIMS = 32
"""Minimum number of dimensions for narrow points: in fewer, other arrays take most of
the memory.
"""


def storage_of(x: Array) -> int:
    """Return how points are stored, by their dtype."""
    return STORAGE[x.dtype]


def dims_of(x: Array) -> int:
    """Return the number of dimensions of points (n, d) or narrow points."""
    return int(x.shape[1]) - 2 * (storage_of(x) == DIVIDED)


def constants_of(x: Array) -> dict[str, int]:
    """Return a dict with the constant `STORED`, which makes kernels read points that
    are stored like `x`.

    The dict is empty for float64 points, because these are the kernels' default.
    """
    storage = storage_of(x)
    return {} if storage == FLOAT64 else {"STORED": storage}


def row_bytes(dims: int, is_divided: bool) -> int:
    """Return the bytes of a narrow point; `is_divided`: whether it has a length."""
    # the length of a divided vector is float64
    return 4 * dims + 8 * is_divided


def narrowed(
    columns: np.ndarray, points: np.ndarray, lengths: np.ndarray | None
) -> np.ndarray | None:
    """Return narrow points in host memory; None if they would not give the same
    coordinates to the bit.

    Points with NaN may differ, because they are not joined. `columns`, `points` (n, d),
    float64: the columns, and the coordinates that the metric makes of them. `lengths`
    (n,): the lengths that the columns are divided by, if any.
    """
    if columns.shape != points.shape:
        return None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        numbers = columns.astype(np.float32, order="C")
    rows = numbers
    if lengths is not None:
        halves = np.ascontiguousarray(lengths).view(np.uint32).reshape(-1, 2)
        rows = np.concatenate([numbers.view(np.uint32), halves], axis=1)
    wanted = np.ascontiguousarray(points)
    same = (widened(rows).view(np.int64) == wanted.view(np.int64)) | np.isnan(wanted)
    return rows if same.all() else None


def widened(rows: np.ndarray) -> np.ndarray:
    """Return the float64 coordinates (n, d) of points in host memory, however they are
    stored.
    """
    if storage_of(rows) != DIVIDED:
        return rows.astype(np.float64, order="C", copy=False)
    numbers, halves = rows[:, :-2], np.ascontiguousarray(rows[:, -2:])
    with np.errstate(invalid="ignore", divide="ignore"):
        coordinates: np.ndarray = (
            np.ascontiguousarray(numbers).view(np.float32).astype(np.float64)
        )
        coordinates /= halves.view(np.float64)
    return coordinates
