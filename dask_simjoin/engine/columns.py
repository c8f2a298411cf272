"""Columns that grow while pairs are written, and columns whose values are lists of
numbers.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import sys
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.errors import ListError, NumberError
from dask_simjoin.metrics.norms import Array, DType, Series
from dask_simjoin.sizes import BATCH, FEW

CAPACITY_PER_POINT = 256
"""Initial capacity of an output, in pairs per point of the larger chunk."""

MAX_CAPACITY = 1 << 27
"""Largest initial capacity of an output, in pairs, and of copied points, in
coordinates.
"""

MIN_TAKEN_AT_ONCE = 64
"""At least this many columns are taken by one call for each dtype, instead of one by
one, and not by kernels.
"""


class GrowingColumns:
    """Columns of equal length that grow while they are written.

    The initial capacity can be large, because pages take no physical memory until they
    are written. The operating system remaps pages when columns grow or shrink, so no
    values are copied.

    `capacity`: initial capacity, in values. `spare`: number of extra values after the
    capacity; kernels may overwrite them, but they are not part of the result.
    """

    def __init__(self, dtypes: Sequence[DType], capacity: int, spare: int = 0) -> None:
        self._columns = tuple(np.empty(capacity + spare, dtype) for dtype in dtypes)
        self._capacity, self._spare, self._used = capacity, spare, 0

    @property
    def capacity(self) -> int:
        """Number of values that fit without growing."""
        return self._capacity - self._used

    def free(self) -> list[np.ndarray]:
        """Return views of the unused memory. They become invalid with `advance` and
        `end`.
        """
        return [column[self._used :] for column in self._columns]

    def advance(self, used: int, min_free: int = 0) -> None:
        """Count the first `used` values of `free()` as written.

        Grow if fewer than `min_free` further values fit.
        """
        self._used += used
        if self.capacity < min_free:
            self._capacity = self._used + max(min_free, self._used // FEW)
            self._resize(self._capacity + self._spare)

    def end(self) -> tuple[np.ndarray, ...]:
        """Release unused memory and return the columns."""
        self._capacity, self._spare = self._used, 0
        self._resize(self._used)
        return self._columns

    def _resize(self, length: int) -> None:
        for column in self._columns:
            column.resize(length, refcheck=False)


def blocks(length: int) -> Iterator[slice]:
    """Yield slices that cover `length` values. Each slice except the last has `BATCH`
    values.
    """
    for start in range(0, length, BATCH):
        yield slice(start, min(start + BATCH, length))


def longer(values: np.ndarray, length: int) -> np.ndarray:
    """Return an array of `length` values that begins with `values`; the rest is
    undefined.

    If possible, the memory of `values` grows in place, so do not use `values` or its
    views afterwards.
    """
    owner = values if values.base is None else values.base
    own = (
        isinstance(owner, np.ndarray)
        and owner.flags.owndata
        and owner.nbytes == values.nbytes
    )
    if not own or owner.ndim != 1 or owner.dtype.itemsize != values.dtype.itemsize:
        grown = np.empty(length, values.dtype)
        grown[: len(values)] = values
        return grown
    owner.resize(length, refcheck=False)
    return owner if owner.dtype == values.dtype else owner.view(values.dtype)


def appended(parts: Sequence[Array]) -> np.ndarray:
    """Concatenate arrays. Do not use the first one afterwards, because its memory is
    reused: see `longer`.
    """
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([len(part) for part in parts]).tolist()
    whole = longer(parts[0], ends[-1])
    for part, start, stop in zip(parts[1:], ends, ends[1:], strict=False):
        whole[start:stop] = part
    return whole


def look_up(table: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return `table[places]`. Work in batches, because NumPy copies `places` as 8-byte
    integers.
    """
    found = np.empty(len(places), table.dtype)
    for some in blocks(len(places)):
        found[some] = table[places[some]]
    return found


EXACT_INTEGER = int(2 / np.finfo(np.float64).eps)
"""Integers up to this size are exact in float64."""

A_NUMBER = "but a number"
"""End of the message if the first value of a column is a number, such as a Decimal.
Then the column probably has no lists.
"""


