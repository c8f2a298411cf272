"""Base classes of all reports: a title and a table of facts, shown as text, HTML and
pictures.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.planning.checks import task_bytes
from dask_simjoin.planning.left_out import left_out_frame
from dask_simjoin.planning.outputs import describe_tasks
from dask_simjoin.reports.svg import Matrix, Picture, matrix
from dask_simjoin.request.columns import new_axes
from dask_simjoin.sizes import ROW_BYTES

Facts = tuple[tuple[str, Callable[[Any], str | None]], ...]
"""The facts of a report, as (label, function). The function returns the text of the
fact, or None to omit it.

A fact with an empty label is a further line of the fact before it.
"""

MEMORY = (
    "partition_bytes",
    "task_bytes",
    "chunk_limit",
    "partition_limit",
    "result_limit",
)
"""Attributes of a plan that are sizes in bytes."""


def table_html(heading: str, lines: Iterable[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(label)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for label, text in lines
    )
    return f"<p><b>{html.escape(heading)}</b></p><table><tbody>{rows}</tbody></table>"


def summaries_html(heading: str, functions: Mapping[str, object]) -> str:
    """Return a heading and a table of functions, each with the first line of its
    docstring, as HTML.
    """
    lines = (
        (name, (inspect.getdoc(one) or "").partition("\n")[0])
        for name, one in functions.items()
    )
    return f"<div>{table_html(heading, lines)}</div>"


class Report:
    """A title and a table of facts. Subclasses list their facts in `_facts`."""

    _facts: ClassVar[Facts] = ()

    _exported: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that `to_dict` returns."""

    @property
    def title(self) -> str:
        """Return the subject of the report in a few words."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the values of the report by name, for JSON.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> pd.DataFrame({"x": [0.0, 1.0, 9.0]}).simjoin.plan(1.0).to_dict()["pairs"]
        1.0
        """
        return {name: getattr(self, name) for name in self._exported}

    def _heading(self) -> str:
        return self.title

    def _further_facts(self) -> Iterable[tuple[str, str]]:
        """Return labels and texts of the facts whose number varies; they are shown
        last.
        """
        return ()

    def _lines(self) -> list[tuple[str, str]]:
        texts = ((label, text(self)) for label, text in self._facts)
        return [
            *((label, text) for label, text in texts if text is not None),
            *self._further_facts(),
        ]

    def _html_picture(self) -> str:
        return ""

    def __repr__(self) -> str:
        lines = self._lines()
        width = max((len(label) for label, _ in lines), default=0)
        return "\n".join(
            [self._heading(), *(f"  {label:<{width}}  {text}" for label, text in lines)]
        )

    def _repr_html_(self) -> str:
        return f"<div>{table_html(self._heading(), self._lines())}{self._html_picture()}</div>"


