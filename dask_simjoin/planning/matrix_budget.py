"""What a sparse matrix of neighbours may take, and whether a result fits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask.utils import format_bytes

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.free_memory import MARGIN

ENTRY, DEVICE_ENTRY = 16, 12
"""Bytes of an entry: a number, and a column."""


PIECE = 12
"""The same in the pieces that a matrix is put together from, which are there until it is."""


ROW = 32
"""Bytes of a row: where it begins, and what is only there until all are filled."""


@dataclass(frozen=True)
class Limit:
    """Something that a matrix must fit.

    Attributes
    ----------
    bytes : int
        That there are.
    entry, row : int
        Bytes that an entry and a row take there.
    where, remedy : str
        What it is, and what helps, for people.
    config : str
        The name of the configuration that sets it; "": none does.
    """

    bytes: int
    entry: int
    row: int
    where: str
    remedy: str
    config: str = ""


@dataclass(frozen=True)
class Fitting:
    """What a matrix of neighbours must fit.

    Attributes
    ----------
    eps : float
    rows : int
    limits : list of Limit
    most : int or None
        Entries that it can have, whatever the memory.
    """

    eps: float
    rows: int
    limits: list[Limit]
    most: int | None

    def check(self, entries: float, sampled: bool = False) -> None:
        """Refuse a matrix of so many entries; `sampled`: or more."""
        about = f"eps={self.eps!r} gives {'at least ' if sampled else ''}{entries:,.0f} entries"
        about += ", estimated from a sample" if sampled else ""
        if self.most is not None and entries > self.most:
            raise BudgetError(
                f"{about}, and a sparse matrix of this CuPy has at most {self.most:,}, which int32 "
                "numbers. Use CuPy 14.1 or newer, a smaller eps, or ddf.to_backend('pandas')."
            )
        for limit in self.limits:
            need = entries * limit.entry + self.rows * limit.row
            if need > limit.bytes:
                config = {limit.config: format_bytes(math.ceil(MARGIN * need))} if limit.config else {}
                helps = f"dask.config.set({config})" if config else limit.remedy
                raise BudgetError(
                    f"{about}, which take {format_bytes(int(need))}, and {limit.where} "
                    f"{format_bytes(limit.bytes)}. Use a smaller eps, {helps}, or self_join(), whose pairs "
                    "are lazy and may exceed memory.",
                    remedies=[*([Remedy(config=config)] if config else []), Remedy(verb="self_join")],
                )
