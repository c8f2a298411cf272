"""Options of joins by lists in Z-order, by k-means clusters, and of nested loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dask_simjoin.catalog.methods import Method
from dask_simjoin.papers.options import check_batches, check_one_of, check_whole, is_word

WINDOWS = ("one-sided", "two-sided", "thesis")
INNER = ("tiles", "nested_loop")
MAX_CLUSTERS = 4096


@dataclass(frozen=True)
class KMeans(Method):
    """Join the rows of each k-means cluster, and with them those that lie near to its border.

    `method="kmeans"` stands for it with these defaults, for comparison. It follows KMEANS-JOIN of Korkmaz,
    "K-means Clustering Based Similarity Join on GPU" (MSc thesis, Bilkent 2012), section 4.3, with windows of
    our own: rows get the label of the nearest centre, and are copied to another cluster if they are within a
    window of the border to it, so that each pair meets in some cluster.

    Parameters
    ----------
    clusters : int or "auto"
        How many; "auto": as many as compare the fewest pairs, as a sample tells.
    iterations : int
        Of Lloyd's algorithm on the sample, at most.
    seed : int
        Of the rows that are the first centres.
    windows : {"one-sided", "two-sided", "thesis"}
        "one-sided": rows within `eps` of the border to a cluster of a higher number are copied there and meet
        its own rows, so that each pair meets once. "two-sided": rows within half of `eps` of a border are
        copied to its other side; pairs meet in several clusters and belong to the highest. "thesis": the
        same with all of `eps`, as published. Between two chunks or tables rows of the left one are copied,
        within `eps`.
    inner : {"tiles", "nested_loop"}
        How the rows of a cluster are joined: by tiles in kd order, or all with all; on CPUs that is by blocks
        in a rotation, as there.
    precision, buffer, batches, streams, sample
        On GPUs: what they are of `NestedLoop`.

    Notes
    -----
    Unlike in the thesis the centres are those of a sample, any number of clusters is possible, windows are
    wider than their formula by what rounding may do, and no pair is found twice.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]})
    >>> df.simjoin.self_join(1.0, method=methods.KMeans(clusters=2))
       left  right
    0     0      1
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.papers.cpu.kmeans",
        "cudf": "dask_simjoin.papers.gpu.kmeans",
    }
    recall_module: ClassVar[str | None] = "dask_simjoin.papers.recall"

    clusters: int | str = "auto"
    iterations: int = 15
    seed: int = 0
    windows: str = "one-sided"
    inner: str = "tiles"
    precision: str = "float32"
    buffer: int = 10**8
    batches: int = 3
    streams: int = 3
    sample: float = 0.01

    def __post_init__(self) -> None:
        if not is_word(self.clusters, "auto"):
            check_whole("KMeans", "clusters", self.clusters, 1, MAX_CLUSTERS, "'auto' or ")
        check_whole("KMeans", "iterations", self.iterations, 0, 10_000)
        check_whole("KMeans", "seed", self.seed, 0, 2**63 - 1)
        check_one_of("KMeans", "windows", self.windows, WINDOWS)
        check_one_of("KMeans", "inner", self.inner, INNER)
        check_batches("KMeans", self)

    @property
    def order(self) -> str:
        """How batches are cut: strided, so that each has some of each cluster."""
        return "given"

    @property
    def needs_sample(self) -> bool:
        """Whether centers depend on a sample: always."""
        return True

    def approximate_layout(self, layout: Any) -> Any:
        """Return the layout of the join that loses pairs of two clusters: no row is copied."""
        return replace(layout, copies=False)


SCHEDULES = ("rotation", "triangle")
BLOCKS = (32, 64, 128, 256)


