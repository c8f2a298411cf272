"""Count the rows that `dropna` leaves out, by column and reason."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dask_simjoin.errors import TABLES
from dask_simjoin.request.messages import listed

Reason = Literal["missing", "infinite", "no direction"]

VERBS_OF_REASONS: dict[str, tuple[str, str]] = {
    "missing": ("misses", "miss"),
    "infinite": ("has an infinite value in", "have an infinite value in"),
}
"""For one row and for several rows, the words before the name of the column."""


class LeftOutRows(NamedTuple):
    """Rows that are left out for one reason. A row with several reasons is counted for
    each of them.
    """

    # columns without a usable value; several columns if they are compared together
    columns: tuple[Hashable, ...]
    reason: Reason
    rows: int

    def in_words(self) -> str:
        one = self.rows == 1
        if self.reason == "no direction":
            return f"{self.rows:,} {'has' if one else 'have'} only zeros"
        verb = VERBS_OF_REASONS[self.reason][not one]
        return f"{self.rows:,} {verb} {listed(self.columns)}"


@dataclass(frozen=True)
class LeftOut:
    """The rows of one table that `dropna` leaves out."""

    table_rows: int  # rows of the table, including these
    partitions: tuple[int, ...]  # number of these rows in each partition
    reasons: tuple[LeftOutRows, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows that are left out."""
        return sum(self.partitions)

    def in_words(self) -> str:
        """Describe the rows and the reasons."""
        reasons = "; ".join(reason.in_words() for reason in self.reasons)
        verb = "has" if self.rows == 1 else "have"
        text = f"{self.rows:,} of {self.table_rows:,} rows {verb} no coordinates"
        return f"{text}: {reasons}" if reasons else text

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers by name, for JSON."""
        return {
            "rows": self.rows,
            "table_rows": self.table_rows,
            "reasons": [
                {"columns": list(columns), "reason": reason, "rows": rows}
                for columns, reason, rows in self.reasons
            ],
        }


def merged_reasons(parts: Iterable[Sequence[LeftOutRows]]) -> tuple[LeftOutRows, ...]:
    """Add up the rows of several partitions, for each column and reason."""
    found: dict[tuple[tuple[Hashable, ...], Reason], int] = {}
    for part in parts:
        for columns, reason, rows in part:
            found[columns, reason] = found.get((columns, reason), 0) + rows
    return tuple(LeftOutRows(*key, rows) for key, rows in found.items())


def left_out_in_words(tables: Sequence[LeftOut]) -> str | None:
    """Describe the rows of all tables that are left out; None if there are none."""
    if len(tables) == 1:
        return tables[0].in_words() if tables[0].rows else None
    texts = [
        f"{which} table: {table.in_words()}"
        for which, table in zip(TABLES, tables, strict=False)
        if table.rows
    ]
    return ". ".join(texts) or None
