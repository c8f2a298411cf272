"""Show a plan: as text, as a table, as a picture, and as numbers for scripts."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.outputs import describe_tasks, directions, making_tasks
from dask_simjoin.planning.plan import Plan
from dask_simjoin.reports.svg import Matrix, matrix, plot, svg
from dask_simjoin.request.inputs import new_axes
from dask_simjoin.request.spec import JoinSpec


class BlockReport:
    """What reports of plans have in common, whatever is joined."""

    _drawn: ClassVar[str] = "pairs"
    """What the pictures show of block pairs."""

    @property
    def pair_bytes(self) -> float:
        """Memory of one row of the result."""
        raise NotImplementedError

    @property
    def _sides(self) -> tuple[int, int]:
        """Query chunks and data chunks."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair."""
        raise NotImplementedError

    def _title(self) -> str:
        raise NotImplementedError

    def _facts(self) -> list[tuple[str, str]]:
        """Names and texts of everything that the report tells."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """What it is about, in a few words."""
        return self._title()

    def to_dict(self) -> dict[str, int | float | str]:
        """Numbers and words of the report by name, as a script takes them and JSON has them.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> pd.DataFrame({"x": [0.0, 1.0, 9.0]}).simjoin.plan(1.0).to_dict()["pairs"]
        1.0
        """
        kinds = [kind for kind in reversed(type(self).__mro__) if issubclass(kind, BlockReport)]
        names = dict.fromkeys(
            name for kind in kinds for name, value in vars(kind).items()
            if isinstance(value, property) and not name.startswith("_")
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        return "\n".join([self._title(), *(f"  {name:<{width}}  {text}" for name, text in facts)])

    def _repr_html_(self) -> str:
        facts = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in self._facts()
        )
        return (
            f"<div><p><b>{html.escape(self._title())}</b></p><table><tbody>{facts}</tbody></table>"
            f"{self.svg() if max(self._sides) > 1 else ''}</div>"
        )

    def _matrix(self) -> Matrix:
        """What the pictures show."""
        blocks = self.to_frame()
        query, data, drawn = (blocks[n].to_numpy() for n in ("query_chunk", "data_chunk", self._drawn))
        return matrix(query, data, drawn, self._sides, self._drawn)

    def svg(self) -> str:
        """The block pairs as a picture, in SVG.

        Rows are query chunks and columns data chunks; the more pairs (of nearest neighbours: candidates),
        the darker, on a logarithmic scale.  Gray cells give none, and white ones are not joined.
        """
        return svg(self._matrix(), self._title())

    def plot(self, ax: Any = None) -> Any:
        """The block pairs as a picture, by matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return plot(self._matrix(), new_axes(ax), self._title())


MAX_NAMES = 6
"""Columns that are named."""

