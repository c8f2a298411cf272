"""Options that several verbs share, and the settings in Dask's configuration."""

from __future__ import annotations

import contextlib
import numbers
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, ClassVar, Literal, get_args

import dask
import numpy as np
import yaml
from dask.base import get_scheduler
from dask.utils import parse_bytes
from distributed import Client

from dask_simjoin.catalog import methods
from dask_simjoin.catalog.methods import CHOICES, LOSSY
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.distances import METRICS
from dask_simjoin.metrics.norms import Columns
from dask_simjoin.request.messages import shown

MetricName = Literal[
    "euclidean", "sqeuclidean", "manhattan", "chebyshev", "minkowski", "cosine", "haversine"
]  # fmt: skip
Pairs = Literal["unique", "both"]
MethodName = Literal["auto", "sweep", "tiles", "grid", "nested_loop", "zorder", "kmeans"]
Method = MethodName | methods.Method
"""The name of a method, one of `dask_simjoin.catalog.methods.CHOICES`, or one of `dask_simjoin.methods`."""

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
    id: Hashable | None = field(default=None, metadata=about("column of unique row ids"))
    metric: MetricName = field(default="euclidean", metadata=about("distance metric", choices=tuple(METRICS)))
    p: float = field(default=2, metadata=about("power of the Minkowski metric"))
    dropna: bool = field(default=False, metadata=about("drop rows without finite coordinates"))


@dataclass(frozen=True, kw_only=True)
class Chunked:
    """Say division of rows into chunks."""

    partitioning: Partitioning = field(
        default="auto", metadata=about("division of rows into chunks", choices=get_args(Partitioning))
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
class EngineOption:
    """Say how pairs are found within chunks."""

    method: Method = field(default="auto", metadata=about("algorithm that finds pairs", choices=CHOICES))


@dataclass(frozen=True, kw_only=True)
class MayLose(EngineOption):
    """Say whether pairs may be left out.

    Attributes
    ----------
    lossy : tuple of str
        The methods that can.
    """

    lossy: ClassVar[tuple[str, ...]] = LOSSY

    approximate: bool = field(
        default=False, metadata=about("skip pairs that are expensive to find, with method='kmeans'")
    )


@dataclass(frozen=True, kw_only=True)
class Within:
    """Say which columns must be equal."""

    by: Columns = field(default=None, metadata=about("columns that must be equal in both rows"))


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Say which columns of rows the result has."""

    keep: Columns = field(default=None, metadata=about("columns to add to the result"))
    suffixes: tuple[str, str] = field(
        default=SUFFIXES, metadata=about("suffixes for overlapping column names")
    )


@dataclass(frozen=True, kw_only=True)
class TwoTableOptions(MetricRequest, Kept):
    """Ask for rows of two tables, whose columns may be called otherwise."""

    left_on: Columns = field(default=None, metadata=about("columns of coordinates of the left table"))
    right_on: Columns = field(default=None, metadata=about("columns of coordinates of the right table"))
    left_id: Hashable | None = field(default=None, metadata=about("column of unique ids of the left table"))
    right_id: Hashable | None = field(default=None, metadata=about("column of unique ids of the right table"))


@dataclass(frozen=True, kw_only=True)
class Paired(MetricRequest, Within, MayLose):
    """Ask for pairs of rows of one table."""

    radii: ClassVar[bool] = True

    eps: Radius = field(kw_only=False, metadata=about("largest distance, or column of distances"))
    pairs: Pairs = field(
        default="unique",
        metadata=about("each pair once, or in both directions", choices=get_args(Pairs)),
    )
    include_self: bool = field(default=False, metadata=about("pair each row with itself"))


@dataclass(frozen=True, kw_only=True)
class Nearest(MetricRequest):
    """Ask for nearest neighbours, which are not sought among copies of a chunk."""

    partitioning: Literal["auto", "entity", "spatial"] = field(
        default="auto",
        metadata=about("division of rows into chunks", choices=("auto", "entity", "spatial")),
    )


_setting = threading.RLock()

MAX_BYTES = 2**62
"""Up to which sizes are told apart."""


SHUFFLES = ("tasks", "disk", "p2p")
"""Dask's ways to shuffle rows."""


GIVEN = yaml.safe_load((resources.files("dask_simjoin") / "request/simjoin.yaml").read_text())
DEFAULTS: dict[str, Any] = GIVEN["simjoin"]
"""Give what is used where Dask's configuration under "simjoin" says nothing."""

dask.config.update_defaults(GIVEN)


@dataclass(frozen=True)
class Settings:
    """Dask's configuration when a join is built, as far as its plan depends on it.

    Attributes
    ----------
    blocksize, output, result : int or None
        Bytes that were set; see `Budget`.
    shuffle : str or None
        How rows are shuffled, where it is set.
    cluster : bool
        Whether there is a client of a cluster.
    """

    blocksize: int | None
    output: int | None
    result: int | None
    shuffle: str | None
    cluster: bool


def current_settings(cluster: bool = False) -> Settings:
    """What is configured now; refuses what is not allowed."""
    sizes = {}
    for name, default in DEFAULTS.items():
        value = dask.config.get(f"simjoin.{name}", default)
        sizes[name] = None if value is None else parse_size(f"The configuration's simjoin.{name}", value)
    shuffle = dask.config.get("dataframe.shuffle.method", None)
    if shuffle not in (None, *SHUFFLES):
        raise OptionError(
            f"The configuration's dataframe.shuffle.method={shown(shuffle)} is not allowed; use one of "
            f"{', '.join(map(repr, SHUFFLES))}, or leave it out."
        )
    return Settings(sizes["blocksize"], sizes["output-size"], sizes["result-limit"], shuffle, cluster)


def parse_size(name: str, value: Any) -> int:
    """A number of bytes, or text such as "64 MiB", as an int; refuses what is neither."""
    # NumPy counts timedelta64 among its integers
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.timedelta64))
    try:
        size = int(parse_bytes(value)) if isinstance(value, str) else int(value) if number else 0
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise OptionError(
            f"{name}={shown(value)} is not allowed; use a number of bytes of at least 1, or text such as "
            "'64 MiB'."
        )
    return min(size, MAX_BYTES)


def current_client() -> Client | None:
    """The client of the cluster that Dask would compute on now."""
    client = getattr(get_scheduler(), "__self__", None)
    return client if isinstance(client, Client) else None


def on_cluster() -> bool:
    """Whether Dask would compute on a distributed cluster now."""
    return current_client() is not None


@contextlib.contextmanager
def texts_as_given() -> Iterator[None]:
    """Make frames whose texts and objects Dask leaves as they are.

    Its configuration is all threads', and each puts back what it found: of two at a time one would put back
    what the other had set, for good.
    """
    with _setting, dask.config.set({"dataframe.convert-string": False}):
        yield
