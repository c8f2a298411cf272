"""Options of the grid joins of two papers: see `Grid`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dask_simjoin.errors import OptionError


def is_word(value: object, *words: str) -> bool:
    """Tell whether a value is one of some words; an array, which compares by its elements, is none."""
    return isinstance(value, str) and value in words


def check_whole(owner: str, name: str, value: object, least: int, most: int, others: str = "") -> None:
    """Refuse what is no whole number from `least` to `most`; `others`: what else is allowed, in words."""
    if type(value) is not int or not least <= value <= most:
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use {others}a whole number from {least} to {most:,}."
        )


def check_one_of(owner: str, name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse what is none of these values, or of another type."""
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use one of {', '.join(map(repr, allowed))}."
        )


def check_share(owner: str, name: str, value: object) -> None:
    """Refuse what is no float above 0 and up to 1."""
    if not isinstance(value, float) or not 0 < value <= 1:
        raise OptionError(f"{owner}({name}={value!r}) is not allowed; use a float above 0 and up to 1.0.")


def check_batches(owner: str, options: Any) -> None:
    """Refuse what methods cannot be told of GPUs: the filter's precision, and how queries are cut."""
    check_one_of(owner, "precision", options.precision, ("float32", "float64"))
    check_whole(owner, "buffer", options.buffer, 1, 1 << 40)
    check_whole(owner, "batches", options.batches, 1, 1 << 20)
    check_whole(owner, "streams", options.streams, 1, 64)
    check_share(owner, "sample", options.sample)


MAX_INDEXED = 12
"""Dimensions that are indexed at most: a query looks for 3**k cells."""

USUAL_INDEXED = 6
"""Dimensions that GPU-Join indexes in all its experiments but those on their number."""

PATTERNS = ("full", "unicomp", "lid")
ORDERS = ("given", "workload", "queue")
THREADS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Look up the cells of a grid around each point: the joins of two papers, for comparison.

    They are GPU-Join (Gowanlock & Karsin 2019, "GPU Accelerated Similarity Self-Join for Multi-Dimensional
    Data") and the load balancing for few dimensions that followed it (Gallet & Gowanlock 2019, "Load
    Imbalance Mitigation Optimizations for GPU-Accelerated Similarity Joins").  Pairs are those of every
    other method.

    Parameters
    ----------
    indexed : int, "auto" or None
        Dimensions of the grid, at most 12; all, where there are fewer.  "auto": as many as the papers' cost
        model finds best on a sample (section 5.6 of the first).  None: 6.
    reorder : bool
        Whether dimensions of larger variance come first (section 4.2), so that they are indexed.
    sort : bool or None
        Whether the points of each cell are sorted by one dimension, the first that is not indexed, and only
        those within reach in it are compared (section 4.3).  None: where there is such a dimension.
    short_circuit : bool
        Whether a sum ends once it is beyond the threshold (section 4.4).
    pattern : {"full", "unicomp", "lid"}
        Which cells a query visits besides its own: all around it; those that differ from it last in a
        dimension where its own coordinate is odd (UNICOMP); or those of higher numbers (LID-UNICOMP, section
        III-B of the second).  Between two chunks it is always "full".
    order : {"given", "workload", "queue"}
        In which order queries are done: as rows are, or by the number of points in the cells that they visit,
        most first (section III-C), in strided batches; "queue": one after the other (section III-D).
    threads : int
        On GPUs: threads of a query, which share the points of each cell (section III-A): 1, 2, 4, 8, 16
        or 32.
    precision : {"float32", "float64"}
        On GPUs: what candidates are compared in, before float64 decides what float32 leaves open; other
        norms than squares always are in float64.
    buffer : int
        On GPUs: pairs of a batch at most, of which there are as many as an estimate says; a batch of more is
        done again in two.
    batches, streams : int
        Batches at least, and how many of them a GPU does at a time.
    sample : float
        On GPUs: the share of the queries of which the estimate is made; the first ones of a queue.

    Notes
    -----
    Unlike in the papers, unordered pairs are written once; cells are wider than `eps` by one part in 2**18,
    so that none is lost to rounding, or twice as wide where their numbers would not fit 62 bits; points are
    stored in the order of cells; variances are those of all rows; cells that a half pattern leaves out are
    not enumerated; a batch has a queue of its own, and one that overflows is done again in two; float32
    only leaves out, and what is near the threshold is decided in float64; ties of workloads are broken by
    cell number, ties of sorted values by position.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]})
    >>> df.simjoin.self_join(1.0, method=methods.Grid(pattern="unicomp"))
       left  right
    0     0      1
    >>> methods.Grid.balanced().threads
    8
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.papers.cpu.grid",
        "cudf": "dask_simjoin.papers.gpu.grid",
    }
    max_dims: ClassVar[int | None] = None

    indexed: int | str | None = None
    reorder: bool = True
    sort: bool | None = None
    short_circuit: bool = True
    pattern: str = "lid"
    order: str = "queue"
    threads: int = 8
    precision: str = "float32"
    buffer: int = 10**8
    batches: int = 3
    streams: int = 3
    sample: float = 0.01

    def __post_init__(self) -> None:
        if self.indexed is not None and not is_word(self.indexed, "auto"):
            check_whole("Grid", "indexed", self.indexed, 1, MAX_INDEXED, "'auto', None, or ")
        for name in ("reorder", "short_circuit"):
            check_one_of("Grid", name, getattr(self, name), (True, False))
        check_one_of("Grid", "sort", self.sort, (True, False, None))
        check_one_of("Grid", "pattern", self.pattern, PATTERNS)
        check_one_of("Grid", "order", self.order, ORDERS)
        check_one_of("Grid", "threads", self.threads, THREADS)
        check_batches("Grid", self)

    @classmethod
    def plain(cls) -> Grid:
        """Return what both papers improve on: all dimensions indexed, all cells visited, rows in order."""
        return cls(
            indexed=MAX_INDEXED, reorder=False, sort=False, short_circuit=False, pattern="full",
            order="given", threads=1, precision="float64",
        )  # fmt: skip

    @classmethod
    def balanced(cls) -> Grid:
        """Return the final configuration of the paper on load balance: LID-UNICOMP, a queue, 8 threads."""
        return cls(
            indexed=MAX_INDEXED, reorder=False, sort=False, short_circuit=False, pattern="lid",
            order="queue", threads=8, precision="float64",
        )  # fmt: skip

    @classmethod
    def gpu_join(cls, indexed: int | str = USUAL_INDEXED) -> Grid:
        """Return GPU-Join with all its optimisations, for many dimensions."""
        return cls(indexed=indexed, sort=True, pattern="full", order="given", threads=1)

    def is_best(self, dims: int) -> bool:
        """Tell that "auto" never takes it: the product's own methods are faster."""
        return False