def vectors(column: Series) -> Array:
    """Return the lists of a column as an array of float64 (n, length), on the column's
    device.

    Missing numbers become NaN. A missing list becomes a row of NaN. If all lists are
    missing, the length comes from the dtype; if the dtype has none, it is 1.
    """
    if on_gpu(column):
        return _on_gpu(column)
    try:
        parts = list(_parts(column))
    except ListError as error:
        if error.what.endswith(A_NUMBER):
            _refuse(column, column.name)
        raise
    described = lists_of(column)
    length = parts[0].length if parts else (described and described.length) or 1
    out = np.empty((len(column), length), order="F")
    start = 0
    for part in parts:
        rows = out[start : start + len(part.present)]
        start += len(part.present)
        numbers = (
            part.numbers.reshape(-1, length)
            if length
            else np.empty((int(part.present.sum()), 0))
        )
        # convert as many values at a time as stay in a CPU cache
        step = max(1, 2**18 // max(length, 1))
        if part.present.all():
            for at in range(0, len(rows), step):
                rows[at : at + step] = numbers[at : at + step]
        else:
            rows[~part.present] = np.nan
            rows[part.present] = numbers
    return out


@contextlib.contextmanager
def naming_value(column: Series, name: Hashable) -> Iterator[None]:
    """Raise `NumberError` instead of an error of the conversion of a column to float64.

    It names the first value that is not a number.
    """
    if getattr(column.dtype, "kind", "O") in "cmM":  # NumPy would convert these
        _refuse(column, name)
    try:
        yield
    except (TypeError, ValueError):
        _refuse(column, name)
        raise


def _refuse(column: Series, name: Hashable) -> None:
    """Raise `NumberError` for the first value that is neither a number nor missing."""
    values = column.to_pandas() if on_gpu(column) else column
    for row, value in enumerate(values.array):
        if value is None or value is pd.NA or value is pd.NaT:
            continue
        try:
            float(value)
        except (TypeError, ValueError):
            raise NumberError.at(name, row, _shown(value)) from None


MOST_SHOWN = 60
"""Longest text of a value in a message, in characters."""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def extremes(column: Series) -> list[int]:
    """Return the largest and smallest number in the lists of a column; [] if they are
    not integers.
    """
    if on_gpu(column):
        if type(column.dtype).__name__ != "ListDtype":
            return []
        leaves = column.list.leaves
        found = (
            [leaves.max(), leaves.min()]
            if leaves.dtype.kind in "iu" and len(leaves)
            else []
        )
        return [int(some) for some in found if not pd.isna(some)]
    if isinstance(column.dtype, pd.ArrowDtype):
        flat = [chunk.flatten() for chunk in _chunks(column)]
        some = [
            pc.min_max(part)
            for part in flat
            if pa.types.is_integer(part.type) and len(part)
        ]
        found = [end.as_py() for ends in some for end in (ends["max"], ends["min"])]
    else:
        arrays = [part.numbers for part in _parts(column)]
        found = [
            int(end)
            for x in arrays
            if x.dtype.kind in "iu" and x.size
            for end in (x.max(), x.min())
        ]
    there = [end for end in found if end is not None]
    return [max(there), min(there)] if there else []


def a_value(value: Any) -> str:
    """Return the type of a value with its article, such as "an int", for a message."""
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


class _Part(NamedTuple):
    """Lists in consecutive rows of a column.

    `present`: mask of the rows that have a list; `numbers`: the numbers of all these
    lists, concatenated; `length`: number of numbers in each list.
    """

    present: np.ndarray
    numbers: np.ndarray
    length: int


def _parts(column: Series) -> Iterator[_Part]:
    """Yield the lists of a pandas column in parts; raise `ListError` if two lists
    differ in length.
    """
    if isinstance(column.dtype, pd.ArrowDtype):
        yield from _arrow_parts(_chunks(column))
    elif len(column):
        yield _object_part(column.to_numpy())


def _chunks(column: Series) -> list[Any]:
    values = column.array.__arrow_array__()
    return [chunk for chunk in getattr(values, "chunks", [values]) if len(chunk)]


def _arrow_parts(chunks: list[Any]) -> Iterator[_Part]:
    if chunks and pa.types.is_fixed_size_list(chunks[0].type):
        length = chunks[0].type.list_size
    else:
        # NaN for missing lists
        lengths = [
            pc.list_value_length(chunk).to_numpy(zero_copy_only=False)
            for chunk in chunks
        ]
        length = _checked(np.concatenate(lengths)) if lengths else None
    for chunk in chunks:
        present = chunk.is_valid().to_numpy(zero_copy_only=False)
        # `flatten` skips missing lists, so `numbers` has values only for the rows in
        # `present`
        numbers = chunk.flatten().to_numpy(zero_copy_only=False)
        if numbers.dtype == object:  # booleans with missing values have become objects
            numbers = numbers.astype(np.float64)
        yield _Part(present, numbers, 1 if length is None else length)


def _checked(lengths: np.ndarray) -> int | None:
    """Return the common length of lists, None if there are none; raise `ListError` if
    lengths differ. `lengths`: NaN for missing lists.
    """
    there = np.flatnonzero(~np.isnan(lengths))
    if not len(there):
        return None
    _check_lengths(lengths[there], there)
    return int(lengths[there[0]])


def _check_lengths(lengths: np.ndarray, rows: np.ndarray) -> None:
    """Raise `ListError` if lengths of lists differ. `rows`: the rows of these lists."""
    other = np.flatnonzero(lengths != lengths[0])
    if not len(other):
        return
    found = [
        array.astype(int)
        for array in np.unique(lengths, return_index=True, return_counts=True)
    ]
    by_row = sorted(zip(*found, strict=True), key=lambda one: one[1])
    raise ListError.at(
        int(rows[other[0]]),
        f"a list of length {lengths[other[0]]:.0f}, and earlier rows lists of length "
        f"{lengths[0]:.0f}",
        tuple((int(n), int(many), int(rows[first])) for n, first, many in by_row),
    )


def _object_part(values: np.ndarray) -> _Part:
    values = _without_masks(values)
    lengths = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if isinstance(value, (list, tuple)) or (
            isinstance(value, np.ndarray) and value.ndim == 1
        ):
            lengths[row] = len(value)
        elif not (
            value is None
            or value is pd.NA
            or (isinstance(value, float) and math.isnan(value))
        ):
            what = f"{a_value(value)}, which is not a list, tuple or array (n,)"
            if _is_number(value) and np.isnan(lengths[:row]).all():
                what += f" {A_NUMBER}"
            raise ListError.at(row, what)
    length = _checked(lengths)
    present = ~np.isnan(lengths)
    if not length:
        return _Part(present, np.empty(0), 1 if length is None else 0)
    lists = values if present.all() else values[present]
    if all(isinstance(some, np.ndarray) for some in lists):
        numbers = np.concatenate(list(lists))
    else:
        try:
            numbers = np.array([list(some) for some in lists])
        except ValueError:  # the items of the lists are lists of different lengths
            numbers = np.empty(0, object)
        numbers = numbers.reshape(-1) if numbers.ndim == 2 else numbers.astype(object)
    if numbers.dtype.kind not in "iufb":
        numbers = _one_by_one(values, np.flatnonzero(present))
    return _Part(present, numbers, length)


def _without_masks(values: np.ndarray) -> np.ndarray:
    """Replace masked arrays among the lists, so that masked numbers are missing."""
    masked = [n for n, one in enumerate(values) if isinstance(one, np.ma.MaskedArray)]
    if not masked:
        return values
    values = values.copy()
    for n in masked:
        one = values[n]
        if not np.ma.is_masked(one):
            values[n] = np.ma.getdata(one)
        elif one.dtype.kind == "f":
            values[n] = one.filled(np.nan)
        else:
            values[n] = one.tolist()  # masked numbers become None
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Number, np.bool_))


