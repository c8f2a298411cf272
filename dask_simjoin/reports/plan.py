"""Reports of plans: the work of a join, and an estimate of its result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from dask_simjoin.planning.estimate import UNKNOWN
from dask_simjoin.planning.left_out import left_out_in_words
from dask_simjoin.planning.outputs import directions, making_tasks
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import READ_COPIES
from dask_simjoin.reports.facts import (
    COST_FACTS,
    MEMORY,
    RESULT_FACTS,
    ROWS,
    BlockReport,
    Facts,
    size,
    without,
)
from dask_simjoin.request.messages import listed, shown
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import FEW, NUMBER_BYTES

MACHINES = {
    False: "estimated for our benchmark CPU; yours will differ",
    True: "estimated from the memory bandwidth of this GPU",
}
"""Whether rows are on a GPU -> what the expected seconds are based on."""

MIN_DISK_SECONDS = 0.1
"""Work on the disk that takes less than this many seconds is not shown."""

INPUT_FACTS: Facts = (
    *ROWS,
    ("left out", lambda r: left_out_in_words(r.plan.tables.left_out)),
    ("dimensions", lambda r: f"{r._dimensions()}{r.spec.unnamed}"),
    ("conditions", lambda r: r.spec.coordinates.gates.in_words()),
    (
        "metric",
        lambda r: None if r.spec.metric.name == "euclidean" else r.spec.metric.name,
    ),
    ("distances", lambda r: r._distances),
    ("engine", lambda r: r.engine),
    ("partitioning", lambda r: r.plan.chunks.describe()),
    (
        "chunks",
        lambda r: (
            f"{r.chunks:,} ({size(r.plan.chunks.rows.sum() * r.plan.indexing.row_bytes)})"
        ),
    ),
    (
        "median chunk",
        lambda r: r._chunk(np.median(r.plan.chunks.rows) if r.chunks else 0.0),
    ),
    ("largest chunk", lambda r: r._chunk(r.plan.chunks.rows.max(initial=0.0))),
)
"""Facts about the input and its chunks."""

TIME_FACTS: Facts = (
    (
        "time",
        lambda r: f"about {r.seconds:.2g} s ({MACHINES[r.spec.library == 'cudf']})",
    ),
    (
        "",
        lambda r: _disk(
            r.plan.memory.disk.shuffling,
            f"of this to shuffle {size(r.shuffled_bytes)} of rows through the disk",
        ),
    ),
    (
        "",
        lambda r: _disk(
            r.plan.memory.disk.spilling,
            f"of this to spill {size(r.spilled_bytes)} of chunks",
        ),
    ),
    (
        "",
        lambda r: _disk(
            r.plan.memory.disk.writing, "more to write the pairs as parquet"
        ),
    ),
    ("one process", lambda r: r.faster_in_one_process),
    ("bytes read", lambda r: r._bytes_read),
)


@dataclass(frozen=True, repr=False, eq=False)
class PlanReport(BlockReport):
    """The work of a join, and an estimate of its result.

    Print it for a summary; a notebook shows a table and a picture of the block pairs.
    With two tables, chunk numbers begin at 0 in each table.

    Attributes
    ----------
    plan : Plan
        The plan itself.
    spec : JoinSpec
        The options of the join.
    rows : int
        Rows that take part.
    rows_left_out : int
        Rows of all tables that `dropna` leaves out.
    left_out : list of dict
        For each table, ``rows``, ``table_rows`` and ``reasons``: the number of rows that
        `dropna` leaves out, the number of all rows, and the numbers for each column and
        reason. A row with several reasons is counted for each of them.
    chunks, block_pairs : int
        Number of chunks, and of pairs of chunks to compare.
    partitions : int
        Partitions of the result.
    pairs, pairs_low, pairs_high : float
        Number of rows of the result: an estimate from a sample, and the ends of its 95
        % interval. `count_pairs` with the same options returns the exact number. If
        `counted`, all three are exact.
    counted : bool
        Whether pairs were counted, not estimated. They are counted if this costs no
        more than estimating: see `plan`.
    recall, recall_low, recall_high : float
        The share of the true pairs that the join finds, and its 95 % interval. It is
        1.0 without `approximate`. With `approximate` it is estimated from the sample,
        and is NaN if the sample has too few pairs. With `k` it is measured for some
        rows of a plain frame, and is NaN for a Dask DataFrame.
    result_bytes : int
        Estimated memory of the whole result.
    partition_bytes, task_bytes : int
        Estimated memory of the largest partition of the result, and of the largest
        task. A task holds its chunks, their indexes, and its part of the result.
    chunk_limit, partition_limit, result_limit : int
        Maximum sizes in bytes of a chunk, of a partition of the result, and of the
        whole result. For a plain frame there is one chunk and one partition, and free
        memory limits the result.
    partitioning : {"entity", "spatial", "replicated"}
        How rows are divided into chunks.
    method : str
        Name of the method.
    engine : str
        Description of how rows are searched within chunks.
    seconds : float
        Estimated time from the first task to the last, on idle cores of our benchmark
        CPU. For pandas, it is the time of the whole call.
    one_process_seconds : float or None
        Estimated time in this process without the cluster. None if there is no cluster,
        if the tasks run on GPUs, or if rows and result may not fit in the memory of
        this machine.
    writing_seconds : float
        Estimated additional time to write the pairs as parquet; 0 on GPUs, where it was
        not measured.
    spilled_bytes, shuffled_bytes : int
        Bytes of chunks, and bytes of shuffled rows, that do not fit in the memory of
        the workers. They are written to disk and read again; `seconds` includes the
        time for this.
    table_bytes : int
        Bytes of the rows that take part, with coordinates and ids.
    table_reads : float
        Expected bytes read / bytes of the table. It is 1.0 if each row is read once. It
        is larger if spilled chunks, which also have indexes, are read again. Shuffled
        rows do not count.
    """

    plan: Plan
    spec: JoinSpec

    _recall_unit = "pairs"
    _facts: ClassVar[Facts] = (*INPUT_FACTS, *RESULT_FACTS, *TIME_FACTS)
    _exported = (
        "pair_bytes",
        "title",
        "rows",
        "rows_left_out",
        "left_out",
        "chunks",
        "block_pairs",
        "partitions",
        "pairs",
        "pairs_low",
        "pairs_high",
        "counted",
        "recall",
        "recall_low",
        "recall_high",
        "result_bytes",
        "partitioning",
        "method",
        "engine",
        "seconds",
        "one_process_seconds",
        "writing_seconds",
        "spilled_bytes",
        "shuffled_bytes",
        "table_bytes",
        "table_reads",
        *MEMORY,
    )

    @property
    def _distances(self) -> str | None:
        """The unit of the returned distances. None if no distances are returned, or if
        they are in the unit of the columns.
        """
        if not self.spec.result.distance:
            return None
        unit = (
            self.spec.measure.unit
            if self.spec.result.unit is None
            else self.spec.result.unit.name
        )
        return f"in {unit}" if unit else None

    @property
    def title(self) -> str:
        kind = "join of two tables" if self._two else "self-join"
        return f"Plan of a {kind}, {self.spec.request}"

    @property
    def chunks(self) -> int:
        return len(self.plan.chunks)

    @property
    def recall(self) -> float:
        return self.plan.result.recall.share

    @property
    def recall_low(self) -> float:
        return self.plan.result.recall.low

    @property
    def recall_high(self) -> float:
        return self.plan.result.recall.high

    @property
    def partitioning(self) -> str:
        return self.plan.partitioning

    @property
    def method(self) -> str:
        return self.plan.layout.method

    @property
    def engine(self) -> str:
        return self.plan.layout.in_words(self._names)

    @property
    def seconds(self) -> float:
        return self.plan.expected

    @property
    def one_process_seconds(self) -> float | None:
        return self.plan.one_process

    @property
    def faster_in_one_process(self) -> str | None:
        """Describe the time in this process; None if the cluster is not slower."""
        seconds = self.one_process_seconds
        if seconds is None or seconds >= self.seconds:
            return None
        return f"about {seconds:.2g} s without the cluster, which is faster here"

    @property
    def writing_seconds(self) -> float:
        return self.plan.memory.disk.writing

    @property
    def spilled_bytes(self) -> int:
        return round(self.plan.memory.disk.spilled)

    @property
    def shuffled_bytes(self) -> int:
        return round(self.plan.memory.disk.shuffled)

    @property
    def table_bytes(self) -> int:
        return round(self.rows * self.plan.indexing.row_bytes)

    @property
    def table_reads(self) -> float:
        return 1 + self.plan.memory.disk.spilled / max(self.table_bytes, 1)

    @property
    def _bytes_read(self) -> str | None:
        """Describe how many bytes are read; None if all chunks fit in memory, so that
        each is read once.
        """
        if self.plan.work.visits is None:
            return None
        fit = f"{self.plan.work.visits.capacity:,} of {self.chunks:,} chunks fit in the memory of a worker"
        return f"{self.table_reads:.2g} times the bytes of the table (expected: {fit})"

    @property
    def _reading(self) -> str | None:
        rows = max(
            (rows for sources in self.plan.tables.sources for rows, _ in sources),
            default=0,
        )
        need = READ_COPIES * rows * self.plan.indexing.row_bytes
        if not self.spec.settings.cluster or need <= self.task_bytes:
            return None
        return f"about {size(need)} for the largest partition of the table"

    def _result_rows(self, pairs: float) -> float:
        return pairs * directions(self.spec) + (
            self.rows if self.spec.result.include_self else 0
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per block pair.

        Returns
        -------
        pandas.DataFrame
            Estimates, with these columns:

            - ``query_chunk``, ``data_chunk``: the numbers of the two chunks;
            - ``query_rows``, ``data_rows``: their rows;
            - ``candidates``: all pairs of rows of the two chunks, before indexes
              exclude any;
            - ``pairs``, ``pairs_low``, ``pairs_high``: rows of the result, with a 95 %
              interval for this block pair;
            - ``bytes``, ``partitions``: memory and partitions of the result;
            - ``seconds``: seconds of one thread.
        """
        plan, chunks = self.plan, self.plan.chunks
        i, j = plan.work.blocks[:, 0], plan.work.blocks[:, 1]
        self_pairs = (
            np.where(i == j, chunks.own_rows[i], 0.0)
            if self.spec.result.include_self
            else 0.0
        )
        estimate = plan.result.estimate
        pairs, low, high = (
            n * directions(self.spec) + self_pairs
            for n in (estimate.pairs, estimate.low, estimate.high)
        )
        return pd.DataFrame(
            {
                "query_chunk": i,
                "data_chunk": j - chunks.first_data,
                "query_rows": chunks.rows[i],
                "data_rows": chunks.rows[j],
                "candidates": chunks.candidates(plan.work.blocks),
                "pairs": pairs,
                "pairs_low": low,
                "pairs_high": high,
                "bytes": pairs * self.plan.result.pair_bytes,
                "partitions": plan.work.slices,
                "seconds": plan.work.seconds,
            }
        )

    @property
    def _sides(self) -> tuple[int, int]:
        sides = self.plan.chunks.sides
        return len(sides[0]), len(sides[-1])

    @property
    def _tasks(self) -> int:
        plan = self.plan
        join = self.partitions + int((plan.work.slices > 1).sum()) * (
            not plan.work.even
        )
        return (
            self._making_tasks()
            + join
            - self.chunks * (plan.indexing.read_apart and plan.chunks_are_partitions)
        )

    def _making_tasks(self) -> int:
        if not self.plan.indexing.read_apart:
            return self.chunks
        return making_tasks(
            self.plan.chunks, self.plan.tables.sources, self.spec.settings.cluster
        )

    @property
    def _largest_bytes(self) -> float:
        return (
            float(self.plan.chunks.rows.max(initial=0.0)) * self.plan.indexing.row_bytes
        )

    def _chunk(self, rows: float) -> str:
        return f"{rows:,.0f} rows, {size(rows * self.plan.indexing.row_bytes)}"

    @property
    def _recall(self) -> str | None:
        return (
            self.plan.result.recall.in_words(self._recall_unit)
            if self.spec.search.approximate
            else None
        )

    @property
    def _neighbors(self) -> float:
        # in a self-join, each pair is a neighbor for both of its rows
        ends = 1 if self._two else 2
        return ends * self.plan.result.estimate.total / max(self.plan.tables.rows[0], 1)

    def _dimensions(self) -> str:
        spec = self.spec
        dims = self.plan.tables.dims - spec.words
        if spec.coordinates.lists:
            whole = spec.with_dims(self.plan.tables.dims)
            dims = whole.compared.numbers or dims
            return f"{dims:,}: the numbers of each list in {spec.on[0]!r}"
        if not spec.measure.axes:
            return f"{dims:,}: {self._names(range(dims))}"
        on = spec.shown_columns
        points = self._names(range(dims))
        if spec.measure.formula:
            return f"{len(on)}: {listed(on, FEW)}"
        where = "in a periodic box" if spec.coordinates.box else "on a sphere"
        return f"{len(on)}: {listed(on, FEW)}, as points {points} {where}"

    def _names(self, places: Iterable[int]) -> str:
        if self.spec.coordinates.lists:
            number = len(list(places))
            return (
                f"the {number:,} numbers that vary most"
                if number > 1
                else "the number that varies most"
            )
        axes = self.spec.measure.axes or self.spec.on
        return listed([axes[k] for k in places], FEW)


