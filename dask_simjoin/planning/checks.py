"""Checks of a plan: refusals before any task of the join runs."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.columns import A_NUMBER
from dask_simjoin.errors import (
    BudgetError,
    CoordinateError,
    OptionError,
    PartitionSizeError,
    Remedy,
)
from dask_simjoin.metrics.norms import add, reach
from dask_simjoin.planning.budget import PEAK, Cause, enough_result
from dask_simjoin.planning.limits import FREE, NEED, SHARE, Limits
from dask_simjoin.planning.partition import PartitionSummary
from dask_simjoin.planning.sample import moments
from dask_simjoin.request.column_names import are_points
from dask_simjoin.request.messages import (
    about_many,
    counted,
    listed,
    shown,
    size_text,
)
from dask_simjoin.request.spec import JoinSpec, check_dims
from dask_simjoin.request.units import check_threshold
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


def check_radii(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse the column of radii if it has missing, negative or infinite values."""
    for number, summary in enumerate(summaries):
        many, label = summary.bad_radii
        if many:
            where = f" in partition {number}" if len(summaries) > 1 else ""
            raise CoordinateError(
                f"eps={spec.radius!r} names a column of distances. {many:,} of them "
                f"{'is' if many == 1 else 'are'} missing, negative or infinite (first "
                f"at label {label}{where}). Distances must be finite "
                "numbers >= 0: fill them, or drop those rows first."
            )
    largest = max((summary.largest_radius for summary in summaries), default=0.0)
    given = f"eps={spec.radius!r} names a column of distances. {largest!r}"
    check_threshold(largest, spec.measure, given, "these distances")


def check_totals(
    boxes: list[tuple[np.ndarray, np.ndarray]], spec: JoinSpec, bounded: bool
) -> None:
    """Refuse a search without a largest distance if distances could overflow.

    `boxes`: lower and upper bounds of the coordinates of each table. `bounded`: whether
    the verb has an option for the largest distance. No computed total is larger than the total
    of the farthest corners, because rounding is monotone.
    """
    (lower, upper), (low, high) = boxes[0], boxes[-1]
    metric, dims = spec.measure, len(lower) - spec.coordinates.added
    total: float = np.float64(0.0)
    with np.errstate(over="ignore"):
        width = np.maximum(upper - low, high - lower)
        for k in range(dims):
            total = add(total, width[k], metric.norm)
    # most boxes are far smaller, and the largest distance takes some time to find
    if total < SAFE_TOTAL:
        return
    most = float(metric.threshold(metric.largest_eps()))
    if total <= most:
        return
    # half of the width, which does not overflow
    half = np.maximum(upper / 2 - low / 2, high / 2 - lower / 2)[:dims]
    largest = int(np.argmax(half))
    column = "" if spec.coordinates.lists else f" of column {spec.on[largest]!r}"
    finite = np.isfinite(width[largest])
    apart = f"up to {width[largest]:.4g}" if finite else "more than 1.8e308"
    limit = f"pass {spec.limit.option}=, or " if bounded else ""
    # the smallest power after which no total overflows, or one slightly larger
    allowed = math.frexp(reach(metric.norm, most))[1] - math.frexp(dims)[1]
    scale = math.frexp(half[largest])[1] + 3 - allowed
    raise CoordinateError(
        f"Coordinates{column} are {apart} apart. With "
        f"metric={spec.metric.name!r}, distances of such rows may be more than the largest "
        f"float64, so the nearest rows are not known. To find them, {limit}"
        f"divide the coordinates by a power of two, such as 2.0**{scale}."
    )


SAFE_TOTAL = 1e300
"""Totals below this do not overflow, and neither do the powers of their distances."""


