"""What a plan says to people: text, a table, a picture of its block pairs, numbers for scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.checks import NEED
from dask_simjoin.index.device import DeviceLayout
from dask_simjoin.optional import new_axes
from dask_simjoin.picture import picture
from dask_simjoin.plan import Plan
from dask_simjoin.spatial_chunks import SpatialChunks
from dask_simjoin.spec import JoinSpec

CELLS = 64
"""Cells on a side of the picture: chunks beyond share them, so that it stays small."""

MOST_NAMES = 6
"""Columns that are named."""

BRANCH = 32
"""Partitions up to which Dask shuffles by tasks in one stage, and parts of a stage beyond."""


@dataclass(frozen=True, repr=False, eq=False)
class PlanReport:
    """What a join would run, and what it would give.

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
    result_bytes : int
        Memory of the whole result, expected.
    partitioning : {"entity", "spatial"}
    method : {"sweep", "tiles"}
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
    def result_bytes(self) -> int:
        return round(self.pairs * self.plan.pair_bytes)

    @property
    def partitioning(self) -> str:
        return self.plan.partitioning

    @property
    def method(self) -> str:
        return self.plan.layout.method

    @property
    def _directions(self) -> int:
        return 2 if self.spec.pairs == "both" else 1

    def _result_rows(self, unordered: float) -> float:
        return unordered * self._directions + (self.rows if self.spec.include_self else 0)

    def to_frame(self) -> pd.DataFrame:
        """One row for each block pair.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``: their numbers; ``query_rows``, ``data_rows``: the points
            expected in them; ``candidates``: pairs of points that would be compared if the index left
            out none; ``pairs``, ``pairs_low``, ``pairs_high``, ``bytes``: of the result, expected, each
            block's interval being one of 95 % by itself; ``partitions``: of the result.
        """
        plan, chunks = self.plan, self.plan.chunks
        i, j = plan.blocks[:, 0], plan.blocks[:, 1]
        own = chunks.own_rows if isinstance(chunks, SpatialChunks) else chunks.rows
        itself = np.where(i == j, own[i], 0.0) if self.spec.include_self else 0.0
        found = plan.estimate
        pairs, low, high = (n * self._directions + itself for n in (found.pairs, found.low, found.high))
        return pd.DataFrame({
            "query_chunk": i, "data_chunk": j, "query_rows": chunks.rows[i], "data_rows": chunks.rows[j],
            "candidates": chunks.candidates(plan.blocks), "pairs": pairs, "pairs_low": low,
            "pairs_high": high, "bytes": pairs * self.plan.pair_bytes, "partitions": plan.slices,
        })  # fmt: skip

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
            f"{self.svg()}</div>"
        )

    def _title(self) -> str:
        return f"Plan of a self-join, {self._within()}"

    def _within(self) -> str:
        return f"eps={self.spec.eps if self.spec.radius is None else self.spec.radius!r}"

    def _facts(self) -> list[tuple[str, str]]:
        """Names and texts of everything that the report tells."""
        plan, budget = self.plan, self.plan.budget
        rows = plan.chunks.rows
        largest = float(rows.max(initial=0.0))
        blocks = self.to_frame()
        sizes = np.repeat((blocks["bytes"] / blocks["partitions"]).to_numpy(), plan.slices)
        possible = self._possible()
        found = plan.estimate
        exact = found.sampled >= self._sampled_of()
        return [
            *self._what(),
            ("block pairs", f"{self.block_pairs:,} of {possible:,} possible"),
            ("skipped", f"{possible - self.block_pairs:,}, where no pair can be"),
            ("pairs", f"{self.pairs:,.0f}" if exact else f"about {self.pairs:,.0f}"),
            ("95 % interval", f"{self.pairs_low:,.0f} to {self.pairs_high:,.0f}"),
            ("sampled", f"{found.sampled:,} rows{', which is all of them' * exact}"),
            ("neighbours", f"{self._neighbours():,.3g} of a row, on average"),
            ("result", f"{format_bytes(self.result_bytes)}, {self.plan.pair_bytes:.3g} bytes a pair"),
            ("partitions", f"{self.partitions:,}, the largest {format_bytes(round(sizes.max(initial=0.0)))}"),
            ("memory", f"{format_bytes(round(NEED * largest * plan.row_bytes))} for the largest task"),
            ("budget", f"{format_bytes(budget.chunk)} a chunk ({budget.origin})"),
            ("", f"{format_bytes(budget.output)} a partition, {format_bytes(budget.result)} the result"),
            ("tasks", f"about {self._tasks():,}"),
        ]

    def _what(self) -> list[tuple[str, str]]:
        """What is joined, and how it lies in chunks."""
        plan, rows = self.plan, self.plan.chunks.rows
        metric = self.spec.metric
        return [
            ("rows", self._rows()),
            ("dimensions", f"{plan.dims:,}: {self._names(range(plan.dims))}{self.spec.unnamed}"),
            *([] if metric == "euclidean" else [("metric", metric)]),
            ("engine", self._engine()),
            ("partitioning", self._partitioning()),
            ("chunks", f"{self.chunks:,} ({format_bytes(round(rows.sum() * plan.row_bytes))})"),
            ("median chunk", self._chunk(float(np.median(rows)) if len(rows) else 0.0)),
            ("largest chunk", self._chunk(float(rows.max(initial=0.0)))),
        ]

    def _rows(self) -> str:
        return f"{self.rows:,}"

    def _possible(self) -> int:
        return self.chunks * (self.chunks + 1) // 2

    def _sampled_of(self) -> int:
        return self.rows

    def _neighbours(self) -> float:
        return 2 * self.plan.estimate.total / max(self.rows, 1)

    def _names(self, places: Iterable[int]) -> str:
        on, axes = self.spec.on, self.spec.measure.axes or self.spec.on
        names = [f"{on[0]!r}[{k}]" if self.spec.lists else repr(axes[k]) for k in places]
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        return ", ".join(names[:MOST_NAMES]) + more

    def _engine(self) -> str:
        layout = self.plan.layout
        if isinstance(layout, DeviceLayout):
            return f"tiles on GPUs, in {layout.engine}, in order of {self._names(layout.cut)}"
        grid = getattr(layout, "grid", None)
        if grid is None:
            return f"tiles, in order of {self._names(layout.cut)}"
        cells = f" in cells of {self._names(grid.dims)}" if grid.dims else ""
        return f"sweep along {self._names([grid.sweep])}{cells}"

    def _partitioning(self) -> str:
        chunks = self.plan.chunks
        if not isinstance(chunks, SpatialChunks):
            if self.plan.replicated:
                return "replicated: one chunk of all rows, and tasks for parts of its queries"
            if chunks.kind == "entity":
                return "entity: rows in the order of the frame"
            return f"spatial: {len(chunks.regions):,} regions"
        halo = chunks.halo_rows.sum() / max(chunks.own_rows.sum(), 1.0)
        return f"spatial: {len(chunks.regions):,} regions, {100 * halo:.3g} % of the rows in halos as well"

    def _chunk(self, rows: float) -> str:
        return f"{rows:,.0f} rows, {format_bytes(round(rows * self.plan.row_bytes))}"

    def _tasks(self) -> int:
        """Tasks of the join about, without those that read the source where they stay on their own."""
        plan, chunks, n = self.plan, self.plan.chunks, self.chunks
        sources = len(plan.sources)
        join = self.partitions + int((plan.slices > 1).sum())
        if isinstance(chunks, SpatialChunks):
            return sources + n + shuffle_tasks(sources, n, chunks.method) + join
        return sources + (0 if plan.as_they_come else n) + join

    @property
    def _together(self) -> int:
        """Chunks on a side of a cell of the picture."""
        return max(1, math.ceil(self.chunks / CELLS))

    def _matrix(self) -> np.ndarray:
        """Pairs of each cell of the picture, NaN where all of its block pairs are skipped."""
        side = math.ceil(self.chunks / self._together)
        cells = tuple((self.plan.blocks // self._together).T)
        pairs = np.full((side, side), np.nan)
        pairs[cells] = 0.0
        np.add.at(pairs, cells, self.to_frame()["pairs"].to_numpy())
        return pairs

    def svg(self) -> str:
        """The block pairs as a picture, in SVG.

        Rows are query chunks and columns data chunks; the more pairs, the darker, on a logarithmic
        scale.  White cells are not joined.
        """
        return picture(self._matrix(), self._together, self.chunks, self._title())

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
        ax = new_axes(ax)
        shades = np.log10(1 + self._matrix())
        edge = len(shades) * self._together - 0.5
        image = ax.imshow(shades, cmap="YlGnBu", extent=(-0.5, edge, edge, -0.5), vmin=0.0)
        ax.figure.colorbar(image, ax=ax, label="log10(1 + pairs)")
        ax.set(xlabel="data chunk", ylabel="query chunk", title=self._title())
        return ax


def shuffle_tasks(sources: int, chunks: int, method: str) -> int:
    """Tasks of a shuffle by Dask, as of its version 2026.7; by tasks, each part split off is one."""
    if method != "p2p":
        sources = min(sources, chunks)  # it puts sources together first
    own = sources + 2 * chunks
    if method != "tasks":
        return own
    if min(sources, chunks) <= BRANCH:
        return own + sources * chunks
    stages = math.ceil(math.log(sources, BRANCH))
    parts = math.ceil(sources ** (1 / stages))
    return own + stages * parts**stages * (parts + 2)
