"""The options that several verbs share, and the settings in Dask's configuration."""

from __future__ import annotations

import contextlib
import functools
import numbers
import os
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import dask
import numpy as np
import yaml
from dask.base import get_scheduler
from dask.utils import parse_bytes

from dask_simjoin import catalog
from dask_simjoin.catalog import CHOICES, LOSSY
from dask_simjoin.errors import OptionError, PlanningError
from dask_simjoin.metrics.distances import METRICS
from dask_simjoin.metrics.norms import Columns
from dask_simjoin.request.config_source import (
    check_names,
    origin,
    source,
    variable,
)
from dask_simjoin.request.messages import shown

if TYPE_CHECKING:
    from distributed import Client

MetricName = Literal[
    "euclidean",
    "sqeuclidean",
    "manhattan",
    "chebyshev",
    "minkowski",
    "cosine",
    "haversine",
    "hamming",
    "canberra",
    "braycurtis",
]
Pairs = Literal["unique", "both"]
MethodName = Literal[
    "auto", "sweep", "tiles", "grid", "nested_loop", "zorder", "kmeans"
]
Method = MethodName | catalog.Method
"""A name in `dask_simjoin.catalog.CHOICES`, or an object of `dask_simjoin.methods`."""

Partitioning = Literal["auto", "entity", "spatial", "replicated"]

Distance = float | str
"""A number, or a number with a unit, such as "500 m"."""

Radius = float | str
"""A distance, or the name of a column with one distance per row."""

Radii = Radius | Sequence[float]
"""A radius, or several distances that are counted separately."""

Size = int | str | None
"""Number of bytes, or a text such as "64 MiB". None: the plan derives it from the
memory of the workers.
"""

Keep = Columns | Mapping[str, Columns]
"""Columns of both rows, or a dict with columns of the "left" and of the "right" row."""

Box = float | Sequence[float | None] | Mapping[Hashable, float] | None
"""Lengths of a periodic box: one, one for each column, or a dict."""

SUFFIXES = ("_left", "_right")

EPS_HELP = "largest distance of a pair, or a column with one distance per row"

ORDER = (
    "n",
    "other",
    "eps",
    "path",
    "max_eps",
    "k",
    "max_distance",
    "min_distance",
    "threshold",
    "how",
    "min_cluster_size",
    "min_samples",
    "cluster_selection_method",
    "cluster_selection_epsilon",
    "max_cluster_size",
    "allow_single_cluster",
    "name",
    "mode",
    "grouping",
    "on",
    "left_on",
    "right_on",
    "metric",
    "similarity",
    "tokenizer",
    "transpositions",
    "id",
    "left_id",
    "right_id",
    "return_distance",
    "distance_unit",
    "return_similarity",
    "keep",
    "suffixes",
    "by",
    "within",
    "different",
    "per_group",
    "mutual",
    "best",
    "ties",
    "matching",
    "pairs",
    "include_self",
    "dropna",
    "p",
    "box",
    "comparison",
    "allow_empty",
    "allow_missing",
    "threads",
    "blocksize",
    "partitioning",
    "storage_options",
    "store_pairs",
    "recluster",
    "row_group",
    "method",
    "approximate",
)
"""Order of options in signatures: first the query, columns and result, then special
conditions, and at the end the computation.
"""


def about(
    text: str, choices: tuple[str, ...] = (), unit: str = ""
) -> dict[str, object]:
    """Return the metadata of an option.

    `text`: its help; `choices`: all allowed values, if they can be listed.
    """
    return {"help": text, "choices": choices, "unit": unit}


PAIRS = about("return each pair once, or in both directions", choices=get_args(Pairs))


@dataclass(frozen=True, kw_only=True)
class RowIds:
    """Option: the ids of rows in the result."""

    id: Hashable | None = field(
        default=None, metadata=about("column of unique row ids")
    )


@dataclass(frozen=True, kw_only=True)
class IdsOfTwo(RowIds):
    """Options: the ids of rows of two tables."""

    left_id: Hashable | None = field(
        default=None, metadata=about("column of unique ids of the left table")
    )
    right_id: Hashable | None = field(
        default=None, metadata=about("column of unique ids of the right table")
    )


@dataclass(frozen=True, kw_only=True)
class Coordinates(RowIds):
    """Options: columns of coordinates, and the metric."""

    on: Columns = field(
        default=None, metadata=about("columns of coordinates, or one column of lists")
    )
    metric: MetricName = field(
        default="euclidean", metadata=about("distance metric", choices=tuple(METRICS))
    )
    p: float = field(default=2, metadata=about("power of the Minkowski metric"))
    dropna: bool = field(
        default=False,
        metadata=about("let rows with missing or infinite coordinates have no partner"),
    )


