"""Import all that Dask does not document: the one place to mend when Dask moves."""

import contextlib
import sys
from typing import Any

from dask._task_spec import Alias, GraphNode, List, Task, TaskRef
from dask.dataframe.dask_expr import _expr, _merge, _shuffle, new_collection
from dask.dataframe.dask_expr._collection import FrameBase
from dask.dataframe.dask_expr._cumulative import CumulativeAggregations
from dask.dataframe.dask_expr._expr import (
    Blockwise,
    Elemwise,
    Expr,
    Filter,
    FilterAlign,
    Fused,
    Head,
    Partitions,
    PartitionsFiltered,
    Projection,
    Tail,
)
from dask.dataframe.dask_expr._reductions import Chunk as ReducedPartition
from dask.dataframe.dask_expr._reductions import TreeReduce
from dask.dataframe.dask_expr._repartition import Repartition, RepartitionToFewer
from dask.dataframe.dask_expr._shuffle import Shuffle
from dask.dataframe.dask_expr.io.io import IO, BlockwiseIO, FromGraph, FromPandas, FusedIO
from dask.dataframe.utils import UNKNOWN_CATEGORIES

if sys.version_info < (3, 12):
    # Until Python 3.12 one lock guards a cached property of all objects.  Divisions of lazy joins are told by
    # planning them, which computes: were that lock held, a scheduler of this process that wants divisions of
    # another frame, such as one that is just being persisted, would wait for what waits for it.
    for _class in (Expr, PartitionsFiltered):
        _divisions: Any = vars(_class)["divisions"]
        _divisions.lock = contextlib.nullcontext()

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
    "Elemwise",
    "Expr",
    "Filter",
    "FilterAlign",
    "FrameBase",
    "FromGraph",
    "FromPandas",
    "Fused",
    "FusedIO",
    "GraphNode",
    "List",
    "Partitions",
    "PartitionsFiltered",
    "Projection",
    "ReducedPartition",
    "Repartition",
    "RepartitionToFewer",
    "Shuffle",
    "Task",
    "TaskRef",
    "TreeReduce",
    "new_collection",
]
