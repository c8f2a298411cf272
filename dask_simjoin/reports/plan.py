"""Reports of plans: what a join would run, and how much it would give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dask_simjoin.planning.checks import RANK_BYTES
from dask_simjoin.planning.outputs import directions, making_tasks
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.statistics.estimate import UNKNOWN
from dask_simjoin.reports.block_pairs import COST_FACTS, RESULT_FACTS, ROWS, BlockReport
from dask_simjoin.reports.facts import Facts, size, without
from dask_simjoin.request.messages import shown
from dask_simjoin.request.spec import JoinSpec

MAX_NAMES = 6
"""Columns that are named."""

MIN_DISK_SECONDS = 0.1
"""Seconds of the disk that are worth a line."""

INPUT_FACTS: Facts = (
    *ROWS,
    ("dimensions", lambda r: f"{r._dimensions()}{r.spec.unnamed}"),
    ("metric", lambda r: None if r.spec.metric == "euclidean" else r.spec.metric),
    ("engine", lambda r: r.engine),
    ("partitioning", lambda r: r.plan.chunks.describe()),
    ("chunks", lambda r: f"{r.chunks:,} ({size(r.plan.chunks.rows.sum() * r.plan.row_bytes)})"),
    ("median chunk", lambda r: r._chunk(np.median(r.plan.chunks.rows) if r.chunks else 0.0)),
    ("largest chunk", lambda r: r._chunk(r.plan.chunks.rows.max(initial=0.0))),
)
"""What is joined, and its chunks."""

SHUFFLING = "of it to shuffle {} of rows through the disk"

TIME_FACTS: Facts = (
    ("time", lambda r: f"about {r.seconds:.2g} s (estimated for our benchmark CPU; yours will differ)"),
    (
        "",
        lambda r: _disk(
            r.plan.disk.shuffling, f"of it to shuffle {size(r.shuffled_bytes)} of rows through the disk"
        ),
    ),
    ("", lambda r: _disk(r.plan.disk.spilling, f"of it to spill {size(r.spilled_bytes)} of chunks")),
    ("", lambda r: _disk(r.plan.disk.writing, "more to write the pairs as parquet")),
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
        Expected from the first task to the last (estimated for our benchmark CPU; yours will differ).
    writing_seconds : float
        Expected besides where the pairs are written as parquet; 0 on GPUs, where it was not measured.
    spilled_bytes, shuffled_bytes : int
        Of chunks, and of rows on their way to chunks, that workers have no room for: they are written to the
        disk and read again, for which `seconds` has the time.
    """

    plan: Plan
    spec: JoinSpec

    _found = "pairs"
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

    @property
    def _tasks(self) -> int:
        plan = self.plan
        join = self.partitions + int((plan.slices > 1).sum())
        return self._making_tasks() + join - self.chunks * plan.chunks_are_partitions

    def _making_tasks(self) -> int:
        return making_tasks(self.plan.chunks, self.plan.sources, self.spec.settings.cluster)

    @property
    def _largest_bytes(self) -> float:
        return float(self.plan.chunks.rows.max(initial=0.0)) * self.plan.row_bytes

    def _chunk(self, rows: float) -> str:
        return f"{rows:,.0f} rows, {size(rows * self.plan.row_bytes)}"

    @property
    def _recall(self) -> str | None:
        return self.plan.recall.in_words(self._found) if self.spec.approximate else None

    @property
    def _neighbors(self) -> float:
        ends = 1 if self._two else 2  # of a pair, that are rows of the left table
        return ends * self.plan.estimate.total / max(self.plan.table_rows[0], 1)

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

    _drawn, _found = "candidates", "neighbours"
    _facts = (
        *INPUT_FACTS,
        ("neighbors", lambda r: r._fewer),
        ("recall", lambda r: r._recall),
        ("block pairs", lambda r: f"{r.block_pairs:,} visited at most, of {math.prod(r._sides):,} possible"),
        ("result", lambda r: f"{'at most ' * r._bounded}{r.pairs:,.0f} rows, {size(r.result_bytes)}"),
        ("partitions", lambda r: f"{r.partitions:,}"),
        *without(COST_FACTS, ""),
    )

    @property
    def title(self) -> str:
        return f"Plan of a join with nearest neighbors, k={shown(self.k)}"

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
        return 0.0 if self._bounded else self.pairs

    @property
    def pairs_high(self) -> float:
        return self.pairs

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes + RANK_BYTES

    def to_frame(self) -> pd.DataFrame:
        """One row for each chunk of rows and each chunk that is searched for their neighbors.

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

    @property
    def _bounded(self) -> bool:
        return self.bound < math.inf

    @property
    def _fewer(self) -> str | None:
        every = self.plan.rows_found(self.k) // max(1, self.plan.table_rows[0])  # that there are
        if every >= self.k:
            return None
        return f"{every:,} of a row at most, which is all: k={shown(self.k)} asks for more"

    @property
    def _recall(self) -> str | None:
        if self.spec.approximate and self.plan.recall is UNKNOWN:
            known_by = f"profile(k={shown(self.k)}) measures it"
            return f"not told by a sample, in which rows are less dense; {known_by}"
        return super()._recall

    @property
    def _tasks(self) -> int:
        return self._making_tasks() + 2 * self.block_pairs + self.partitions


def _disk(seconds: float, what: str) -> str | None:
    """Show seconds of the disk, if they are worth a line."""
    return f"{seconds:.2g} s {what}" if seconds >= MIN_DISK_SECONDS else None


def _listed(names: Sequence[Any]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(repr, names[:MAX_NAMES])) + more
