"""Name the options that several verbs share, with their types, defaults, choices and what to say of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from dask_simjoin.engine import methods
from dask_simjoin.engine.methods import CHOICES, LOSSY
from dask_simjoin.metrics.distances import METRICS
from dask_simjoin.metrics.types import Columns

MetricName = Literal[
    "euclidean", "sqeuclidean", "manhattan", "chebyshev", "minkowski", "cosine", "haversine"
]  # fmt: skip
Pairs = Literal["unique", "both"]
MethodName = Literal["auto", "sweep", "tiles", "grid", "nested_loop", "zorder", "kmeans"]
Method = MethodName | methods.Method
"""The name of a method, one of `dask_simjoin.engine.methods.CHOICES`, or one of `dask_simjoin.methods`."""

Partitioning = Literal["auto", "entity", "spatial", "replicated"]

Distance = float | str
"""A number, or a number with a unit, such as "500 m"."""

Radius = float | str
"""A distance, or the name of a column of each row's own."""

Radii = Radius | Sequence[float]
"""The same, or several distances, each of which is counted within."""

Size = int | str | None
"""A number of bytes, text such as "64 MiB", or None for what the workers' memory gives."""

SUFFIXES = ("_left", "_right")

ORDER = (
    "other", "eps", "path", "max_eps", "k", "max_distance", "threshold", "how", "min_cluster_size",
    "min_samples", "cluster_selection_method", "cluster_selection_epsilon", "max_cluster_size",
    "allow_single_cluster", "name", "mode", "grouping", "on", "left_on", "right_on", "by", "mutual", "id",
    "left_id", "right_id", "metric", "p", "similarity", "comparison", "tokenizer",
    "allow_empty", "allow_missing", "pairs", "include_self", "return_distance", "return_similarity",
    "keep", "suffixes", "dropna", "method", "approximate", "partitioning",
    "store_pairs", "recluster", "row_group", "blocksize",
)  # fmt: skip
"""In which order options are listed: what is sought, the columns, the result, and how it is computed."""


def about(text: str, choices: tuple[str, ...] = (), unit: str = "") -> dict[str, object]:
    """Describe an option, as metadata of its field: `choices` are all values that it has, `unit` its own."""
    return {"help": text, "choices": choices, "unit": unit}


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Say which columns hold coordinates and ids, and what a distance is."""

    on: Columns = field(default=None, metadata=about("columns of coordinates, or one column of lists"))
    id: Hashable | None = field(default=None, metadata=about("column that names rows"))
    metric: MetricName = field(
        default="euclidean", metadata=about("what a distance is", choices=tuple(METRICS))
    )
    p: float = field(default=2, metadata=about("power of minkowski"))
    dropna: bool = field(default=False, metadata=about("leave out rows without finite coordinates"))


@dataclass(frozen=True, kw_only=True)
class Chunked:
    """Say how rows are divided into chunks."""

    partitioning: Partitioning = field(
        default="auto", metadata=about("how rows come into chunks", choices=get_args(Partitioning))
    )
    blocksize: Size = field(default=None, metadata=about("size of a chunk and of a partition", unit="bytes"))


@dataclass(frozen=True, kw_only=True)
class MetricRequest(Coordinates, Chunked):
    """Ask for something of rows that are near each other.

    Attributes
    ----------
    bound : str
        The name of the option that the largest distance is given by.
    radii : bool
        Whether that may name a column of each row's own distance.
    names_rows : bool
        Whether the result names rows by their ids; otherwise those are not read, so they may repeat.
    metrics : tuple of str
        The metrics that are served.
    """

    bound: ClassVar[str] = "eps"
    radii: ClassVar[bool] = False
    names_rows: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = tuple(METRICS)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Say how pairs are found within chunks."""

    method: Method = field(default="auto", metadata=about("engine that finds pairs", choices=CHOICES))


@dataclass(frozen=True, kw_only=True)
class MayLose(Engine):
    """Say whether pairs may be left out.

    Attributes
    ----------
    lossy : tuple of str
        The methods that can.
    """

    lossy: ClassVar[tuple[str, ...]] = LOSSY

    approximate: bool = field(
        default=False, metadata=about("leave out pairs that are dear to find, with method='kmeans'")
    )


@dataclass(frozen=True, kw_only=True)
class Within:
    """Say which columns must be equal."""

    by: Columns = field(default=None, metadata=about("columns that must be equal in both rows"))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Say which columns of rows the result has."""

    keep: Columns = field(default=None, metadata=about("columns whose values the result has"))
    suffixes: tuple[str, str] = field(
        default=SUFFIXES, metadata=about("endings of kept names that both rows have")
    )


@dataclass(frozen=True, kw_only=True)
class TwoTables(MetricRequest, Kept):
    """Ask for rows of two tables, whose columns may be called otherwise."""

    left_on: Columns = field(default=None, metadata=about("columns of coordinates of the left table"))
    right_on: Columns = field(default=None, metadata=about("columns of coordinates of the right table"))
    left_id: Hashable | None = field(default=None, metadata=about("column that names rows of the left table"))
    right_id: Hashable | None = field(
        default=None, metadata=about("column that names rows of the right table")
    )


@dataclass(frozen=True, kw_only=True)
class Paired(MetricRequest, Within, MayLose):
    """Ask for pairs of rows of one table."""

    radii: ClassVar[bool] = True

    eps: Radius = field(kw_only=False, metadata=about("largest distance, or column of each row's own"))
    pairs: Pairs = field(
        default="unique", metadata=about("each pair once, or in both directions", choices=get_args(Pairs))
    )
    include_self: bool = field(default=False, metadata=about("pair each row with itself"))


@dataclass(frozen=True, kw_only=True)
class Nearest(MetricRequest):
    """Ask for nearest neighbours, which are not sought among copies of a chunk."""

    partitioning: Literal["auto", "entity", "spatial"] = field(
        default="auto", metadata=about("how rows come into chunks", choices=("auto", "entity", "spatial"))
    )