LEAST_TOLD = 0.1
"""Seconds of the disk that are worth a line."""


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

    @property
    def rows(self) -> int:
        return self.plan.rows

    @property
    def chunks(self) -> int:
        return len(self.plan.chunks)

    @property
    def block_pairs(self) -> int:
        return len(self.plan)

    @property
    def partitions(self) -> int:
        return max(self.plan.outputs, 1)  # an empty result is one empty partition

    @property
    def pairs(self) -> float:
        return self._result_rows(self.plan.estimate.total)

    @property
    def pairs_low(self) -> float:
        return self._result_rows(self.plan.estimate.total_low)

    @property
    def pairs_high(self) -> float:
        return self._result_rows(self.plan.estimate.total_high)

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
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes

    @property
    def partitioning(self) -> str:
        return self.plan.partitioning

    @property
    def method(self) -> str:
        return self.plan.layout.method

    @property
    def engine(self) -> str:
        return self._engine()

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

    def _result_rows(self, unordered: float) -> float:
        return unordered * directions(self.spec) + (self.rows if self.spec.include_self else 0)

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

    def _title(self) -> str:
        return f"Plan of a {'join of two tables' if self._two else 'self-join'}, {self._within()}"

    def _within(self) -> str:
        eps, unit = self.spec, self.spec.measure.unit
        return f"eps={eps.eps if eps.radius is None else eps.radius!r}{unit and f' {unit}'}"

    def _facts(self) -> list[tuple[str, str]]:
        """Names and texts of everything that the report tells."""
        plan, budget = self.plan, self.plan.budget
        rows = plan.chunks.rows
        largest = float(rows.max(initial=0.0))
        blocks = self.to_frame()
        sizes = np.repeat((blocks["bytes"] / blocks["partitions"]).to_numpy(), plan.slices)
        possible = plan.chunks.possible
        found = plan.estimate
        exact = found.sampled >= plan.table_rows[0]
        return [
            *self._what(),
            ("block pairs", f"{self.block_pairs:,} of {possible:,} possible"),
            ("skipped", f"{possible - self.block_pairs:,}, where no pair can be"),
            ("pairs", f"{self.pairs:,.0f}" if exact else f"about {self.pairs:,.0f}"),
            ("95 % interval", f"{self.pairs_low:,.0f} to {self.pairs_high:,.0f}"),
            *([("recall", self.plan.recall.in_words())] if self.spec.approximate else []),
            ("sampled", f"{found.sampled:,} rows{', which is all of them' * exact}"),
            ("neighbours", f"{self._neighbours():,.3g} of a row, on average"),
            ("result", f"{format_bytes(self.result_bytes)}, {self.pair_bytes:.3g} bytes a pair"),
            ("partitions", f"{self.partitions:,}, the largest {format_bytes(round(sizes.max(initial=0.0)))}"),
            ("memory", f"{format_bytes(round(NEED * largest * plan.row_bytes))} for the largest task"),
            ("budget", f"{format_bytes(budget.chunk)} a chunk ({budget.origin})"),
            ("", f"{format_bytes(budget.output)} a partition, {format_bytes(budget.result)} the result"),
            ("tasks", describe_tasks(self._tasks(), budget.chunk)),
            *self._time(),
        ]

    def _time(self) -> list[tuple[str, str]]:
        """What it takes, and what of that is the disk's."""
        disk = self.plan.disk
        parts = [
            (
                disk.shuffling,
                f"of it to shuffle {format_bytes(self.shuffled_bytes)} of rows through the disk",
            ),
            (disk.spilling, f"of it to spill {format_bytes(self.spilled_bytes)} of chunks"),
            (disk.writing, "more to write the pairs as parquet"),
        ]
        return [
            ("time", f"about {self.seconds:.2g} s, on idle cores like those that were measured"),
            *(("", f"{seconds:.2g} s {what}") for seconds, what in parts if seconds >= LEAST_TOLD),
        ]

    def _what(self) -> list[tuple[str, str]]:
        """What is joined, and how it lies in chunks."""
        plan, rows = self.plan, self.plan.chunks.rows
        metric = self.spec.metric
        return [
            ("rows", " and ".join(f"{rows:,}" for rows in plan.table_rows)),
            ("dimensions", f"{self._dimensions()}{self.spec.unnamed}"),
            *([] if metric == "euclidean" else [("metric", metric)]),
            ("engine", self._engine()),
            ("partitioning", plan.chunks.describe()),
            ("chunks", f"{self.chunks:,} ({format_bytes(round(rows.sum() * plan.row_bytes))})"),
            ("median chunk", self._chunk(float(np.median(rows)) if len(rows) else 0.0)),
            ("largest chunk", self._chunk(float(rows.max(initial=0.0)))),
        ]

    @property
    def _two(self) -> bool:
        return len(self.plan.table_rows) > 1

    def _neighbours(self) -> float:
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

    def _engine(self) -> str:
        return self.plan.layout.in_words(self._names)

    def _chunk(self, rows: float) -> str:
        return f"{rows:,.0f} rows, {format_bytes(round(rows * self.plan.row_bytes))}"

    def _tasks(self) -> int:
        """Tasks of the join about, without those that read the source where they stay on their own."""
        plan = self.plan
        join = self.partitions + int((plan.slices > 1).sum())
        return (
            making_tasks(plan.chunks, plan.sources, self.spec.settings.cluster)
            + join
            - self.chunks * plan.chunks_are_partitions
        )

    @property
    def _sides(self) -> tuple[int, int]:
        """Query chunks and data chunks."""
        sides = self.plan.chunks.sides
        return len(sides[0]), len(sides[-1])


def _listed(names: Sequence[Any]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(map(repr, names[:MAX_NAMES])) + more