@dataclass(frozen=True, kw_only=True)
class Chunked:
    """Options: how rows are divided into chunks."""

    partitioning: Partitioning = field(
        default="auto",
        metadata=about("division of rows into chunks", choices=get_args(Partitioning)),
    )
    blocksize: Size = field(
        default=None,
        metadata=about(
            "largest size of a chunk, and of a partition of the result", unit="bytes"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Threaded:
    """Option: the number of threads for a plain frame."""

    threads: int | None = field(
        default=None,
        metadata=about(
            "number of threads for a plain frame; default: all cores that the process "
            "may use"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class MetricRequest(Coordinates, Chunked, Threaded):
    """Base of requests about rows that are near each other."""

    groups_need_bound: ClassVar[bool] = True  # whether `by` requires a largest distance
    bound: ClassVar[str] = "eps"  # name of the option for the largest distance
    # whether the option `bound` may name a column with one distance per row
    radii: ClassVar[bool] = False
    # whether the result has row ids; if not, ids may repeat
    names_rows: ClassVar[bool] = True
    # whether `metric` may be a formula, as with `Conditions`
    formulas: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class EngineOption:
    """Option: the algorithm that finds pairs in chunks."""

    method: Method = field(
        default="auto", metadata=about("algorithm that finds pairs", choices=CHOICES)
    )


@dataclass(frozen=True, kw_only=True)
class MayLose(EngineOption):
    """Option: whether the result may miss pairs."""

    lossy: ClassVar[tuple[str, ...]] = LOSSY  # methods that can skip pairs

    approximate: bool = field(
        default=False,
        metadata=about(
            "with method='kmeans', skip pairs of rows in different clusters"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Within:
    """Option: columns that must be equal in both rows of a pair."""

    by: Columns = field(
        default=None, metadata=about("columns that must be equal in both rows")
    )


@dataclass(frozen=True, kw_only=True)
class Conditions(Within):
    """Options: further conditions on the rows of a pair."""

    within: Mapping[Hashable, Any] | None = field(
        default=None,
        metadata=about(
            "largest difference of both rows in further columns, such as time='10 min'"
        ),
    )
    different: Columns = field(
        default=None, metadata=about("columns that must differ in both rows")
    )
    box: Box = field(
        default=None,
        metadata=about(
            "lengths of a periodic box: one, one for each column, or a dict"
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Options: columns that are added to the result."""

    keep: Keep = field(
        default=None, metadata=about("columns of both rows to add to the result")
    )
    suffixes: tuple[str, str] = field(
        default=SUFFIXES, metadata=about("suffixes for overlapping column names")
    )


@dataclass(frozen=True, kw_only=True)
class WithUnit:
    """Option: the unit of returned distances."""

    distance_unit: str | None = field(
        default=None, metadata=about("unit of the returned distances, such as km")
    )


@dataclass(frozen=True, kw_only=True)
class OfTwoTables(MetricRequest, IdsOfTwo):
    """Base of requests for two tables, whose columns may have different names."""

    left_on: Columns = field(
        default=None, metadata=about("columns of coordinates of the left table")
    )
    right_on: Columns = field(
        default=None, metadata=about("columns of coordinates of the right table")
    )


@dataclass(frozen=True, kw_only=True)
class TwoTableOptions(OfTwoTables, Kept):
    """Base of requests for pairs of rows of two tables."""


@dataclass(frozen=True, kw_only=True)
class Paired(MetricRequest, Conditions, MayLose):
    """Base of requests for pairs of rows of one table."""

    radii: ClassVar[bool] = True

    eps: Radius = field(kw_only=False, metadata=about(EPS_HELP))
    pairs: Pairs = field(default="unique", metadata=PAIRS)
    include_self: bool = field(
        default=False, metadata=about("also pair each row with itself")
    )


@dataclass(frozen=True, kw_only=True)
class Nearest(MetricRequest):
    """Base of requests for nearest neighbors. They do not support replicated chunks."""

    partitioning: Literal["auto", "entity", "spatial"] = field(
        default="auto",
        metadata=about(
            "division of rows into chunks", choices=("auto", "entity", "spatial")
        ),
    )


_setting = threading.RLock()
# another thread may hold it during a fork, and does not exist in the new process
os.register_at_fork(after_in_child=_setting._at_fork_reinit)  # type: ignore[attr-defined]

_clients_of_parent: weakref.WeakSet[Client] = weakref.WeakSet()
"""Clients that were made before this process was forked. Their threads do not exist
here.
"""


def _note_clients() -> None:
    """In a forked process, remember the client of the parent: Dask would wait for it."""
    with contextlib.suppress(Exception):
        client = _current_client()
        if client is not None:
            _clients_of_parent.add(client)


os.register_at_fork(after_in_child=_note_clients)

MAX_WHOLE = 2**62
"""Larger whole numbers and sizes in bytes are replaced by this one, because kernels use
64-bit integers.
"""

SHUFFLES = ("tasks", "disk", "p2p")
"""Dask's methods of shuffling rows."""

GIVEN = yaml.safe_load(
    (resources.files("dask_simjoin") / "request/simjoin.yaml").read_text()
)
DEFAULTS: dict[str, Any] = GIVEN["simjoin"]
"""Default values of the settings under "simjoin" in Dask's configuration."""

SIZES = ("blocksize", "output-size", "result-limit")
"""The settings that are numbers of bytes."""

dask.config.update_defaults(GIVEN)


@dataclass(frozen=True)
class Settings:
    """The settings that affect a plan, copied from Dask's configuration when a verb is
    called.

    None: not set.
    """

    # `blocksize`, `output` and `result` are in bytes: see `planning.limits.Limits`
    blocksize: int | None
    output: int | None
    result: int | None
    shuffle: str | None  # Dask's method of shuffling rows
    cluster: bool  # whether Dask would compute on a cluster
    threads: int | None = None  # see `planning.resources.plain_threads`


def current_settings(cluster: bool = False, threads: object = None) -> Settings:
    """Read the settings; raise an error if a name or a value is not allowed.

    `threads`: the option, which replaces the setting; None: it is not given.
    """
    check_names(DEFAULTS)
    settings = read_settings(cluster)
    if threads is None:
        return settings
    return replace(settings, threads=check_whole("threads", threads, 1))


def read_settings(cluster: bool = False) -> Settings:
    """Read the settings as `current_settings` does, without checking their names. Tasks
    on workers use it, since their results do not depend on the settings.
    """
    sizes = {name: _read(name, parse_size) for name in SIZES}
    threads = _read("threads", functools.partial(check_whole, minimum=1))
    shuffle = dask.config.get("dataframe.shuffle.method", None)
    if shuffle not in (None, *SHUFFLES):
        key = "dataframe.shuffle.method"
        raise OptionError(
            f"{key}={shown(shuffle)} is not allowed; use one of "
            f"{', '.join(map(repr, SHUFFLES))}, or remove the setting. It comes from "
            f"{source(key, shuffle)}."
        )
    return Settings(
        sizes["blocksize"],
        sizes["output-size"],
        sizes["result-limit"],
        shuffle,
        cluster,
        threads,
    )


def _read(name: str, check: Callable[[str, Any], int]) -> int | None:
    """Return a setting of this package; None if it is not set. An error for its value
    names its source.
    """
    key = f"simjoin.{name}"
    value = dask.config.get(key, DEFAULTS[name])
    if value is None:
        return None
    try:
        return check(key, value)
    except OptionError as error:
        raise OptionError(f"{error} It comes from {source(key, value)}.") from None


def size_origin(name: str, size: int) -> str:
    """Describe where a setting in bytes came from, in the words of messages."""
    key = f"simjoin.{name}"
    return _size_origin(key, size, os.environ.get(variable(key)))


@functools.lru_cache
def _size_origin(key: str, size: int, given: str | None) -> str:
    """Return the origin of a size. It is cached, because files must be read to find it.

    `given`: the value of the environment variable now, since it may change.
    """
    return origin(key, size, functools.partial(parse_size, key))


def parse_size(name: str, value: Any) -> int:
    """Convert a number or a text such as "64 MiB" to bytes; raise an error for other
    values.
    """
    # timedelta64 is excluded explicitly, because NumPy registers it as an integer
    number = isinstance(value, numbers.Real) and not isinstance(
        value, (bool, np.timedelta64)
    )
    try:
        size = (
            int(parse_bytes(value))
            if isinstance(value, str)
            else int(value)
            if number
            else 0
        )
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise OptionError(
            f"{name}={shown(value)} is not allowed; use a number of bytes of at least "
            "1, or text such as "
            "'64 MiB'."
        )
    return min(size, MAX_WHOLE)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number."""
    # NumPy counts timedelta64 among its integers
    return isinstance(value, (int, np.integer)) and not isinstance(
        value, (bool, np.timedelta64)
    )


def check_whole(name: str, value: Any, minimum: int) -> int:
    """Return a whole number as an int, at most `MAX_WHOLE`; raise an error for other
    values.
    """
    if not is_whole(value) or value < minimum:
        raise OptionError(
            f"{name}={shown(value)} is not allowed; use a whole number >= {minimum}."
        )
    return min(int(value), MAX_WHOLE)


def current_client() -> Client | None:
    """Return the client that Dask would compute with now; None: Dask would not use a
    cluster.

    Raises
    ------
    PlanningError
        If this process was forked after the client was made.
    """
    client = _current_client()
    if client is not None and client in _clients_of_parent:
        raise PlanningError(
            "This process was forked from one with a Dask client, and the client's "
            "connections do not work after a fork. Start processes with 'spawn' or "
            "'forkserver', make a new client in this process, or compute within "
            "dask.config.set(scheduler='threads')."
        )
    return client


def _current_client() -> Client | None:
    # then there is no client, and asking Dask would import the module
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    client = getattr(get_scheduler(), "__self__", None)
    return client if isinstance(client, Client) else None


def on_cluster() -> bool:
    """Return whether Dask would compute on a distributed cluster now."""
    return current_client() is not None


@contextlib.contextmanager
def texts_as_given() -> Iterator[None]:
    """Prevent Dask from converting texts and objects to its string dtype.

    All threads share Dask's configuration, so a lock is needed. Otherwise a thread
    could save the temporary value of another thread, and restore it permanently.
    """
    with _setting, dask.config.set({"dataframe.convert-string": False}):
        yield
