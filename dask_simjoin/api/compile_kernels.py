"""Compile kernels ahead of time, for container images and new machines."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import dask
import numpy as np
import pandas as pd

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.catalog import HOME, LIBRARIES
from dask_simjoin.cluster.verbs import connected_components
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.metrics.distances import METRICS
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.options import check_whole
from dask_simjoin.request.units import check_choice
from dask_simjoin.sets.methods import CHOICES
from dask_simjoin.sets.requests import SetOptions
from dask_simjoin.strings.requests import EditOptions

EDIT_VERBS = tuple(
    name
    for name, verb in VERBS.items()
    if issubclass(verb.request, EditOptions) and verb.compiled is not None
)
SET_VERBS = EDIT_VERBS + tuple(
    name
    for name, verb in VERBS.items()
    if issubclass(verb.request, SetOptions) and verb.compiled is not None
)
"""Verbs whose input is text: by edit distance and by sets of tokens."""

SETS, TOKENS = 1500, 40
"""Number of rows in the table of texts, and number of different tokens.

With fewer rows, the method would be chosen without a sample, unlike for large tables.
"""


def compile_sets(verbs: Sequence[str], backend: str) -> list[tuple[str, float]]:
    """Run verbs whose input is text, and return (verb, seconds) for each."""
    import dask.dataframe as dd

    frame = texts(backend)
    lazy = dd.from_pandas(frame, npartitions=2)
    done = []
    for verb in verbs:
        begin = time.perf_counter()
        if verb in EDIT_VERBS:
            run_on_texts(verb, frame)
        else:
            for method in CHOICES:
                run_on_texts(verb, frame, method=method)
        with dask.config.set(scheduler="synchronous"):
            dask.compute(run_on_texts(verb, lazy))
        done.append((verb, time.perf_counter() - begin))
    return done


def texts(backend: str) -> Frame:
    """Return random rows of a few words; some rows are similar."""
    import dask.dataframe as dd

    rng = np.random.default_rng(0)
    words = [
        [f"w{k}" for k in row] for row in rng.integers(0, TOKENS, (SETS, 6)).tolist()
    ]
    frame = pd.DataFrame(
        {"text": pd.Series([" ".join(row) for row in words], dtype="str")}
    )
    return (
        frame
        if backend == HOME
        else dd.from_pandas(frame, npartitions=1).to_backend(backend).compute()
    )


def run_on_texts(verb: str, frame: Frame, **more: Any) -> Any:
    """Call a verb on the frame of `texts`."""
    options: dict[str, Any] = {
        "on": "text",
        "threshold": 0.7,
        "tokenizer": "whitespace",
    }
    if verb in EDIT_VERBS:
        options = {"on": "text", "k": 2}
    if verb in ("set_join", "edit_join"):
        options["other"] = frame
    return VERBS[verb].function(frame, **options, **more)


DIMS = (2, 6, 16)
"""Joins with these numbers of columns compile all CPU kernels of the Euclidean
distance.

On GPUs, each number of columns has its own kernels.
"""

ROWS, NEIGHBORS = 3000, 10

WIDE = 10_000
"""One column is multiplied by this, so that the method "sweep" compares only this
column at first.
"""

EMBEDDED = ("cosine", "haversine")
"""Metrics that convert columns to points on a sphere.

On a sphere, no coordinate can have a much wider range than the others.
"""

OPTIONS: dict[str, Mapping[str, Any]] = {
    **{
        name: verb.compiled for name, verb in VERBS.items() if verb.compiled is not None
    },
    "connected_components": {},
}
"""Verb that has kernels -> options of the call that compiles them.

