"""What is told of the work of a change: before, as a plan, and after."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from dask.utils import format_bytes


@dataclass(frozen=True, repr=False)
class Told:
    """Numbers that print as a table."""

    title: ClassVar[str]
    bytes_of: ClassVar[tuple[str, ...]] = ("bytes_read", "bytes_written")

    @property
    def numbers(self) -> dict[str, Any]:
        """All of them, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _facts(self) -> list[tuple[str, str]]:
        return [(name.replace("_", " "), self._text(name, value)) for name, value in self.numbers.items()]

    def _text(self, name: str, value: Any) -> str:
        if name in self.bytes_of:
            return format_bytes(int(value))
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        return "\n".join([self.title, *(f"  {name:<{width}}  {text}" for name, text in facts)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._facts()
        )
        return f"<table><caption>{html.escape(self.title)}</caption>{rows}</table>"


@dataclass(frozen=True, repr=False)
class ChangeReport(Told):
    """The work of the pairs that a change made or took away.

    Attributes
    ----------
    inserted, deleted : int
        Rows that came and that went; a replaced row is one of each.
    row_groups_read, row_groups_held, row_groups : int
        Row groups of rows that stayed within reach of one of those: that are read, and that are in memory
        (`Index.persist`); and how many there are.
    rows_read : int
        Rows of the row groups that are read.
    bytes_read : int
        Of files: those row groups' columns that are read.
    tasks : int
        Tasks that find pairs.
    """

    title = "Work of a change of an index"

    inserted: int
    deleted: int
    row_groups_read: int
    row_groups_held: int
    row_groups: int
    rows_read: int
    bytes_read: int
    tasks: int


@dataclass(frozen=True, repr=False)
class UpdatePlan(Told):
    """What an update with some new rows would do.

    Attributes
    ----------
    rows : int
        New rows.
    row_groups_read, row_groups : int
        Row groups within reach of one of them, and how many there are.
    rows_read : int
        Rows of those.
    bytes_read : int
        Of files.
    pairs : float
        Pairs that would come, from the new rows' and from those of some row groups, which are joined.
    seconds : float
        Of one thread, to find them, as long as those row groups take.
    seconds_anew : float
        Of one thread, to join all rows anew, as long as it takes some row groups.
    """

    title = "Plan of an update of an index"

    rows: int
    row_groups_read: int
    row_groups: int
    rows_read: int
    bytes_read: int
    pairs: float
    seconds: float
    seconds_anew: float
