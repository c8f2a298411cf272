"""Count and list the rows that cannot be compared, by column and reason: rows that
`dropna` leaves out, and rows without a set or a text.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from dask_simjoin.errors import TABLES
from dask_simjoin.request.messages import counted

Reason = Literal["missing", "infinite", "no direction"]
REASONS = get_args(Reason)

LISTED = {"partition": "int64", "row": "int64", "column": "object", "reason": "str"}
"""Columns of the list of rows that are left out, and their dtypes."""


class LeftOutRows(NamedTuple):
    """Rows that are left out for one reason. A row with several reasons is counted for
    each of them.
    """

    # a value of one of these columns cannot be used
    columns: tuple[Hashable, ...]
    reason: Reason
    rows: int

    def in_words(self) -> str:
        one, names = self.rows == 1, " or ".join(map(repr, self.columns))
        if self.reason == "missing":
            return f"{self.rows:,} {'misses' if one else 'miss'} {names}"
        verb = "has" if one else "have"
        if self.reason == "infinite":
            return f"{self.rows:,} {verb} an infinite value in {names}"
        return f"{self.rows:,} {verb} no direction, only zeros"


class LeftOutPart(NamedTuple):
    """The rows of one partition that are left out."""

    rows: int  # rows of the partition, including these
    reasons: tuple[LeftOutRows, ...] = ()
    masks: tuple[bytes, ...] = ()  # for each reason, its rows: see `packed`


def packed(mask: np.ndarray) -> bytes:
    """Return a mask of rows in little memory; `positions_in` reads it."""
    return zlib.compress(np.packbits(mask).tobytes(), 1)


def positions_in(mask: bytes, rows: int) -> np.ndarray:
    """Return the positions of the rows in a packed mask of this many rows."""
    bits = np.frombuffer(zlib.decompress(mask), np.uint8)
    return np.flatnonzero(np.unpackbits(bits, count=rows))


@dataclass(frozen=True)
class LeftOut:
    """The rows of one table that are left out."""

    table_rows: int  # rows of the table, including these
    partitions: tuple[int, ...]  # number of these rows in each partition
    reasons: tuple[LeftOutRows, ...] = ()
    parts: tuple[LeftOutPart, ...] = ()  # the same for each partition

    @property
    def rows(self) -> int:
        """Number of rows that are left out."""
        return sum(self.partitions)

    def in_words(self, which: str = "") -> str:
        """Describe the rows and the reasons. `which`: "left" or "right" if there are two
        tables.
        """
        text = f"{self.rows:,} of {counted(self.table_rows, 'row')}"
        text += f" of the {which} table" * bool(which)
        reasons = "; ".join(reason.in_words() for reason in self.reasons)
        return f"{text}: {reasons}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each row that is left out and each of its reasons, in the
        order of the table.
        """
        found = [
            pd.DataFrame(
                {
                    "partition": number,
                    "row": positions_in(mask, part.rows),
                    "column": columns[0]
                    if len(columns) == 1
                    else " or ".join(map(str, columns)),
                    "reason": reason,
                }
            )
            for number, part in enumerate(self.parts)
            for (columns, reason, _), mask in zip(part.reasons, part.masks, strict=True)
        ]
        if not found:
            return pd.DataFrame(
                {name: pd.Series([], dtype=kind) for name, kind in LISTED.items()}
            )
        order = ["partition", "row"]
        return pd.concat(found).sort_values(order, kind="stable", ignore_index=True)

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


def merged_reasons(
    parts: Iterable[Sequence[LeftOutRows]], order: Sequence[Hashable]
) -> tuple[LeftOutRows, ...]:
    """Add up the rows of several partitions, for each column and reason. `order`: the
    columns in the order of the result.
    """
    found: dict[tuple[tuple[Hashable, ...], Reason], int] = {}
    for part in parts:
        for columns, reason, rows in part:
            found[columns, reason] = found.get((columns, reason), 0) + rows
    place = {name: n for n, name in enumerate(order)}
    # points have the name of their geometry, and come first
    keys = sorted(
        found, key=lambda key: (place.get(key[0][0], 0), REASONS.index(key[1]))
    )
    return tuple(LeftOutRows(*key, found[key]) for key in keys)


def left_out_frame(tables: Sequence[LeftOut]) -> pd.DataFrame:
    """Return one row for each row that is left out and each of its reasons."""
    named = zip(TABLES, tables, strict=False)
    return pd.concat(
        [table.to_frame().assign(table=which) for which, table in named]
        or [LeftOut(0, ()).to_frame().assign(table="")],
        ignore_index=True,
    )[["table", *LISTED]]


def left_out_in_words(
    tables: Sequence[LeftOut], names: Sequence[str] = TABLES
) -> str | None:
    """Describe the rows of all tables that are left out; None if there are none."""
    texts = [table.in_words(which) for which, table in named_tables(tables, names)]
    return ". ".join(texts) or None


def named_tables(
    tables: Sequence[LeftOut], names: Sequence[str] = TABLES
) -> list[tuple[str, LeftOut]]:
    """List the tables with rows that are left out, each with its name of `names`. If
    there is only one table, its name is empty.
    """
    names = names if len(tables) > 1 else ("",)
    named = zip(names, tables, strict=False)
    return [(which, table) for which, table in named if table.rows]
