"""Reports of plans: what a join would run, and how much it would give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.planning.checks import RANK_BYTES
from dask_simjoin.planning.outputs import directions, making_tasks
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.statistics.recall import UNKNOWN
from dask_simjoin.reports.block_pairs import COST_FACTS, RESULT_FACTS, BlockReport
from dask_simjoin.reports.facts import Facts
from dask_simjoin.request.messages import shown
from dask_simjoin.request.spec import JoinSpec

MAX_NAMES = 6
"""Columns that are named."""

MIN_DISK_SECONDS = 0.1
"""Seconds of the disk that are worth a line."""

INPUT_FACTS = (
    ("rows", "{_table_rows}"),
    ("dimensions", "{_dimensions}{spec.unnamed}"),
    ("metric", "{_metric}"),
    ("engine", "{engine}"),
    ("partitioning", "{plan.chunks.describe}"),
    ("chunks", "{chunks:,} ({_chunk_bytes:bytes})"),
    ("median chunk", "{_median_chunk}"),
    ("largest chunk", "{_largest_chunk}"),
)
"""Of what is joined, and of its chunks."""

TIME_FACTS = (
    ("time", "about {seconds:.2g} s, on idle cores like those that were measured"),
    ("", "{_shuffling:.2g} s of it to shuffle {shuffled_bytes:bytes} of rows through the disk"),
    ("", "{_spilling:.2g} s of it to spill {spilled_bytes:bytes} of chunks"),
    ("", "{_writing:.2g} s more to write the pairs as parquet"),
)


@dataclass(frozen=True, repr=False, eq=False)
class PlanReport(BlockReport):
    """What a join would run, and what it would give.  Chunks of two tables are numbered by table.

    Print it for a summary; a notebook shows a table and a picture of the block pairs.

    Attributes
    ----------
    plan : Plan
    spec : JoinSpec
        The options that it was made for.
    rows : int
        Rows that take part.
    chunks, block_pairs : int
        How many there are.
    partitions : int
        Partitions of the result.
    pairs, pairs_low, pairs_high : float
        Rows of the result, as `count_pairs` with the same options counts them: an estimate from a
        sample, and where the true number lies with a chance of 95 %.
    recall, recall_low, recall_high : float
        The share of the true pairs that the join finds, of which `pairs` are the number: 1.0 but with
        `approximate=True`, where it is expected from the sample; NaN where that has too few pairs.  With
        `k` it is measured by some of the rows of a plain frame, and NaN of others.
    result_bytes : int
        Memory of the whole result, expected.
    partitioning : {"entity", "spatial"}
    method : str
    engine : str
        How chunks are searched, in words.
    seconds : float
        Expected from the first task to the last, on idle cores like those that were measured.
    writing_seconds : float
        Expected besides where the pairs are written as parquet; 0 on GPUs, where it was not measured.
    spilled_bytes, shuffled_bytes : int
        Of chunks, and of rows on their way to chunks, that workers have no room for: they are written to the
        disk and read again, for which `seconds` has the time.
    """

    plan: Plan
    spec: JoinSpec

    _facts: ClassVar[Facts] = (*INPUT_FACTS, *RESULT_FACTS, *TIME_FACTS)
    _exported = (
        "pair_bytes", "title", "rows", "chunks", "block_pairs", "partitions", "pairs", "pairs_low",
        "pairs_high", "recall", "recall_low", "recall_high", "result_bytes", "partitioning", "method",
        "engine", "seconds", "writing_seconds", "spilled_bytes", "shuffled_bytes",
    )  # fmt: skip

    @property
    def title(self) -> str:
        spec, unit = self.spec, self.spec.measure.unit
        eps = spec.eps if spec.radius is None else repr(spec.radius)
        kind = "join of two tables" if self._two else "self-join"
        return f"Plan of a {kind}, eps={eps}{unit and f' {unit}'}"

    @property
    def chunks(self) -> int:
        return len(self.plan.chunks)

    @property
    def recall(self) -> float:
        return self.plan.recall.share

    @property
    def recall_low(self) -> float:
        return self.plan.recall.low

    @property
    def recall_high(self) -> float:
        return self.plan.recall.high

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
    def writing_seconds(self) -> float:
        return self.plan.disk.writing

    @property
    def spilled_bytes(self) -> int:
        return round(self.plan.disk.spilled)

    @property
    def shuffled_bytes(self) -> int:
        return round(self.plan.disk.shuffled)

    def _result_rows(self, pairs: float) -> float:
        return pairs * directions(self.spec) + (self.rows if self.spec.include_self else 0)

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``: their numbers; ``query_rows``, ``data_rows``: the points
            expected in them; ``candidates``: pairs of points that would be compared if the index left
            out none; ``pairs``, ``pairs_low``, ``pairs_high``, ``bytes``: of the result, expected, each
            block's interval being one of 95 % by itself; ``partitions``: of the result; ``seconds``: of one
            thread, expected.
        """
        plan, chunks = self.plan, self.plan.chunks
        i, j = plan.blocks[:, 0], plan.blocks[:, 1]
        itself = np.where(i == j, chunks.own_rows[i], 0.0) if self.spec.include_self else 0.0
        found = plan.estimate
        pairs, low, high = (n * directions(self.spec) + itself for n in (found.pairs, found.low, found.high))
        return pd.DataFrame({
            "query_chunk": i, "data_chunk": j - chunks.first_data,
            "query_rows": chunks.rows[i], "data_rows": chunks.rows[j],
            "candidates": chunks.candidates(plan.blocks), "pairs": pairs, "pairs_low": low,
            "pairs_high": high, "bytes": pairs * self.plan.pair_bytes, "partitions": plan.slices,
            "seconds": plan.seconds,
        })  # fmt: skip

    @property
    def _sides(self) -> tuple[int, int]:
        sides = self.plan.chunks.sides
        return len(sides[0]), len(sides[-1])

    def _task_count(self) -> int:
        plan = self.plan
        join = self.partitions + int((plan.slices > 1).sum())
        return self._making_tasks() + join - self.chunks * plan.chunks_are_partitions

    def _making_tasks(self) -> int:
        return making_tasks(self.plan.chunks, self.plan.sources, self.spec.settings.cluster)

    def _largest_bytes(self) -> float:
        return float(self.plan.chunks.rows.max(initial=0.0)) * self.plan.row_bytes

    def _chunk_bytes(self) -> float:
        return self.plan.chunks.rows.sum() * self.plan.row_bytes

    def _median_chunk(self) -> str:
        rows = self.plan.chunks.rows
        return self._chunk(float(np.median(rows)) if len(rows) else 0.0)

    def _largest_chunk(self) -> str:
        return self._chunk(float(self.plan.chunks.rows.max(initial=0.0)))

    def _chunk(self, rows: float) -> str:
        return f"{rows:,.0f} rows, {format_bytes(round(rows * self.plan.row_bytes))}"

    def _metric(self) -> str | None:
        return None if self.spec.metric == "euclidean" else self.spec.metric

    def _recall(self) -> str | None:
        return self.plan.recall.in_words() if self.spec.approximate else None

    def _neighbors(self) -> float | None:
        ends = 1 if self._two else 2  # of a pair, that are rows of the left table
        return ends * self.plan.estimate.total / max(self.plan.table_rows[0], 1)

    def _shuffling(self) -> float | None:
        return _disk_seconds(self.plan.disk.shuffling)

    def _spilling(self) -> float | None:
        return _disk_seconds(self.plan.disk.spilling)

    def _writing(self) -> float | None:
        return _disk_seconds(self.plan.disk.writing)

    def _dimensions(self) -> str:
        spec, dims = self.spec, self.plan.dims
        if spec.lists:
            return f"{dims:,}, the numbers of each list in {spec.on[0]!r}"
        if not spec.measure.axes:
            return f"{dims:,}: {self._names(range(dims))}"
        return f"{len(spec.on)}: {_listed(spec.on)}, as points {self._names(range(dims))} of a sphere"

    def _names(self, places: Iterable[int]) -> str:
        if self.spec.lists:
            number = len(list(places))
            return f"the {number:,} numbers that vary most" if number > 1 else "the number that varies most"
        axes = self.spec.measure.axes or self.spec.on
        return _listed([axes[k] for k in places])