def resolve_dims(
    summaries: list[PartitionSummary], spec: JoinSpec
) -> tuple[list[PartitionSummary], JoinSpec]:
    """Set the number of dimensions in the summaries and in the spec.

    Refuse coordinates that cannot be joined.
    """
    check_coordinates(summaries, spec)
    found = [(n, s.dims) for n, s in enumerate(summaries) if s.dims is not None]
    dims = found[0][1] if found else spec.coordinates.dims or 1
    for number, other in found:
        if other != dims:
            raise CoordinateError(
                f"The lists of column {spec.on[0]!r} must be of equal length: lists of "
                "partition "
                f"{found[0][0]} have {dims} numbers, and lists of partition {number} "
                f"have {other}. {_same_length(spec.on[0])}"
            )
    if not dims:
        raise CoordinateError(
            f"The lists of column {spec.on[0]!r} are empty; each needs at least one "
            "number."
        )
    if spec.coordinates.dims != dims:
        spec = spec.with_dims(dims)
        check_dims(spec)
    nowhere = moments(np.empty((0, dims)))
    return [
        s if s.moments.rows else replace(s, moments=nowhere) for s in summaries
    ], spec


SHAPES = re.compile(
    r"an? ((Multi)?(Point|LineString|Polygon)|LinearRing|GeometryCollection)"
)
"""Matches the types of shapely's geometries."""


def _same_length(name: Hashable) -> str:
    """Return the sentence that recommends to keep the lists of a Dask DataFrame that
    have the most frequent length.
    """
    return (
        "To keep the lists of the most frequent length: "
        f"n = df[{name!r}].map(len, na_action='ignore', meta=({name!r}, 'float64')). "
        "Then df = df[n == max(n.mode())]."
    )


MOST_LENGTHS = 3
"""Number of lengths of lists that a message names."""


def _unlike_lengths(
    name: Hashable, summary: PartitionSummary, number: int, partitions: int
) -> CoordinateError:
    """Return the error for lists of several lengths. `number`: of the partition with
    these lists.
    """
    # of several frequent lengths, the largest, as in `_same_length`
    frequent = max(summary.lengths, key=lambda one: (one[1], one[0]))
    others = [one for one in summary.lengths if one is not frequent]
    named = [
        one for one in summary.lengths if one in (frequent, *others[: MOST_LENGTHS - 1])
    ]
    *texts, last = [
        f"{counted(many, 'list')} {'has' if many == 1 else 'have'} length {length} "
        f"(first in row {row}, label {label})"
        for length, many, row, label in named
    ]
    if rest := sum(one[1] for one in others[MOST_LENGTHS - 1 :]):
        texts.append(last)
        last = f"{counted(rest, 'list')} {'has' if rest == 1 else 'have'} other lengths"
    where = f"in partition {number}, " if partitions > 1 else ""
    use = (
        _same_length(name)
        if partitions > 1
        else f"To keep only the lists of length {frequent[0]}: "
        f"df = df[df[{name!r}].map(len, na_action='ignore') == {frequent[0]}]."
    )
    return CoordinateError(
        f"Column {name!r} must hold lists of numbers of equal length, but {where}"
        f"{', '.join(texts)} and {last}. {use}"
    )


def _unlike(name: Hashable, what: str, where: str) -> CoordinateError:
    """Return the error for a row of a column that has no list of numbers. `what`: the
    value; `where`: its row.
    """
    kind, column = what.partition(",")[0], f"df[{name!r}]"
    if "not a list" not in what:
        return CoordinateError(
            f"Column {name!r} must hold lists of numbers of equal length: {where} holds "
            f"{what}. Leave such rows out first, or convert the lists."
        )
    if what.endswith(A_NUMBER):
        return CoordinateError(
            f"Column {name!r} holds {kind} in {where}, but coordinates must be "
            "integers or floats. If all values are numbers, convert them: "
            f"{column} = {column}.astype('float64'). This rounds each to the nearest "
            "float64."
        )
    problem = (
        f"Column {name!r} holds {kind} in {where}, but coordinates must be numbers, or "
        "lists of numbers of equal length."
    )
    if SHAPES.fullmatch(kind):
        return CoordinateError(
            f"{problem} Shapes cannot be joined; use the coordinates of their "
            f"centroids: {column} = {column}.map(lambda shape: [shape.centroid.x, "
            "shape.centroid.y])."
        )
    if kind in ("a date", "a datetime"):
        return CoordinateError(
            f"{problem} For rows that are near in time as well, use on= with the other "
            f"columns and within={{{name!r}: '1 d'}}. To use the times in seconds: "
            f"{column} = pd.to_datetime({column}).map(pd.Timestamp.timestamp)."
        )
    return CoordinateError(
        f"{problem} If other rows hold lists, leave such rows out first. Otherwise "
        "name columns of numbers with on=."
    )