A value True is replaced by a distance: see `points`.
"""

SEVERAL = ("count_pairs", "neighbor_counts")
"""Verbs that also accept a list of distances, which needs further kernels."""

WITH_DISTANCES = ("self_join", "join")
"""Verbs that return distances on request, which needs further kernels."""


def compile_kernels(
    verbs: Iterable[str] | None = None,
    dims: Iterable[int] = DIMS,
    *,
    metric: str = "euclidean",
    backend: str = "pandas",
    processes: int = 1,
) -> pd.DataFrame:
    """Compile the kernels of verbs ahead of time, so that the first call is fast.

    Each verb runs on a few thousand random rows, as a plain frame and as a Dask
    DataFrame. CPU kernels are saved in the folder of ``NUMBA_CACHE_DIR``, else in the
    package's folder, else in the user's cache folder. GPU kernels are saved in CuPy's
    folder (``CUPY_CACHE_DIR``).

    Parameters
    ----------
    verbs : iterable of str, optional
        Names of verbs. Default: all verbs; `neighbor_graph` only if SciPy is installed.
    dims : iterable of int, default (2, 6, 16)
        Numbers of columns. On CPUs, the default compiles all kernels of a metric. On
        GPUs, pass the numbers of columns that you use.
    metric : str, default "euclidean"
        The `metric` of the verbs; "haversine" needs ``dims=[2]``.
    backend : {"pandas", "cudf"}, default "pandas"
        Compile for CPUs, or for the GPU of this machine.
    processes : int, default 1
        Number of processes. The numbers of columns are divided among them.

    Returns
    -------
    pandas.DataFrame
        One row for each verb and number of columns: ``verb`` (str), ``dims`` (int64),
        ``seconds`` (float64). The first verbs take longest, because later ones share
        their kernels. Verbs of sets and texts have ``dims`` 0.

    Raises
    ------
    OptionError, OptionTypeError
        An option has a value that is not allowed.

    Examples
    --------
    >>> import dask_simjoin
    >>> compiled = dask_simjoin.compile_kernels(["count_pairs"], dims=[2])
    >>> compiled[["verb", "dims"]].values.tolist()
    [['count_pairs', 2]]

    On all workers of a cluster: ``client.run(dask_simjoin.compile_kernels)``.
    """
    graph = importlib.util.find_spec("scipy") is not None
    left_out = set() if graph else {"neighbor_graph"}
    left_out |= set() if backend == HOME else set(EDIT_VERBS)
    names = (
        [name for name in OPTIONS if name not in left_out]
        if verbs is None
        else list(verbs)
    )
    for name in names:
        check_choice("verbs", name, tuple(OPTIONS))
    check_choice("backend", backend, LIBRARIES)
    sizes = [check_whole("dims", size, 1) for size in dims]
    point_verbs = [name for name in names if name not in SET_VERBS]
    set_verbs = [name for name in names if name in SET_VERBS]
    jobs = [(point_verbs, size, metric, backend) for size in sizes if point_verbs]
    jobs += [(set_verbs, 0, metric, backend)] if set_verbs else []
    if check_whole("processes", processes, 1) == 1:
        parts = [_compile(*job) for job in jobs]
    else:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            parts = list(pool.map(_compile, *zip(*jobs, strict=True)))
    rows = [row for part in parts for row in part]
    return pd.DataFrame(rows, columns=["verb", "dims", "seconds"])


def points(dims: int, backend: str) -> tuple[Frame, float]:
    """Return random rows, and a distance within which most rows have a few neighbors."""
    x = np.random.default_rng(dims).uniform(-60, 60, (ROWS, dims))
    squares = ((x[:100, None] - x[None]) ** 2).sum(axis=2)
    eps = float(
        np.median(np.sqrt(np.partition(squares, NEIGHBORS, axis=1)[:, NEIGHBORS]))
    )
    frames = frames_of_library(backend)
    return frames.result(
        {f"x{k}": frames.xp.asarray(x[:, k]) for k in range(dims)}, ROWS
    ), eps


def run(
    verb: str,
    frame: Frame,
    eps: float | list[float],
    metric: str = "euclidean",
    **more: Any,
) -> Any:
    """Call a verb on the frame of `points`."""
    if verb == "connected_components":
        pairs = VERBS["self_join"].function(frame, eps, metric=metric, **more)
        return connected_components(pairs)
    options = {
        name: eps if value is True else value for name, value in OPTIONS[verb].items()
    }
    if metric != "euclidean" and verb != "optics":
        options["metric"] = metric
    if verb == "join":
        options["other"] = frame
    return VERBS[verb].function(frame, **options, **more)


def _compile(
    verbs: Sequence[str], dims: int, metric: str, backend: str
) -> list[tuple[str, int, float]]:
    import dask.dataframe as dd

    if not dims:
        return [(verb, 0, seconds) for verb, seconds in compile_sets(verbs, backend)]
    frame, eps = points(dims, backend)
    eps = {"haversine": 111_000 * eps, "sqeuclidean": eps**2, "cosine": 0.05}.get(
        metric, eps
    )
    if METRICS[metric].formula:
        eps = 0.1
    if metric == "braycurtis":  # it compares amounts
        frame = frame.abs()
    done = []
    for verb in verbs:
        begin = time.perf_counter()
        run(verb, frame, eps, metric)
        if verb in SEVERAL:
            run(verb, frame, [eps / 2, eps], metric)
        if verb in WITH_DISTANCES:
            run(verb, frame, eps, metric, return_distance=True)
        lazy = dd.from_pandas(frame, npartitions=2)
        with dask.config.set(scheduler="synchronous"):
            dask.compute(run(verb, lazy, eps, metric, partitioning="spatial"))
        if (
            backend == "pandas"
            and metric not in EMBEDDED
            and True in OPTIONS[verb].values()
        ):
            run(verb, frame.assign(x0=WIDE * frame["x0"]), eps, metric)
        done.append((verb, dims, time.perf_counter() - begin))
    return done
