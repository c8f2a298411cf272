"""Whether workers have the memory to shuffle rows, and how many rows they send at a time."""

from __future__ import annotations

from collections.abc import Sequence

from dask.utils import format_bytes

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.table import TableSummary

LEAST_WORKER = 640 * 2**20
"""Memory limit of a worker that takes part in a p2p shuffle: one of 500 MB was paused for ever."""

AT_ONCE = 24
"""Memory of a thread in units of the rows that it sends at a time between workers.

Of rows that a shuffle sends there are about eight copies: as they are packed, as a frame, that frame with
its workers, sorted and as bytes, and on the other side those that come in, sorted and as bytes by chunk.
What is left is for the partition, the shuffle's own buffers, and rows that wait to be sent: partitions of
1,000,000 rows of 40 bytes that were sent whole killed workers of 700 MB."""

MOVE_BYTES = 16
"""Of a row that is sent, besides what it has in its chunk: its position, and its chunk's number."""

LARGEST = 6
"""Memory of a thread in units of the largest partition whose rows it can send.

Reading one and telling its rows apart takes about 3.7 times its columns, before any row is sent.  On workers
of 700 MB with partitions of an eighth of that memory shuffles went well, and with those of a quarter
workers died."""

BY_ORDER = Remedy({"partitioning": "entity"})
"""What moves no rows."""


def sent_rows(method: str | None, have: Resources, row_bytes: float) -> int:
    """Tell how many rows of a partition are shuffled at a time, of so many bytes each in their chunk."""
    if method != "p2p" or have.memory is None:
        return MAX_ROWS
    return max(1, min(MAX_ROWS, int(have.memory / AT_ONCE / (row_bytes + MOVE_BYTES))))


def check_moving(method: str, have: Resources, tables: Sequence[TableSummary]) -> None:
    """Refuse to shuffle the rows of tables between workers that have no room for that.

    Dask pauses a worker at 80 % of its limit, and kills it at 95 %.  With no data to spill it stays paused,
    and with partitions too large it is killed again and again; what waits for it waits for ever, or nearly.
    """
    if method != "p2p" or have.limit is None or have.memory is None:
        return
    if have.limit < LEAST_WORKER:
        raise BudgetError(
            f"Rows would be shuffled between workers of {format_bytes(have.limit)}, and at least "
            f"{format_bytes(LEAST_WORKER)} are needed, most of them for what a worker loads; use fewer, "
            "larger workers, or partitioning='entity'.",
            remedies=[BY_ORDER],
        )
    most = have.memory // LARGEST
    for table in tables:
        rows, each = max(summary.source_rows for summary in table.summaries), table.row_bytes
        if rows * each > most:
            parts = _enough(table, most)
            raise BudgetError(
                f"Rows would be shuffled from partitions of up to {rows:,} rows of {each:.0f} bytes, "
                f"{format_bytes(int(rows * each))}, and a thread of the smallest worker has "
                f"{format_bytes(have.memory)}, with room for partitions of at most {format_bytes(most)}. Use "
                f"smaller ones, such as ddf.repartition(npartitions={parts}) or "
                "dd.read_parquet(..., split_row_groups=True), workers with more memory or fewer threads, or "
                "partitioning='entity'.",
                remedies=[Remedy(npartitions=parts), BY_ORDER],
            )


def can_move(method: str, have: Resources, tables: Sequence[TableSummary]) -> bool:
    """Tell whether `check_moving` would not refuse."""
    try:
        check_moving(method, have, tables)
    except BudgetError:
        return False
    return True


def _enough(table: TableSummary, most: int) -> int:
    """Return a number of partitions that are small enough, each cut into equally many."""
    largest = max(summary.source_rows for summary in table.summaries) * table.row_bytes
    return int(-(-largest // most)) * len(table.summaries)
