"""One chunk of all rows, whose spanning tree is sought: what it takes at its peak, and whether there is room.

Chunks are at most a small share of a worker's memory, as several of them meet there, and wait for others.
One chunk meets none: what it needs is the largest of its own steps.  Threads share it; of workers that search
it together each has a copy, and a state of its own.

The numbers are what the arrays of each step take together, and tests measure that no step takes more.
"""

from __future__ import annotations

from dask.utils import format_bytes

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.budget import Budget, Resources
from dask_simjoin.planning.checks import MAX_ROWS, TREE_SHARE
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.table import TableSummary

FILTER_DIMS = 8
"""Dimensions from which an index may have float32 numbers, for its filter, beside those that it is given."""

CUT_DIMS = 16
"""Dimensions, at most, by which rows are put in order."""

LISTED, CLOSE_DIMS = 16, 3
"""Nearest rows of a row that are remembered at most; dimensions up to which two bytes are enough for each."""

FEW = 5
"""Nearest rows that are sought up to which their totals are remembered, too: of all but one."""

ORDER_BYTES = 48
"""Of a row while rows are put in order, besides 4 for each dimension that is cut."""

ROUND_BYTES = 110
"""Of a row in rounds of a tree, and while its edges are put in order or made clusters of, index and nearest
rows besides: a state before and after a round, and edges twice."""

PART_BYTES = 24
"""Of a row, of each thread that does a part of a round."""

LABEL_BYTES = 16
"""Of a row's label, as the index of the frame has it, and of what says where the row is."""

APART = 1.2
"""How much more is taken than arrays have: what allocators keep of what was freed."""

SHARED_DIMS = 5
"""Dimensions from which what a round searches is worth being shared: in few, it is a tenth of the round."""

FEW_THREADS = 6
"""Threads up to which, where they share no rounds, one finds the tree sooner than all find those of several
chunks: these take 2.3 times the work, and half of the work on one chunk is searches, which all share."""

WORKING = 24 * 2**20
"""Bytes of each thread for what it works on, however many rows there are."""


def one_chunk_bytes(table: TableSummary, k: int, threads: int) -> float:
    """Bytes that one chunk of all rows of a table and its tree take at their peak, at most.

    `k`: nearest rows that are sought of each; `threads`: of this process, or of a worker, that share it.
    """
    dims, rows = len(table.every.lower), table.source_rows
    numbers = 8 * dims
    filtered = 4 * dims + 8 if dims >= FILTER_DIMS else 0
    index = numbers + filtered + dims + LABEL_BYTES + table.id_bytes
    listed = min(max(k - 1, FEW - 1), LISTED)
    known = 12 + (2 if dims <= CLOSE_DIMS else 4) * listed + 8 * (FEW - 1) * (k <= FEW)
    # what partitions are read to, the rows one after the other, and what libraries have not given back
    read = 2 * table.row_bytes + LABEL_BYTES + numbers
    making = read + max(index, ORDER_BYTES + 4 * min(dims, CUT_DIMS))
    searching = index + 2 * known  # parts are put together
    finding = index + known + ROUND_BYTES + PART_BYTES * threads
    return APART * rows * max(making, searching, finding) + WORKING * threads


def bytes_alone(table: TableSummary, goal: Goal, chunks: int, have: Resources) -> float:
    """Tell the same of so many chunks; 0: it is not one whose tree is sought, or is a GPU's."""
    if not goal.spanning or chunks != 1 or have.gpu:
        return 0.0
    return one_chunk_bytes(table, goal.k or 1, threads_of_one(have))


def room_for_one(have: Resources) -> float | None:
    """Bytes that one chunk may take of the smallest worker, or of this process; None: nothing tells."""
    each = have.memory if have.cluster else have.shared
    if each is None or have.gpu:
        return None
    return TREE_SHARE * each * (have.together if have.cluster else have.threads)


def threads_of_one(have: Resources) -> int:
    """Tell how many threads of a process share one chunk."""
    return max(1, -(-have.threads // have.workers))


def one_is_best(table: TableSummary, k: int, have: Resources) -> bool:
    """Tell whether one chunk of all rows is worth it, and there is room for it and its tree."""
    room = room_for_one(have)
    if room is None or table.source_rows > MAX_ROWS:
        return False
    if len(table.every.lower) < SHARED_DIMS and have.threads > FEW_THREADS:
        return False
    return one_chunk_bytes(table, k, threads_of_one(have)) <= room


def check_one(need: float, budget: Budget, have: Resources) -> None:
    """Refuse one chunk of all rows that was asked for and does not fit a worker with its tree."""
    room = room_for_one(have)
    if have.cluster and room is not None and need > room:
        raise BudgetError(
            f"One chunk of all rows ({budget.origin}) takes about {format_bytes(int(need))} with its tree, "
            f"and the smallest worker has {format_bytes(int(room))} for it. Leave blocksize= out, use a "
            "smaller one, or workers with more memory.",
            remedies=[Remedy({"blocksize": None})],
        )