DROPNA = "Use dropna=True"
"""Begins the remedy for missing values."""


@contextlib.contextmanager
def without_dropna(instead: str) -> Iterator[None]:
    """Replace the remedy for missing values where `dropna` is not an option."""
    try:
        yield
    except CoordinateError as error:
        problem, dropna, _ = str(error).partition(DROPNA)
        if dropna:
            error.args = (f"{problem}{instead}",)
        raise


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


def check_coordinates(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse values that are not finite, not allowed by the metric, or not exact in
    float64.
    """
    for number, summary in enumerate(summaries):
        if summary.unlike is not None:
            if summary.lengths:
                raise _unlike_lengths(spec.on[0], summary, number, len(summaries))
            row, what, label = summary.unlike
            place = _place(row, number, label, len(summaries))
            raise _unlike(spec.on[0], what, place)
    problems, groups, gates = [], "", spec.coordinates.gates
    for name in spec.on:
        found = [(n, *s.bad[name]) for n, s in enumerate(summaries) if name in s.bad]
        if not found:
            continue
        number, *_, label = found[0]
        where = f"(first at label {label}{f' in partition {number}' if len(summaries) > 1 else ''})"
        missing, infinite = sum(bad[1] for bad in found), sum(bad[2] for bad in found)
        if spec.coordinates.by and name == spec.on[len(spec.named)]:
            lacking = f"{listed(spec.coordinates.by)}, missing in {counted(missing, 'row')} {where}"
            groups = f"Columns of by= must not have missing values: {lacking}. "
            continue
        is_gate = name in gates.columns
        if is_gate:
            name = gates.within[gates.columns.index(str(name))]
        kinds = [
            f"{counted(many, 'row')} with {kind} numbers"
            if spec.coordinates.lists and not is_gate
            else counted(many, f"{kind} value")
            for many, kind in ((missing, "missing"), (infinite, "infinite"))
            if many
        ]
        if are_points(spec.named) and not infinite and not is_gate:
            # both coordinates of a missing point are missing
            kinds = [
                f"{missing:,} missing or empty geometr{'y' if missing == 1 else 'ies'}"
            ]
            name = str(name)[:-2]
        problem = f"column {name!r} has {' and '.join(kinds)} {where}"
        if problem not in problems:
            problems.append(problem)
    if problems or groups:
        numbers = (
            f"Coordinates must be finite numbers: {'; '.join(problems)}. "
            if problems
            else ""
        )
        raise CoordinateError(
            f"{numbers}{groups}{DROPNA} (those rows then have no partner), or "
            f"{'drop such rows' if are_points(spec.named) else 'replace these values'} first."
        )
    _check_directions(summaries, spec)
    _check_limits(summaries, spec)
    _check_box(summaries, spec)
    _check_allowed(summaries, spec)
    for name in spec.on:
        for number, summary in enumerate(summaries):
            if name in summary.inexact:
                raise CoordinateError(
                    f"Column {name!r} holds the integer {summary.inexact[name]}"
                    f"{f' (partition {number})' if len(summaries) > 1 else ''}. Beyond "
                    "2**53, float64 cannot represent every integer. If these are ids, "
                    f"use id={name!r} and other coordinates. Otherwise subtract an "
                    "offset first. Or, if rounding is fine, convert the column: "
                    f"df[{name!r}] = df[{name!r}].astype('float64')."
                )


def _place(row: int, number: int, label: str, partitions: int) -> str:
    """Return the place of a row, with its partition if there are several."""
    where = f" of partition {number}" if partitions > 1 else ""
    return f"row {row}{where} (label {label})"


def _check_directions(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    found = [(n, s.zero) for n, s in enumerate(summaries) if s.zero is not None]
    if found:
        number, (_, row, label) = found[0]
        zeros = sum(zero[0] for _, zero in found)
        rows, it = (
            ("There is 1 such row: ", "it")
            if zeros == 1
            else (f"There are {zeros:,} such rows; the first is ", "them")
        )
        place = _place(row, number, label, len(summaries))
        raise CoordinateError(
            f"metric={spec.metric.name!r} compares directions, and a row of zeros has no "
            f"direction. {rows}{place}. {DROPNA} to leave {it} out, or drop {it} first."
        )


class Outside(NamedTuple):
    """The values of a column that are outside its limits."""

    name: Hashable
    number: int
    markers: int  # how many of them often stand for a missing value
    example: str  # with its place

    @property
    def counted(self) -> str:
        return counted(self.number, "value")


def _outside(
    summaries: list[PartitionSummary], spec: JoinSpec, *each: Iterable[Any]
) -> Iterator[tuple[Any, ...]]:
    """For each column with values outside its limits, yield the `Outside`, and what
    `each` has for the column.
    """
    for name, *about in zip(spec.on, *each, strict=False):
        found = [
            (n, s.beyond[name]) for n, s in enumerate(summaries) if name in s.beyond
        ]
        if found:
            partition, first = found[0]
            where = f" in partition {partition}" if len(summaries) > 1 else ""
            number = sum(beyond.number for _, beyond in found)
            markers = sum(beyond.markers for _, beyond in found)
            example = f"{first.example!r} at label {first.label}{where}"
            yield Outside(name, number, markers, example), *about


def _check_box(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse coordinates outside a periodic box."""
    for found, length in _outside(summaries, spec, spec.coordinates.box):
        raise CoordinateError(
            f"Column {found.name!r} has {found.counted} outside the box, 0 to "
            f"{length:g}: for example {found.example}. To wrap them: "
            f"df[{found.name!r}] %= {length!r}."
        )


def _check_allowed(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    """Refuse numbers that the formula of a metric does not allow."""
    metric = spec.measure
    if not metric.formula:
        return
    for found, (least, most) in _outside(summaries, spec, metric.limits):
        raise CoordinateError(
            f"metric={metric.name!r} compares numbers from {least:g} to {most:g}. "
            f"Column {found.name!r} has {found.counted} outside this range: for example "
            f"{found.example}. Drop such rows, or use another metric, such as "
            "'manhattan'."
        )


def _check_limits(summaries: list[PartitionSummary], spec: JoinSpec) -> None:
    metric = spec.measure
    limits = metric.columns, metric.limits
    for found, wanted, (lowest, highest) in _outside(summaries, spec, *limits):
        name = found.name
        text = (
            f"Column {name!r} has {found.counted} outside the range of a "
            f"{wanted} in degrees, {lowest:g} to {highest:g}: for example "
            f"{found.example}."
        )
        drop = (
            f"Drop such rows first: df = df[df[{name!r}].between({lowest:g}, "
            f"{highest:g})]. dropna=True does not help: it leaves out only missing "
            f"values. To treat them as missing: df[{name!r}] = df[{name!r}].where("
            f"df[{name!r}].between({lowest:g}, {highest:g})), then dropna=True."
        )
        swapped = (
            f"Use metric={spec.metric.name!r} with {' and '.join(metric.columns)}, in "
            "this order, in degrees. The columns may be swapped, or their values "
            "may have another unit, such as meters."
        )
        mark = 91 if wanted == metric.columns[0] else 181
        marks = f"{mark} often stands for 'not available', as in AIS."
        if found.markers == found.number:
            raise CoordinateError(f"{text} {marks} {drop}")
        if found.markers > 1:
            raise CoordinateError(f"{text} {swapped} But {marks} {drop}")
        raise CoordinateError(f"{text} {swapped}")