@dataclass(frozen=True, repr=False, eq=False)
class NearestPlanReport(PlanReport):
    """The plan of a nearest-neighbor join; see `PlanReport`.

    Attributes
    ----------
    k : int
        Number of neighbors.
    bound, least : float
        Largest and smallest distance that a neighbor may have, in the form that is
        compared: for example, squared distances.
    block_pairs : int
        Number of searches for the neighbors of one chunk in another chunk.
    pairs, pairs_low, pairs_high : float
        Number of rows of the result. If distances have bounds, `pairs` and `pairs_high`
        are the maximum, and `pairs_low` is 0.
    counted : bool
        Whether the number of pairs is exact.
    """

    k: int = 1
    bound: float = math.inf
    least: float = 0.0

    _picture_column, _recall_unit = "candidates", "neighbors"
    _facts = (
        *INPUT_FACTS,
        ("neighbors", lambda r: r._fewer),
        ("recall", lambda r: r._recall),
        (
            "block pairs",
            lambda r: f"at most {r.block_pairs:,} of {math.prod(r._sides):,} possible",
        ),
        (
            "result",
            lambda r: (
                f"{'at most ' * r._bounded}{r.pairs:,.0f} rows, {size(r.result_bytes)}"
            ),
        ),
        ("partitions", lambda r: f"{r.partitions:,}"),
        *without(COST_FACTS, ""),
    )

    @property
    def title(self) -> str:
        return f"Plan of a nearest-neighbor join, k={shown(self.k)}"

    @property
    def block_pairs(self) -> int:
        return sum(map(len, self.plan.work.searches))

    @property
    def pairs(self) -> float:
        return float(self.plan.rows_found(self.k))

    @property
    def pairs_low(self) -> float:
        return 0.0 if self._bounded else self.pairs

    @property
    def pairs_high(self) -> float:
        return self.pairs

    @property
    def counted(self) -> bool:
        return not self._bounded

    @property
    def pair_bytes(self) -> float:
        return self.plan.result.pair_bytes + NUMBER_BYTES

    @property
    def _largest_partition(self) -> float:
        slices = self.plan.work.slices
        rows = (self.plan.chunks.rows[: len(slices)] / slices).max(initial=0.0)
        return (
            float(rows)
            * self.pairs
            / max(1, self.plan.tables.rows[0])
            * self.pair_bytes
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each query chunk and each data chunk that it searches.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``, ``query_rows``, ``data_rows`` and
            ``candidates``, as in `PlanReport`. The order is the order of the search,
            nearest chunks first.
        """
        plan = self.plan
        numbers = np.repeat(
            np.arange(len(plan.work.searches)),
            [len(found) for found in plan.work.searches],
        )
        found = np.concatenate([np.zeros(0, np.int64), *plan.work.searches])
        rows = plan.chunks.rows
        return pd.DataFrame(
            {
                "query_chunk": numbers,
                "data_chunk": found - plan.chunks.first_data,
                "query_rows": rows[numbers],
                "data_rows": rows[found],
                "candidates": rows[numbers] * rows[found],
            }
        )

    @property
    def _bounded(self) -> bool:
        return self.bound < math.inf or self.least > 0

    @property
    def _fewer(self) -> str | None:
        neighbors = self.plan.rows_found(self.k) // max(1, self.plan.tables.rows[0])
        if neighbors >= self.k:
            return None
        return f"at most {neighbors:,} per row, because there are no more rows: k={shown(self.k)} is larger"

    @property
    def _recall(self) -> str | None:
        if self.spec.search.approximate and self.plan.result.recall is UNKNOWN:
            return (
                "unknown, as a sample is less dense than the table; "
                f"profile(k={shown(self.k)}) measures it"
            )
        return super()._recall

    @property
    def _tasks(self) -> int:
        if self.plan.work.at_once:
            return self._making_tasks() + 1 + self.partitions
        work = self.plan.work
        parts, slices = work.parts, work.slices
        groups = np.array([len(work.groups(c)) for c in range(len(parts))], np.int64)
        # a task that searches all near chunks also makes the rows, if they are one part
        divided = (parts > 1) | (groups > 1)
        searches = int((groups * (parts + slices))[divided].sum())
        return (
            self._making_tasks()
            + searches
            + self.partitions
            + int(slices[parts > 1].sum())
        )


def _disk(seconds: float, what: str) -> str | None:
    """Describe the seconds of some work on the disk; None if they are too few to
    matter.
    """
    return f"{seconds:.2g} s {what}" if seconds >= MIN_DISK_SECONDS else None
