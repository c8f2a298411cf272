"""Checks of sizes in a plan: refusals before any task of the join runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dask_simjoin.errors import (
    BudgetError,
    OptionError,
    PartitionSizeError,
    Remedy,
)
from dask_simjoin.planning.budget import PEAK, Cause, enough_result
from dask_simjoin.planning.limits import FREE, NEED, SHARE, Limits
from dask_simjoin.request.messages import (
    about_many,
    shown,
    size_text,
)
from dask_simjoin.sizes import ENTRY_BYTES, MARGIN, NUMBER_BYTES, ROW_BYTES

MAX_ROWS = 2**31 - 2**10
"""Largest number of rows of a chunk. It is limited, because positions are int32, and
arrays are padded.
"""

CHOSEN_BYTES, CLUSTER_BYTES = 40, 160
"""Bytes per row and bytes per cluster that a worker needs to choose clusters."""

TREE_SHARE = 0.6
"""Trees may take this fraction of a worker's memory.

The rest is for loaded data, and for data not yet spilled.
"""

MAX_TASKS = 1_000_000
"""Largest number of block pairs, and of result partitions.

It is limited, because Dask needs about a millisecond for each.
"""

MAX_SMALL_TASKS, SMALL = 50_000, 512
"""Largest number of block pairs if chunks have fewer than `SMALL` rows on average.

It is smaller than `MAX_TASKS`, because such tasks do little work.
"""


def check_rows(rows: int, number: int) -> None:
    """Refuse a partition with more rows than int32 positions allow."""
    if rows > MAX_ROWS:
        raise PartitionSizeError(
            f"Partition {number} has {rows:,} rows, and at most {MAX_ROWS:,} can be "
            "indexed at once; "
            "split it, for example with ddf.repartition(partition_size='256MB')."
        )


GRAIN = 2
"""Messages recommend the needed blocksize times this factor.

