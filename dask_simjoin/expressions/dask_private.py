"""Import all that Dask does not document: the one place to mend when Dask moves."""

from dask._task_spec import Alias, GraphNode, List, Task, TaskRef
from dask.dataframe.dask_expr import _expr, _merge, _shuffle, new_collection
from dask.dataframe.dask_expr._cumulative import CumulativeAggregations
from dask.dataframe.dask_expr._expr import (
    Blockwise,
    Expr,
    Filter,
    FilterAlign,
    Head,
    Partitions,
    PartitionsFiltered,
    Projection,
    Tail,
)
from dask.dataframe.dask_expr._repartition import Repartition
from dask.dataframe.dask_expr._shuffle import Shuffle
from dask.dataframe.dask_expr.io.io import IO, BlockwiseIO, FromGraph, FromPandas, FusedIO
from dask.dataframe.utils import UNKNOWN_CATEGORIES

MOVES_FILTERS = (_expr, _merge, _shuffle)
"""Modules that ask, by its name in each of them, whether a filter may move."""

TAKES_ENDS = (Head, Tail)
"""Expressions of the first and the last rows of a frame."""

__all__ = [
    "IO",
    "MOVES_FILTERS",
    "TAKES_ENDS",
    "UNKNOWN_CATEGORIES",
    "Alias",
    "Blockwise",
    "BlockwiseIO",
    "CumulativeAggregations",
    "Expr",
    "Filter",
    "FilterAlign",
    "FromGraph",
    "FromPandas",
    "FusedIO",
    "GraphNode",
    "List",
    "Partitions",
    "PartitionsFiltered",
    "Projection",
    "Repartition",
    "Shuffle",
    "Task",
    "TaskRef",
    "new_collection",
]