def _one_by_one(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Convert the lists in these rows value by value; missing numbers become NaN.

    Raise `ListError` for a value that is not a real number.
    """
    found = []
    for row in rows.tolist():
        for value in values[row]:
            missing = value is None or value is pd.NA
            if not missing and not isinstance(value, (numbers.Real, np.bool_)):
                raise ListError.at(
                    row,
                    f"a list with a {type(value).__name__} in it, which is not a real "
                    "number",
                )
            if isinstance(value, numbers.Integral) and abs(int(value)) > EXACT_INTEGER:
                raise ListError.at(
                    row,
                    f"a list with {value} in it, which is beyond 2**53, where float64 "
                    "cannot represent every integer",
                )
            found.append(math.nan if missing else float(value))
    return np.array(found)


def _on_gpu(column: Series) -> Array:
    xp = sys.modules["cupy"]
    present = column.notna().values
    some = column.dropna()  # needed because Arrow may store numbers for a missing list
    if not len(some):
        return xp.full((len(column), 1), np.nan)
    if type(column.dtype).__name__ != "ListDtype":
        raise ListError.at(
            int(xp.flatnonzero(present)[0]),
            f"a value of dtype {column.dtype}, which is not a list",
        )
    lengths = some.list.len().values
    length = int(lengths[0])
    if len(xp.flatnonzero(lengths != length)):
        _check_lengths(xp.asnumpy(lengths), xp.asnumpy(xp.flatnonzero(present)))
    flat = some.list.leaves.astype("float64")
    numbers = (
        flat.to_cupy(na_value=np.nan) if flat.has_nulls else flat.to_cupy()
    ).reshape(-1, length)
    if len(some) == len(column):
        return xp.asfortranarray(numbers)
    out = xp.full((len(column), length), np.nan, order="F")
    out[present] = numbers
    return out
