"""Cells of CSV that spreadsheets would run as formulas."""

from __future__ import annotations

from typing import Any

from dask_simjoin.metrics.types import Frame

BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of formulas, as OWASP lists them; the last four are full-width forms of the first four."""

NUMBERS = "biufcmM"
"""Kinds of dtypes without texts."""


def defused(rows: Frame) -> Frame:
    """Put ``'`` before texts and names of columns that a spreadsheet would take for formulas."""
    if hasattr(rows, "to_pandas"):
        rows = rows.to_pandas()
    texts = [name for name, kind in rows.dtypes.items() if kind.kind not in NUMBERS]
    safe = rows.assign(**{name: rows[name].astype(object).map(_quoted) for name in texts})
    return safe.rename(columns=_quoted)


def _quoted(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(BEGINNINGS) else cell
