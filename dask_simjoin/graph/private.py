"""Every import from Dask that Dask does not document: the one place to mend when Dask moves."""

from dask._task_spec import Alias, List, Task, TaskRef
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._cumulative import CumulativeAggregations
from dask.dataframe.dask_expr._expr import Blockwise, Expr, Partitions, PartitionsFiltered
from dask.dataframe.dask_expr._repartition import Repartition
from dask.dataframe.dask_expr._shuffle import Shuffle
from dask.dataframe.dask_expr.io.io import BlockwiseIO, FusedParquetIO
from dask.dataframe.utils import UNKNOWN_CATEGORIES

__all__ = [
    "UNKNOWN_CATEGORIES",
    "Alias",
    "Blockwise",
    "BlockwiseIO",
    "CumulativeAggregations",
    "Expr",
    "FusedParquetIO",
    "List",
    "Partitions",
    "PartitionsFiltered",
    "Repartition",
    "Shuffle",
    "Task",
    "TaskRef",
    "new_collection",
]