class PicturedReport(Report):
    def _picture(self) -> Picture:
        raise NotImplementedError

    def _caption(self) -> str:
        return self.title

    def _html_picture(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """Return the picture as SVG text.

        The picture of a plan has query chunks as rows and data chunks as columns.
        Darker cells have more pairs (for nearest neighbors: candidates), on a
        logarithmic scale. Gray cells have no pairs, and white cells are not joined. The
        picture of a profile has bars on a logarithmic scale.
        """
        return self._picture().svg(self._caption())

    def plot(self, ax: Any = None) -> Any:
        """Draw the picture with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            The axes to draw on; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return self._picture().plot(new_axes(ax), self._caption())


@dataclass(frozen=True, repr=False)
class FieldsReport(Report):
    """A report whose facts are its own fields. A field whose name begins with "bytes"
    is shown as a size.
    """

    title: ClassVar[str]

    @property
    def numbers(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name, for JSON."""
        return self.numbers

    def _further_facts(self) -> list[tuple[str, str]]:
        return [
            (name.replace("_", " "), _number(name, value))
            for name, value in self.numbers.items()
        ]


def without(facts: Facts, *labels: str) -> Facts:
    return tuple(fact for fact in facts if fact[0] not in labels)


def size(value: float) -> str:
    return format_bytes(round(value))


def _number(name: str, value: Any) -> str:
    if name.startswith("bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


ROWS: Facts = (
    ("rows", lambda r: " and ".join(f"{rows:,}" for rows in r.plan.tables.rows)),
)

COST_FACTS: Facts = (
    ("memory", lambda r: f"{size(r.task_bytes)} for the largest task"),
    ("reading", lambda r: r._reading),
    (
        "budget",
        lambda r: f"{size(r.plan.limits.chunk)} per {r._unit} ({r.plan.limits.origin})",
    ),
    (
        "",
        lambda r: (
            f"{size(r.plan.limits.output)} per partition, {size(r.plan.limits.result)} "
            "for the result"
        ),
    ),
    ("tasks", lambda r: describe_tasks(r._tasks, r.plan.limits.chunk)),
)

RESULT_FACTS: Facts = (
    ("block pairs", lambda r: f"{r.block_pairs:,} of {r._possible:,} possible"),
    ("skipped", lambda r: f"{r._possible - r.block_pairs:,}, {r._skipped_because}"),
    ("pairs", lambda r: r._pairs),
    (
        "sampled",
        lambda r: (
            None
            if r.counted
            else f"{r.plan.result.estimate.sampled:,} rows, for a 95 % interval"
        ),
    ),
    ("recall", lambda r: r._recall),
    ("neighbors", lambda r: f"{r._neighbors:,.3g} per row on average"),
    ("result", lambda r: f"{size(r.result_bytes)}, {r.pair_bytes:.3g} bytes per pair"),
    (
        "partitions",
        lambda r: f"{r.partitions:,}, the largest {size(r._largest_partition)}",
    ),
    *COST_FACTS,
)


class BlockReport(PicturedReport):
    """Base class of the reports of plans. A subclass also defines `_tasks`, the number
    of tasks.
    """

    plan: Any
    spec: Any

    # the column of `to_frame` that the picture of the block pairs shows
    _picture_column = "pairs"
    _unit = "chunk"  # the word in texts for a group of rows that is compared as a whole
    _skipped_because = "too far apart"

    @property
    def rows(self) -> int:
        return self.plan.rows

    @property
    def rows_left_out(self) -> int:
        """Return the number of rows of all tables that cannot be compared."""
        return sum(table.rows for table in self.plan.tables.left_out)

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """Return for each table the rows that cannot be compared, with the reasons."""
        return [table.to_dict() for table in self.plan.tables.left_out]

    def list_left_out(self) -> pd.DataFrame:
        """List the rows that cannot be compared, with the reasons.

        Returns
        -------
        pandas.DataFrame
            One row for each of these rows and each of its reasons. ``table`` is left or
            right. ``partition`` is the number of the partition, which is 0 for plain
            frames. ``row`` is the position of the row in its partition. ``column`` is
            the column of the value that cannot be used, or a text such as "x or y".
            ``reason`` is missing, infinite or no direction.
        """
        return left_out_frame(self.plan.tables.left_out)

    @property
    def block_pairs(self) -> int:
        return len(self.plan.work)

    @property
    def partitions(self) -> int:
        return max(self.plan.work.outputs, 1)  # an empty result still has one partition

    @property
    def pairs(self) -> float:
        return self._result_rows(self.plan.result.estimate.total)

    @property
    def pairs_low(self) -> float:
        return self._result_rows(self.plan.result.estimate.total_low)

    @property
    def pairs_high(self) -> float:
        return self._result_rows(self.plan.result.estimate.total_high)

    @property
    def counted(self) -> bool:
        return self.plan.result.estimate.counted

    @property
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.result.pair_bytes

    @property
    def partition_bytes(self) -> int:
        """Return the expected memory of the largest partition of the result."""
        return round(self._largest_partition)

    @property
    def task_bytes(self) -> int:
        """Return the expected memory of the largest task: chunks, indexes, and a
        partition of the result; or all pairs that are matched one to one.
        """
        found = task_bytes(self._largest_bytes, self._largest_partition)
        return round(max(found, ROW_BYTES * self.pairs if self.spec.matching else 0))

    @property
    def _reading(self) -> str | None:
        """Describe the memory to read a partition. None: other tasks need more, or
        there is no cluster.
        """
        return None

    @property
    def chunk_limit(self) -> int:
        """Return the maximum size of a chunk in bytes."""
        return self.plan.limits.chunk

    @property
    def partition_limit(self) -> int:
        """Return the maximum size of a partition of the result in bytes."""
        return self.plan.limits.output

    @property
    def result_limit(self) -> int:
        """Return the maximum size of the whole result in bytes; larger results are
        refused.
        """
        return self.plan.limits.result

    def to_frame(self) -> pd.DataFrame:
        """Return one row per block pair."""
        raise NotImplementedError

    @property
    def _sides(self) -> tuple[int, int]:
        """Number of query chunks, and number of data chunks."""
        raise NotImplementedError

    def _result_rows(self, pairs: float) -> float:
        """Convert a number of unordered pairs to a number of result rows. A pair may
        take two rows.
        """
        return pairs

    @property
    def _two(self) -> bool:
        return len(self.plan.tables.rows) > 1

    @property
    def _possible(self) -> int:
        queries, data = self._sides
        return queries * data if self._two else queries * (queries + 1) // 2

    @property
    def _pairs(self) -> str:
        if self.counted:
            return f"{self.pairs:,.0f} (counted)"
        return (
            f"about {self.pairs:,.0f} ({self.pairs_low:,.0f} to {self.pairs_high:,.0f})"
        )

    @property
    def _largest_bytes(self) -> float:
        raise NotImplementedError

    @property
    def _largest_partition(self) -> float:
        blocks = self.to_frame()
        sizes = np.repeat(
            (blocks["bytes"] / blocks["partitions"]).to_numpy(), self.plan.work.slices
        )
        return float(sizes.max(initial=0.0))

    def _picture(self) -> Matrix:
        blocks = self.to_frame()
        columns = ("query_chunk", "data_chunk", self._picture_column)
        query, data, values = (blocks[name].to_numpy() for name in columns)
        return matrix(query, data, values, self._sides, self._picture_column)

    def _html_picture(self) -> str:
        return self.svg() if max(self._sides) > 1 else ""