Chunks that are cut from partitions may have only half of the blocksize.
"""


def task_bytes(chunk: float, partition: float) -> float:
    """Return the memory of a task from the bytes of the largest chunk and of the
    largest result partition.
    """
    return (NEED - 1) * chunk + max(chunk, PEAK * partition)


def fits_task(size: float, limits: Limits) -> bool:
    """Return whether a task has enough memory for chunks of `size` bytes."""
    return limits.memory is None or NEED * size <= limits.memory


def check_device(need: float, device: int | None) -> None:
    """Refuse plain frames whose rows do not fit in the memory of a GPU.

    `need`: bytes while all rows are indexed. `device`: memory of the GPU; None: the
    rows are on the host.
    """
    if device is not None and need > device:
        raise BudgetError(
            f"The rows take about {size_text(need, device)} on the GPU while they are "
            f"indexed, and the GPU has {size_text(device)}. Join fewer rows or columns, "
            "or a Dask DataFrame on several GPUs."
        )


def check_chunks(
    rows: np.ndarray,
    row_bytes: float | np.ndarray,
    limits: Limits,
    blocks: int,
    task_bytes: float | None = None,
) -> None:
    """Refuse chunks that are too large for the memory of a task.

    `row_bytes`: bytes of a row, one number or one for each chunk.  `blocks`: number of
    block pairs.  Smaller chunks make more block pairs, so they are recommended only if
    there would not be too many.  `task_bytes`: memory of a task for each row of its
    chunk; None: `NEED` times the row.
    """
    if not len(rows) or limits.memory is None:
        return
    own = np.broadcast_to(row_bytes, rows.shape)
    largest = int(np.argmax(rows * own))
    each = NEED * own[largest] if task_bytes is None else task_bytes
    need = int(float(rows[largest]) * each)
    if need > limits.memory:
        smaller = max(1, limits.memory // SHARE)
        more = blocks * (need / NEED / smaller) ** 2
        remedies = (
            [Remedy({"blocksize": size_text(smaller, limits.memory)})]
            if more <= MAX_TASKS
            else []
        )
        use = (
            f"a smaller blocksize=, such as blocksize={size_text(smaller, limits.memory)!r}, or "
            if remedies
            else ""
        )
        raise BudgetError(
            f"Chunk {largest} has about {int(rows[largest]):,} rows of "
            f"{own[largest]:.0f} bytes, so a task "
            f"needs about {size_text(need, limits.memory)}. Each thread of the smallest worker has "
            f"{size_text(limits.memory)} (size of chunks: {limits.origin}). Use "
            f"{use}workers with "
            "more memory or fewer threads.",
            remedies=remedies,
        )


def check_blocksize(rows: float, row_bytes: float, limits: Limits) -> None:
    """Refuse a requested blocksize that makes too many chunks of one table, before they
    are made.
    """
    chunks = min(rows, rows * row_bytes / limits.chunk)
    if limits.chosen and chunks > MAX_SMALL_TASKS and rows < SMALL * chunks:
        # there are at least as many block pairs as chunks, because each chunk is
        # compared with itself
        raise _small_chunks(int(chunks), int(chunks), rows, row_bytes, limits)


def _small_chunks(
    blocks: int, chunks: int, rows: float, row_bytes: float, limits: Limits
) -> BudgetError:
    enough = math.ceil(max(1.0, min(SMALL, rows)) * row_bytes)
    return BudgetError(
        f"{limits.origin} makes {chunks:,} chunks of {rows / chunks:,.1f} rows on "
        "average, as each row takes "
        f"{row_bytes:,.0f} bytes with its results. They make at least {blocks:,} small "
        "block pairs, and at "
        f"most {MAX_SMALL_TASKS:,} are allowed. Leave blocksize= out, or use at least "
        f"blocksize={size_text(enough, up=True)!r}.",
        remedies=[
            Remedy({"blocksize": None}),
            Remedy({"blocksize": size_text(enough, up=True)}),
        ],
    )


def check_blocks(
    blocks: int,
    rows: np.ndarray,
    row_bytes: float,
    limits: Limits,
    by_region: Callable[[], int | None] = lambda: None,
) -> None:
    """Refuse more block pairs than Dask can schedule, and too many block pairs of small
    chunks.

    `rows` (chunks,): rows of each chunk.  `by_region`: function that returns the number
    of block pairs of spatial chunks; None: the join cannot have them.
    """
    chunks, all_rows = len(rows), float(rows.sum())
    if blocks > MAX_SMALL_TASKS and all_rows < SMALL * chunks and limits.chosen:
        raise _small_chunks(blocks, chunks, all_rows, row_bytes, limits)
    if blocks > MAX_TASKS:
        # assume that all chunks are compared: the number of block pairs is then
        # proportional to 1 / size**2
        size = (
            GRAIN
            * math.sqrt(blocks / MAX_TASKS)
            * max(limits.chunk, all_rows * row_bytes / chunks)
        )
        remedies = (
            [Remedy({"blocksize": size_text(size, up=True)})]
            if fits_task(size, limits)
            else []
        )
        fewer = by_region()
        remedies += (
            [Remedy({"partitioning": "spatial"})]
            if fewer is not None and fewer <= MAX_TASKS
            else []
        )
        use = [
            f"{name}={value!r}"
            for one in remedies
            for name, value in one.options.items()
        ]
        use += ["workers with more memory"] if limits.cluster or not use else []
        raise BudgetError(
            f"{chunks:,} chunks of at most {size_text(limits.chunk)} "
            f"({limits.origin}) make {blocks:,} "
            f"block pairs, and at most {MAX_TASKS:,} are allowed; use "
            f"{', or '.join(use)}.",
            remedies=remedies,
        )


def check_outputs(outputs: float, limits: Limits, cause: Cause) -> None:
    """Refuse more partitions of the result than Dask can schedule."""
    if outputs > MAX_TASKS:
        size = math.ceil(MARGIN * limits.output * outputs / MAX_TASKS)
        fits = fits_task(size, limits)
        config = {"simjoin.output-size": size_text(size, up=True)}
        larger = f"larger partitions, dask.config.set({config}), or " if fits else ""
        raise BudgetError(
            f"The result would have {outputs:,.0f} partitions of at most "
            f"{size_text(limits.output)}, and "
            f"at most {MAX_TASKS:,} are allowed; use "
            f"{larger}{cause.smaller}.{cause.without_pairs}",
            remedies=[
                *([Remedy(config=config)] if fits else []),
                *cause.counting,
            ],
        )


def check_result(
    rows: float,
    pair_bytes: float,
    limits: Limits,
    cause: Cause,
    counted: bool = False,
) -> None:
    """Refuse a result that is certainly larger than the configuration or the disk
    allows. `counted`: whether `rows` is exact.
    """
    need = rows * pair_bytes
    found = (
        f"{rows:,.0f} pair{'s' * (rows != 1)}"
        if counted
        else f"an estimated {about_many(rows)} pairs or more"
    )
    if need > limits.result:
        raise BudgetError(
            f"{cause.option} gives {found} ({size_text(need, limits.result)}). "
            f"{_limited(need, limits, cause.fewer_pairs)}",
            remedies=[
                Remedy(config=enough_result(need, limits.result)),
                *cause.counting,
            ],
        )


def check_nearest(rows: int, row_bytes: float, k: int, limits: Limits) -> None:
    """Refuse a nearest-neighbor join whose result is larger than the configuration or
    the disk allows.
    """
    need = rows * (row_bytes + NUMBER_BYTES)
    if need > limits.result:
        less = (
            "Use a smaller k, or max_distance=. If you only need one distance per row, "
            "use k_distances()."
        )
        raise BudgetError(
            f"k={shown(k)} gives {rows:,} rows ({size_text(need, limits.result)}). "
            f"{_limited(need, limits, less)}",
            remedies=[
                Remedy(config=enough_result(need, limits.result)),
                Remedy(verb="k_distances"),
            ],
        )


def _limited(need: float, limits: Limits, less: str) -> str:
    """Describe the limit of a result, and the remedies.

    `less`: sentences about options that make the result smaller.
    """
    where = (
        "you only aggregate the result, or write it to a disk with more than "
        f"{size_text(need, limits.result)} free"
        if limits.result_origin == FREE
        else "you have the space"
    )
    return (
        f"The limit is {size_text(limits.result)} ({limits.result_origin}). {less} "
        f"If {where}, raise the "
        f"limit: dask.config.set({enough_result(need, limits.result)})."
    )


def check_edges(pairs: float, max_eps: float, memory: int | None) -> None:
    """Refuse pairs whose edges do not fit in the memory of the process that orders the
    rows.
    """
    # an edge has two directions, and each is stored twice: by block pair, and by chunk
    need = 2 * pairs * 2 * ENTRY_BYTES
    if memory is not None and need > TREE_SHARE * memory:
        room = size_text(TREE_SHARE * memory, memory)
        raise BudgetError(
            f"max_eps={max_eps!r} gives an estimated {about_many(pairs)} pairs or more. "
            f"Their edges take {size_text(need, memory)}, and the process that "
            f"orders the rows has {room} for them. Use mode='forest', which stores at "
            "most one edge per row, a smaller max_eps, or more memory.",
            remedies=[Remedy({"mode": "forest"})],
        )


def check_order(rows: int, row_bytes: int, limits: Limits) -> None:
    """Refuse more rows than one worker can put in order."""
    need = row_bytes * rows
    if rows > MAX_ROWS or (limits.limit is not None and need > limits.limit):
        limit = "no limit" if limits.limit is None else size_text(limits.limit)
        takes = size_text(need, limits.limit or 1)
        raise BudgetError(
            f"One task puts all {rows:,} rows in order, which takes {takes}. The smallest "
            f"worker has {limit}, and at most {MAX_ROWS:,} rows can be ordered. Use "
            "larger workers."
        )


def check_tree(rows: int, min_rows: int | None, limits: Limits) -> None:
    """Refuse a table whose minimum spanning tree does not fit in a worker's memory.

    `min_rows`: minimum number of rows of a cluster; None: no clusters are made from the
    tree.
    """
    each = (
        ROW_BYTES
        if min_rows is None
        else max(ROW_BYTES, CHOSEN_BYTES + CLUSTER_BYTES // min_rows)
    )
    need, limit = each * rows, limits.limit
    if rows > MAX_ROWS or (limit is not None and need > TREE_SHARE * limit):
        place = (
            "no limit"
            if limit is None
            else f"{size_text(TREE_SHARE * limit, limit)} for it"
        )
        raise BudgetError(
            f"One task gets the spanning tree of all {rows:,} rows, which takes "
            f"{size_text(need, limit or 1)}. "
            f"The smallest worker has {place}, and a tree has at most {MAX_ROWS:,} "
            "rows. Use larger workers."
        )


def check_samples(samples: int | None, rows: int) -> None:
    """Refuse a `min_samples` that is larger than the number of rows; None: it was not
    given.
    """
    if samples is not None and 0 < rows < samples:
        raise OptionError(
            f"min_samples={samples} is more than the {rows:,} rows with coordinates, "
            "so no row is a core row "
            f"at any distance; use at most {rows:,}."
        )


def check_at_once(
    free: int | None,
    pairs: str,
    size: float,
    needs: str,
    use: str,
    remedies: Sequence[Remedy] = (),
) -> None:
    """Raise an error if all pairs do not fit in the memory of one task.

    `free`: bytes; None: no limit. `pairs`: how many they are. `size`: bytes of all
    pairs. `needs`: which option needs the pairs, and which request gives them. `use`:
    what to use instead.
    """
    if free is not None and size > free:
        raise BudgetError(
            f"{needs} gives {pairs}, which take {size_text(size, free)}, but "
            f"only {size_text(free)} are free. Use {use}",
            remedies=list(remedies),
        )


def check_matching(
    free: int | None, cause: Cause, pairs: float, counted: bool = True
) -> None:
    """Raise an error if all pairs of a one-to-one matching do not fit in the memory of
    one task. `free`: bytes; None: no limit. `counted`: whether `pairs` is exact.
    """
    mutual = (
        ", or knn_join(other, 1, mutual=True), which returns only pairs of rows that are "
        "nearest to each other"
    )
    check_at_once(
        free,
        f"{pairs:,.0f}" if counted else f"an estimated {about_many(pairs)} or more",
        pairs * ROW_BYTES,
        f"matching='greedy' needs all pairs at once: {cause.option}",
        f"{cause.smaller}{'' if cause.kind else mutual}.",
    )
