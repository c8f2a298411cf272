"""What a plan is made for: what is asked of tasks besides finding pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Goal:
    """What tasks are to find out and to give; with the options of a join it is what tells plans apart.

    Attributes
    ----------
    with_ids : bool
        Whether the result names rows, whose ids must then be unique.
    materialise : bool
        Whether pairs come out as rows, which must fit partitions and the limit of a result.
    result_bytes_per_row : int
        What tasks find out of each row of a chunk, which leaves room for it.
    bytes_per_other, others_per_row : int
        What they find out besides of other rows for each row, and of how many, if there are so many.
    single_home : bool
        Whether what is found out of a row is known where the row is, which is then in one chunk only.
    k : int or None
        Nearest neighbours that are sought of each row; None: pairs within a distance are.
    max_total : float
        The largest total of a neighbour.
    dense : float
        Neighbours of a row from which on, in all dimensions, tiles serve best: they tell of many pairs at
        once what is asked of them.
    joins : int
        How often block pairs are gone through.
    spanning : bool
        Whether, besides neighbours, a minimum spanning tree is sought.
    by_row : bool
        Whether each piece of the work tells a number of each row of a chunk.
    listed : bool
        Whether pairs are gone through one by one, though they do not come out.
    connected : bool
        Whether rows are connected by pairs that are not shown, and labelled.
    together : float
        What is saved of a row where all are in one chunk, whose places tell rows apart, in units of looking
        for what it is near to.
    """

    with_ids: bool = False
    materialise: bool = False
    result_bytes_per_row: int = 0
    bytes_per_other: int = 0
    others_per_row: int = 0
    single_home: bool = False
    k: int | None = None
    max_total: float = math.inf
    dense: float = math.inf
    joins: int = 1
    spanning: bool = False
    by_row: bool = False
    listed: bool = False
    connected: bool = False
    together: float = 0.0

    def found_bytes(self, rows: int) -> int:
        """Bytes that tasks find out of each row of a table of so many."""
        return self.result_bytes_per_row + self.bytes_per_other * min(self.others_per_row, rows)


COUNTS = Goal(dense=4096)
"""Numbers of pairs, of whatever rows; as measured in 2 and 3 dimensions."""

ROW_COUNTS = replace(COUNTS, by_row=True)
"""The same, of each row."""

LISTS = replace(COUNTS, listed=True)
"""What is made of each pair, one after the other."""

CLUSTERS = Goal(dense=128, by_row=True, connected=True, together=5.0)
"""Numbers of pairs, and what rows they connect; as measured in the same way."""

LISTED_CLUSTERS = replace(CLUSTERS, listed=True, connected=False)
"""The same, of rows that are decided one after the other."""

PAIRS = Goal(with_ids=True, materialise=True)
"""Pairs, as rows that name their rows."""


def nearest_goal(k: int, with_ids: bool = False, max_total: float = math.inf) -> Goal:
    """Seek so many nearest neighbours of each row; tasks hold them before and after each search."""
    return Goal(with_ids, False, 40, 32, k, True, k, max_total)


TREE_BYTES = 160
"""Of a row while the tree of two chunks is found."""


def tree_goal(k: int) -> Goal:
    """Seek so many nearest neighbours of each row, and then a minimum spanning tree."""
    return replace(nearest_goal(k), result_bytes_per_row=40 + TREE_BYTES, spanning=True, together=1.0)