@dataclass(frozen=True, repr=False, eq=False)
class NearestPlanReport(PlanReport):
    """The plan of a join with nearest neighbors; see `PlanReport`.

    Attributes
    ----------
    k : int
    bound : float
        The largest total of a neighbor.
    block_pairs : int
        Chunks that are searched, for all chunks of rows.
    pairs, pairs_low, pairs_high : float
        The most rows that the result can have, and the fewest if no largest distance is set.
    """

    k: int = 1
    bound: float = math.inf

    _drawn = "candidates"
    _facts = (
        *INPUT_FACTS,
        ("neighbours", "{_available:,} of a row at most, which is all: k={_shown_k} asks for more"),
        ("recall", "{_recall}"),
        ("block pairs", "{block_pairs:,} visited at most, of {_possible:,} possible"),
        ("result", "{_at_most}{pairs:,.0f} rows, {result_bytes:bytes}"),
        ("partitions", "{partitions:,}"),
        *COST_FACTS,
    )

    @property
    def title(self) -> str:
        return f"Plan of a join with nearest neighbours, k={shown(self.k)}"

    @property
    def block_pairs(self) -> int:
        return sum(map(len, self.plan.searches))

    @property
    def partitions(self) -> int:
        return max(len(self.plan.counted), 1)

    @property
    def pairs(self) -> float:
        return float(self.plan.rows_found(self.k))

    @property
    def pairs_low(self) -> float:
        return 0.0 if self.bound < math.inf else self.pairs

    @property
    def pairs_high(self) -> float:
        return self.pairs

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes + RANK_BYTES

    def to_frame(self) -> pd.DataFrame:
        """One row for each chunk of rows and each chunk that is searched for their neighbours.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``, ``query_rows``, ``data_rows``, ``candidates``; in the order of
            the search, the nearest chunks first.
        """
        plan = self.plan
        numbers = np.repeat(np.arange(len(plan.searches)), [len(found) for found in plan.searches])
        found = np.concatenate([np.zeros(0, np.int64), *plan.searches])
        rows = plan.chunks.rows
        return pd.DataFrame({
            "query_chunk": numbers, "data_chunk": found - plan.chunks.first_data, "query_rows": rows[numbers],
            "data_rows": rows[found], "candidates": rows[numbers] * rows[found],
        })  # fmt: skip

    def _output_limit(self) -> None:
        return None

    def _shown_k(self) -> str:
        return shown(self.k)

    def _available(self) -> int | None:
        """Neighbors that each row has, if those are fewer than `k`."""
        every = self.plan.rows_found(self.k) // max(1, self.plan.table_rows[0])
        return every if every < self.k else None

    def _at_most(self) -> str:
        return "at most " if self.bound < math.inf else ""

    def _possible(self) -> int:
        return math.prod(self._sides)

    def _recall(self) -> str | None:
        if not self.spec.approximate:
            return None
        if self.plan.recall is UNKNOWN:
            return (
                f"not told by a sample, in which rows are less dense; profile(k={shown(self.k)}) measures it"
            )
        return self.plan.recall.in_words("neighbours")

    def _task_count(self) -> int:
        return self._making_tasks() + 2 * self.block_pairs + self.partitions


def _disk_seconds(seconds: float) -> float | None:
    return seconds if seconds >= MIN_DISK_SECONDS else None


def _listed(names: Sequence[Any]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(repr, names[:MAX_NAMES])) + more
