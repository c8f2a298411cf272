"""Build sparse neighbor matrices (CSR) from chunks, by compiled kernels on the host or
array operations on GPUs.

Row i and column i of the matrix belong to the row at position i in the frame. In this
module, "row number" means i.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TypedDict

import numpy as np

from dask_simjoin.engine.base import frames_for, host_kernels
from dask_simjoin.engine.compat import count_up, module_of, put_entries, values_of
from dask_simjoin.metrics.norms import Array, ArrayModule, DType, Frame, SparseMatrix
from dask_simjoin.planning.budget import (
    Fitting,
    Limit,
    free_memory,
)
from dask_simjoin.planning.limits import MEMORY_LIMIT, Limits
from dask_simjoin.planning.resources import ITSELF, memory_share
from dask_simjoin.request.columns import optional
from dask_simjoin.request.options import size_origin
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import ENTRY_BYTES, PAIRS_AT_ONCE, ROW_BYTES
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.matches import BlockPair, measured


def put(
    rows: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array
) -> None:
    """Write entries (row, column, value) into the matrix arrays `out` and `out_values`.

    `at` (n,): for each row of the matrix, the offset of its next entry. Offsets advance
    with each entry.
    """
    if module_of(at) is np:
        host_kernels("components").put(rows, columns, values, at, out, out_values)
    elif len(
        rows
    ):  # on GPUs, entries of a row come in any order; complete rows are sorted later
        put_entries(rows, columns, values, at, out, out_values)


def move(
    counts: Array,
    columns: Array,
    values: Array,
    at: Array,
    out: Array,
    out_values: Array,
) -> None:
    """Append entries that are sorted by row to the matrix. `counts`: number of entries
    for each row. `at`: see `put`.
    """
    starts = starts_of(counts)
    if module_of(at) is np:
        host_kernels("components").move(starts, columns, values, at, out, out_values)
    else:
        move_arrays(starts, columns, values, at, out, out_values)


def move_arrays(
    starts: Array,
    columns: Array,
    values: Array,
    at: Array,
    out: Array,
    out_values: Array,
) -> None:
    """Append entries like `move`, but by array operations.

    `starts`: offset of the first entry for each row.
    """
    xp = module_of(at)
    for first in range(0, len(columns), PAIRS_AT_ONCE):
        some = slice(first, min(first + PAIRS_AT_ONCE, len(columns)))
        entry = xp.arange(some.start, some.stop)
        row = xp.searchsorted(starts, entry, side="right") - 1
        place = at[row] + entry - starts[row]
        out[place], out_values[place] = columns[some], values[some]
    at += starts[1:] - starts[:-1]


def sort_rows(starts: Array, columns: Array, values: Array) -> None:
    """Sort the entries of each row by value and then by column, in place."""
    if module_of(starts) is np:
        host_kernels("components").sort(starts, columns, values)
    else:
        sort_arrays(starts, columns, values)


def sort_arrays(starts: Array, columns: Array, values: Array) -> None:
    xp = module_of(starts)
    row, rows, entries = 0, len(starts) - 1, len(columns)
    while row < rows:
        # in each step, sort as many rows as `PAIRS_AT_ONCE` entries allow, but at least
        # one row
        first = int(starts[row])
        stop = rows
        if entries - first > PAIRS_AT_ONCE:
            stop = (
                int(
                    xp.searchsorted(
                        starts, xp.asarray([first + PAIRS_AT_ONCE]), side="right"
                    )[0]
                )
                - 1
            )
            stop = max(stop, row + 1)
        some = slice(first, int(starts[stop]))
        if some.stop > first:
            own = xp.searchsorted(
                starts[row : stop + 1], xp.arange(first, some.stop), side="right"
            )
            # float64 represents the column numbers exactly, since they are below 2**53
            keys = xp.stack(
                [columns[some].astype(np.float64), values[some], own.astype(np.float64)]
            )
            order = xp.lexsort(keys)
            columns[some], values[some] = columns[some][order], values[some][order]
        row = stop


def starts_of(counts: Array) -> Array:
    """Return the offset of the first entry in each row, and at the end the number of
    all entries (n + 1,).
    """
    xp = module_of(counts)
    starts = xp.zeros(len(counts) + 1, np.int64)
    starts[1:] = xp.cumsum(counts, dtype=np.int64)
    return starts


def narrow(counts: Array) -> Array:
    """Convert counts to the smallest dtype that fits. A row keeps one count for each of
    its block pairs.
    """
    return counts.astype(np.min_scalar_type(int(counts.max()) if len(counts) else 0))


MODES = DISTANCE, CONNECTIVITY = ("distance", "connectivity")

MAX_INT32 = np.iinfo(np.int32).max

ListedPairs = list[tuple[Array, Array, Array]]
"""Batches of pairs, as arrays: positions of left rows, positions of right rows, and
totals.
"""


class MatrixRows(TypedDict):
    """Some rows of a matrix. It is a plain dict of arrays, which Dask can spill to
    disk.
    """

    counts: Array  # (n,): number of entries in each row
    columns: Array  # column numbers of all entries, row by row
    values: Array  # values of all entries, row by row, float64


def sparse(xp: ArrayModule) -> ModuleType:
    """Import SciPy's module of sparse matrices, or for GPUs CuPy's."""
    if xp is np:
        return optional("scipy.sparse", "scipy", "Neighbor graphs")
    return optional("cupyx.scipy.sparse", "cupy", "Neighbor graphs of cuDF frames")


def offset_type(xp: ArrayModule, max_value: int) -> DType:
    """Choose the dtype of the matrix's offsets and columns: int64 on the host, the
    smallest possible on GPUs.

    `max_value`: the number of entries or of rows, whichever is larger.
    """
    return np.int64 if xp is np or max_value > MAX_INT32 else np.int32


def max_entries(xp: ArrayModule) -> int | None:
    """Return the largest number of entries that a matrix can have; None if there is no
    limit.
    """
    # CuPy before 14.1 supports only int32 indices
    if xp is np or sparse(xp).csr_matrix((1, MAX_INT32 + 1)).indices.dtype == np.int64:
        return None
    return MAX_INT32


def matrix_numbers(chunk: Chunk, firsts: list[int], kind: DType) -> Array:
    """Return the row number of each row in a chunk, ascending.

    `firsts`: for each piece of an entity chunk, the position of its partition's first
    row in the frame. The ids in such a chunk are positions within the partition.
    """
    if "position" in chunk:
        return chunk["position"].astype(kind)
    xp = frames_for(chunk["example"]).xp
    numbers = xp.array(values_of(chunk["ids"]), kind)
    ends = chunk["ends"].tolist()
    for first, start, stop in zip(firsts, [0, *ends], ends, strict=False):
        numbers[start:stop] += first
    return numbers


def count_entries(block_pair: BlockPair) -> tuple[Array, Array | None, int]:
    """Count the matrix entries that a block pair gives: for each row of both chunks,
    and in total.
    """
    counts = [None if c is None else narrow(c) for c in count_block(block_pair)]
    return (
        counts[0],
        counts[1],
        sum(int(c.sum(dtype=np.int64)) for c in counts if c is not None),
    )


def fill_block(
    block_pair: BlockPair,
    counts: tuple[Array, Array | None, int],
    numbers: Sequence[Array],
    mode: str,
) -> tuple[MatrixRows, MatrixRows | None]:
    """Make the matrix entries that a block pair gives, for the rows of both chunks.

    `counts`: the result of `count_entries`. `numbers`: for each chunk, the row numbers
    of its rows.
    """
    xp = block_pair.xp
    parts, at = [], []
    for count in counts[: len(block_pair.chunks)]:
        starts = starts_of(count)
        parts.append(_empty_rows(count, int(starts[-1]), numbers[0].dtype, xp))
        at.append(starts[:-1])
    fill(block_pair, numbers, mode, at, parts)
    return parts[0], None if block_pair.is_self_join else parts[1]


def _empty_rows(
    counts: Array, entries: int, kind: DType, xp: ArrayModule
) -> MatrixRows:
    return {
        "counts": counts,
        "columns": xp.empty(entries, kind),
        "values": xp.empty(entries),
    }


def fill(
    block_pair: BlockPair,
    numbers: Sequence[Array],
    mode: str,
    at: list[Array],
    parts: list[MatrixRows],
    listed: ListedPairs | None = None,
) -> None:
    """Write the matrix entries that a block pair gives.

    All lists have one item per chunk. `numbers`: the row numbers. `at`: for each row,
    the offset of its next entry. `parts`: the rows to fill. `listed`: the pairs, if an
    earlier step has listed them.
    """

    def visitor(left: Array, right: Array, totals: Array) -> None:
        # computing distances may overwrite the totals, which are not needed afterwards
        xp = block_pair.xp
        values = (
            measured(block_pair.spec, xp)(totals)
            if mode == DISTANCE
            else xp.ones(len(totals))
        )
        for side, rows, columns in (
            (0, left, numbers[1][right]),
            (-1, right, numbers[0][left]),
        ):
            put(
                rows,
                columns,
                values,
                at[side],
                parts[side]["columns"],
                parts[side]["values"],
            )

    if listed is None:
        block_pair.joiner.visit(
            *block_pair.operands, visitor, is_self_join=block_pair.is_self_join
        )
        return
    for part in listed:
        visitor(*part)


def put_diagonal(numbers: Array, mode: str, at: Array, part: MatrixRows) -> None:
    """Write the diagonal entry of each row.

    `at`: for each row, the offset of its next entry. The offsets advance.
    """
    part["columns"][at], part["values"][at] = numbers, float(mode == CONNECTIVITY)
    at += 1


def gather_rows(
    numbers: Array, diagonal: bool, mode: str, *blocks: MatrixRows
) -> MatrixRows:
    """Gather the entries of a chunk's rows from all block pairs that have the chunk,
    and sort them.

    `diagonal`: whether to add the entries of rows with themselves.
    """
    xp = module_of(numbers)
    counts = xp.full(len(numbers), int(diagonal), np.int64)
    for block in blocks:
        counts += block["counts"]
    starts = starts_of(counts)
    part = _empty_rows(narrow(counts), int(starts[-1]), numbers.dtype, xp)
    at = starts[:-1].copy()
    if diagonal:
        put_diagonal(numbers, mode, at, part)
    for block in blocks:
        move(
            block["counts"],
            block["columns"],
            block["values"],
            at,
            part["columns"],
            part["values"],
        )
    sort_rows(starts, part["columns"], part["values"])
    return part


def assemble(
    rows: int, example: Frame, numbers: list[Array], parts: list[MatrixRows]
) -> SparseMatrix:
    """Assemble the matrix (rows, rows) from the rows of all chunks."""
    xp = frames_for(example).xp
    counts = xp.zeros(rows, np.int64)
    for own, part in zip(numbers, parts, strict=True):
        counts[own] = part["counts"]
    starts = starts_of(counts)
    entries = int(starts[-1])
    kind = offset_type(xp, max(entries, rows))
    columns, values = xp.empty(entries, kind), xp.empty(entries)
    for own, part in zip(numbers, parts, strict=True):
        move(
            part["counts"],
            part["columns"],
            part["values"],
            starts[own],
            columns,
            values,
        )
    return matrix(values, columns, starts.astype(kind, copy=False))


class _TooManyPairsError(Exception):
    """Stops the listing of pairs once there are more than `PAIRS_AT_ONCE`."""


def _list_pairs(block_pair: BlockPair) -> ListedPairs | None:
    """List the pairs within a chunk; return None if there are more than `PAIRS_AT_ONCE`."""
    parts: ListedPairs = []
    number = 0

    def visitor(left: Array, right: Array, totals: Array) -> None:
        nonlocal number
        number += len(left)
        if number > PAIRS_AT_ONCE:
            raise _TooManyPairsError
        parts.append((left.copy(), right.copy(), totals.copy()))

    try:
        block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=True)
    except _TooManyPairsError:
        return None
    return parts


def _degrees(block_pair: BlockPair, listed: ListedPairs) -> Array:
    found = block_pair.xp.zeros(len(block_pair.query["ids"]), np.int64)
    for left, right, _ in listed:
        count_up(found, left, right)
    return found


def graph_of_chunk(
    block_pair: BlockPair, mode: str, fitting: Fitting, expected: float
) -> SparseMatrix:
    """Make the matrix from a single chunk. `expected`: estimated number of pairs."""
    xp, spec = block_pair.xp, block_pair.spec
    numbers = matrix_numbers(block_pair.query, [0], np.int64)
    listed = _list_pairs(block_pair) if 2 * expected <= PAIRS_AT_ONCE else None
    degrees = (
        count_block(block_pair)[0] if listed is None else _degrees(block_pair, listed)
    )
    counts = degrees + 1 if spec.result.include_self else degrees
    # if `dropna` removed no row, the row numbers are 0, 1, 2, ...
    all_rows = len(numbers) == fitting.rows
    if not all_rows:
        counts, own = xp.zeros(fitting.rows, np.int64), counts
        counts[numbers] = own
    starts = starts_of(counts)
    entries = int(starts[-1])
    fitting.check(entries)
    kind = offset_type(xp, max(entries, fitting.rows))
    part = _empty_rows(counts, entries, kind, xp)
    at = starts[:-1].copy() if all_rows else starts[numbers]
    if spec.result.include_self:
        put_diagonal(numbers, mode, at, part)
    numbers = numbers.astype(kind, copy=False)
    fill(block_pair, (numbers, numbers), mode, [at], [part], listed)
    sort_rows(starts, part["columns"], part["values"])
    return matrix(part["values"], part["columns"], starts.astype(kind, copy=False))


def matrix(values: Array, columns: Array, starts: Array) -> SparseMatrix:
    rows, xp = len(starts) - 1, module_of(values)
    kind = sparse(xp).csr_matrix
    if xp is not np:
        return kind((values, columns, starts), shape=(rows, rows))
    # the constructor would copy int64 arrays to int32 if they fit, so set the arrays
    # directly
    made = kind((rows, rows))
    made.data, made.indices, made.indptr = values, columns, starts
    return made


def fitting_for(
    spec: JoinSpec, rows: int, example: Frame, limits: Limits, pieces: bool
) -> Fitting:
    """Return the limits that a neighbor matrix must fit in. `pieces`: whether it is
    assembled from several chunks.
    """
    gpu = limits.gpu
    entry = ENTRY_BYTES
    result, made = (entry, 8), (entry + ENTRY_BYTES * pieces, ROW_BYTES)
    bounds, name = [], "simjoin.result-limit"
    if spec.settings.result is not None:
        bounds.append(
            Limit(
                spec.settings.result,
                *result,
                f"{size_origin('result-limit', spec.settings.result)} is",
                "",
                name,
            )
        )
    if gpu and limits.memory is not None:
        whole = limits.memory if limits.cluster else limits.memory * limits.threads
        bounds.append(Limit(whole, *made, "the smallest GPU has", "larger GPUs"))
    elif limits.limit is not None:
        usable = max(
            int(memory_share("pause") * limits.limit) - ITSELF, limits.limit // 3
        )
        bounds.append(
            Limit(usable, *made, "the smallest worker has room for", "larger workers")
        )
    if not gpu:
        here = result if limits.cluster else made
        most = MEMORY_LIMIT if pieces else min(MEMORY_LIMIT, free_memory())
        bounds.append(Limit(most, *here, "this machine has", "a larger machine"))
    return Fitting(spec.eps, rows, bounds, max_entries(frames_for(example).xp))