@dataclass(frozen=True)
class NestedLoop(Method):
    """Compare each row with each other one: nothing is left out, as in two loops.

    `method="nested_loop"` stands for it with these defaults, for comparison: the package's own methods leave
    out most rows. It follows Korkmaz, "K-means Clustering Based Similarity Join on GPU" (MSc thesis, Bilkent
    2012), sections 4.1 and 4.2, and what it took from Böhm et al. 2009.

    Parameters
    ----------
    schedule : {"rotation", "triangle"}
        How two rows meet once: rows lie in blocks, and each block is compared with those that follow it up
        to half the way round, so that all have as much to do (GPU-INLJ, algorithm 5); or each row with all
        after it (GPU-NLJ, algorithm 4).
    block : int
        Rows of a block: 32, 64, 128 or 256; on GPUs the threads of one.
    precision : {"float32", "float64"}
        On GPUs: what candidates are compared in, before float64 decides what float32 leaves open; other
        norms than squares always are in float64.
    buffer : int
        On GPUs: pairs of a batch at most, of which there are as many as an estimate says; a batch of more is
        done again in two.
    batches, streams : int
        Batches at least, and how many of them a GPU does at a time.
    sample : float
        On GPUs: the share of the blocks of which the estimate is made.

    Notes
    -----
    Unlike in the thesis, rows are not padded to an odd number of blocks, with which padded rows pair: of an
    even number, two blocks that are half the way round apart meet in the first of them.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]})
    >>> df.simjoin.self_join(1.0, method=methods.NestedLoop(schedule="triangle"))
       left  right
    0     0      1
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.papers.cpu.nested",
        "cudf": "dask_simjoin.papers.gpu.nested",
    }

    schedule: str = "rotation"
    block: int = 128
    precision: str = "float32"
    buffer: int = 10**8
    batches: int = 3
    streams: int = 3
    sample: float = 0.01

    def __post_init__(self) -> None:
        check_one_of("NestedLoop", "schedule", self.schedule, SCHEDULES)
        check_one_of("NestedLoop", "block", self.block, BLOCKS)
        check_batches("NestedLoop", self)

    @property
    def order(self) -> str:
        """How batches are cut: strided, so that each has early and late rows."""
        return "given"


SHIFTS = ("even", "random")
WALKS = ("auto", "full", "half")
SIDES = ("smaller", "left", "right")
THREADS = (1, 2, 4, 8, 16, 32)
OUTPUTS = ("staged", "ordered")
MAX_LISTS = 4097


@dataclass(frozen=True)
class ZOrder(Method):
    """Walk what lies between the corners of a row's box in the best of several shifted Z-orders.

    `method="zorder"` stands for it with these defaults, for comparison. It follows LSS (Lieberman,
    Sankaranarayanan & Samet, "A Fast Similarity Join Algorithm Using Graphics Processing Units", ICDE 2008):
    rows are sorted by the bits of their coordinates, interleaved, once for each shift of all coordinates, and
    a row's neighbours lie between the corners of the box around it, in any of these lists.

    Parameters
    ----------
    lists : int or {"auto", "d+1", "log"}
        How many.  "d+1": as many as dimensions and one more (an odd number), with which the theory bounds
        the work of small `eps`; "log": as the logarithm of the dimensions and one more; "auto": as many as
        cost least on a sample.  On GPUs "auto" is "log" where walking its intervals takes less time than
        looking at a sample would.
    shifts : {"even", "random"}
        Parts of the widest column's extent by which lists are shifted: 0, 1/lists, 2/lists, ..., or drawn.
    seed : int
        Of random shifts.
    walk : {"auto", "full", "half"}
        What a row of a self-join meets: all in its shortest interval, of which later rows pair with it; or
        what follows it up to the upper corner, in the one list that is best for all rows.  "auto": what
        costs less.
    index : {"smaller", "left", "right"}
        Which side of two tables, or chunks, is sorted; the other one's rows look their intervals up.
    output : {"staged", "ordered"}
        Pairs of two chunks as they are found, or in the order of their left and then of their right rows.
    words : int
        64-bit words of a key, 1 to 4: bits of a coordinate are as many as fit, at most 20.
    threads : int
        On GPUs: threads of a query, which share its interval: 1, 2, 4, 8, 16 or 32.
    precision : {"float32", "float64"}
        On GPUs: what candidates are compared in, before float64 decides what float32 leaves open; other
        norms than squares always are in float64.
    buffer : int
        On GPUs: pairs of a batch at most, of which there are as many as an estimate says; a batch of more is
        done again in two.
    batches, streams : int
        Batches at least, and how many of them a GPU does at a time.
    sample : float
        On GPUs: the share of the queries of which the estimate is made.

    Notes
    -----
    Unlike in the paper, corners are as far out as rounding may take a pair; a half interval is walked in one
    list for all rows, as a row may come first in its own best list and last in another row's, which loses
    pairs and repeats others; and a shortest interval is never cut to fit a buffer.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]})
    >>> df.simjoin.self_join(1.0, method=methods.ZOrder(lists=3))
       left  right
    0     0      1
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.papers.cpu.zorder",
        "cudf": "dask_simjoin.papers.gpu.zorder",
    }
    has_search: ClassVar[bool] = True
    recall_module: ClassVar[str | None] = "dask_simjoin.papers.recall"

    lists: int | str = "auto"
    shifts: str = "even"
    seed: int = 0
    walk: str = "auto"
    index: str = "smaller"
    output: str = "staged"
    words: int = 1
    threads: int = 8
    precision: str = "float32"
    buffer: int = 10**8
    batches: int = 3
    streams: int = 3
    sample: float = 0.01

    def __post_init__(self) -> None:
        if not is_word(self.lists, "auto", "d+1", "log"):
            check_whole("ZOrder", "lists", self.lists, 1, MAX_LISTS, "'auto', 'd+1', 'log', or ")
        check_one_of("ZOrder", "shifts", self.shifts, SHIFTS)
        check_whole("ZOrder", "seed", self.seed, 0, 2**63 - 1)
        check_one_of("ZOrder", "walk", self.walk, WALKS)
        check_one_of("ZOrder", "index", self.index, SIDES)
        check_one_of("ZOrder", "output", self.output, OUTPUTS)
        check_one_of("ZOrder", "words", self.words, (1, 2, 3, 4))
        check_one_of("ZOrder", "threads", self.threads, THREADS)
        check_batches("ZOrder", self)

    @property
    def order(self) -> str:
        """How batches are cut: strided, so that each has long and short intervals."""
        return "given"

    @property
    def needs_sample(self) -> bool:
        """Whether the number of lists depends on a sample."""
        return self.lists == "auto"
