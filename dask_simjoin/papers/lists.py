"""Options of three published methods: lists in Z-order, k-means clusters, and nested
loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dask_simjoin.catalog import Method
from dask_simjoin.engine.filters.bounds import MAX_DIMS
from dask_simjoin.errors import OptionError


def is_word(value: object, *words: str) -> bool:
    """Return whether a value is equal to one of the `words`.

    The value may have any type. An array is not compared with the words.
    """
    return isinstance(value, str) and value in words


def check_whole(
    owner: str, name: str, value: object, low: int, high: int, others: str = ""
) -> None:
    """Raise an error unless the value is a whole number from `low` to `high`.

    `owner`: name of the class that has the option. `others`: other allowed values, as
    text for the message.
    """
    if type(value) is not int or not low <= value <= high:
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use {others}a whole number "
            f"from {low} to {high:,}."
        )


def check_one_of(
    owner: str, name: str, value: object, allowed: tuple[object, ...]
) -> None:
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use one of "
            f"{', '.join(map(repr, allowed))}."
        )


@dataclass(frozen=True, kw_only=True)
class BatchedMethod(Method):
    """Base of methods that run batches of queries on GPUs. `NestedLoop` documents the
    options.
    """

    precision: str = "float32"
    buffer: int = 10**8
    batches: int = 3
    streams: int = 3
    sample: float = 0.01

    def __post_init__(self) -> None:
        owner = type(self).__name__
        check_one_of(owner, "precision", self.precision, ("float32", "float64"))
        check_whole(owner, "buffer", self.buffer, 1, 1 << 40)
        check_whole(owner, "batches", self.batches, 1, 1 << 20)
        check_whole(owner, "streams", self.streams, 1, 64)
        if not isinstance(self.sample, float) or not 0 < self.sample <= 1:
            raise OptionError(
                f"{owner}(sample={self.sample!r}) is not allowed; use a float above 0 "
                "and up to 1.0."
            )

    @property
    def consecutive(self) -> bool:
        """Whether batches have consecutive queries. If not, batch i of n has the
        queries i, i + n, ...
        """
        return False


WINDOWS = ("one-sided", "two-sided", "thesis")
INNER = ("tiles", "nested_loop")
MAX_CLUSTERS = 4096


@dataclass(frozen=True)
class KMeans(BatchedMethod):
    """Join the rows of each k-means cluster, and the rows near its border.

    This is a published method for comparison; `method="kmeans"` selects it with these
    defaults. It follows KMEANS-JOIN of Korkmaz, "K-means Clustering Based Similarity
    Join on GPU" (MSc thesis, Bilkent 2012), section 4.3, with other windows. Each row
    belongs to the cluster of the nearest center. A row is copied to another cluster if
    it lies in a window at the border between the two clusters. So the two rows of a
    pair are together in at least one cluster.

    Parameters
    ----------
    clusters : int or "auto"
        Number of clusters. "auto" chooses the number that needs the fewest comparisons,
        estimated from a sample.
    iterations : int
        Maximum number of iterations of Lloyd's algorithm on the sample.
    seed : int
        Seed for the random rows that are the initial centers.
    windows : {"one-sided", "two-sided", "thesis"}
        The rows of a chunk that are copied when it is compared with itself. If two
        chunks or tables are compared, this option has no effect: left rows within `eps`
        of a border are copied.

        - "one-sided": rows within `eps` of the border to a cluster with a higher
          number. They are compared only with that cluster's own rows, so each pair is
          compared once.
        - "two-sided": rows within half of `eps` of a border, in both directions. If
          several clusters have both rows of a pair, the cluster with the highest number
          returns the pair.
        - "thesis": like "two-sided", but with rows within `eps` of a border, as
          published.
    inner : {"tiles", "nested_loop"}
        The method that joins the rows of a cluster: tiles in kd order, or a nested
        loop. On CPUs, the nested loop compares blocks in a rotation, as in the thesis.
    precision, buffer, batches, streams, sample
        Options for GPUs, as in `NestedLoop`.

    Notes
    -----
    There are four differences to the thesis. Centers come from a sample, not from all
    rows. Any number of clusters is possible. Windows are widened by the possible
    rounding errors, so that no pair is lost. And no pair is returned twice.

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

    def __post_init__(self) -> None:
        if not is_word(self.clusters, "auto"):
            check_whole(
                "KMeans", "clusters", self.clusters, 1, MAX_CLUSTERS, "'auto' or "
            )
        check_whole("KMeans", "iterations", self.iterations, 0, 10_000)
        check_whole("KMeans", "seed", self.seed, 0, 2**63 - 1)
        check_one_of("KMeans", "windows", self.windows, WINDOWS)
        check_one_of("KMeans", "inner", self.inner, INNER)
        super().__post_init__()

    @property
    def needs_sample(self) -> bool:
        """Whether the method needs a sample: it does, because centers come from the
        sample.
        """
        return True

    def approximate_layout(self, layout: Any) -> Any:
        """Return the layout of the approximate join. It copies no rows, so pairs across
        clusters are lost.
        """
        return replace(layout, copies=False)


SCHEDULES = ("rotation", "triangle")
BLOCKS = (32, 64, 128, 256)


@dataclass(frozen=True)
class NestedLoop(BatchedMethod):
    """Compare every row with every other row, without an index.

    This is a published method for comparison; `method="nested_loop"` selects it with
    these defaults. It follows Korkmaz, "K-means Clustering Based Similarity Join on
    GPU" (MSc thesis, Bilkent 2012), sections 4.1 and 4.2, which build on Böhm et al.
    2009.

    Parameters
    ----------
    schedule : {"rotation", "triangle"}
        The rows that a row is compared with. "rotation": blocks of rows are arranged on
        a circle, and each block is compared with the half of the circle after it. So
        all blocks have equal work (GPU-INLJ, algorithm 5). "triangle": each row is
        compared with all later rows (GPU-NLJ, algorithm 4).
    block : int
        Number of rows per block: 32, 64, 128 or 256. On GPUs, it is also the number of
        threads per block.
    precision : {"float32", "float64"}
        For GPUs: precision of the first comparison. float64 decides the pairs that
        float32 cannot decide. Metrics other than those of norm 2 always use float64.
    buffer : int
        For GPUs: maximum number of pairs per batch. The number of batches follows from
        an estimate of all pairs. A batch with more pairs is repeated in two halves.
    batches, streams : int
        For GPUs: minimum number of batches, and number of batches that run at the same
        time.
    sample : float
        For GPUs: share of the queries that are run to estimate the number of pairs.

    Notes
    -----
    The thesis adds padding rows to get an odd number of blocks, but these rows form
    pairs. So there is no padding here. If the number of blocks is even, two opposite
    blocks of the circle are compared once, by the first of them.

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

    def __post_init__(self) -> None:
        check_one_of("NestedLoop", "schedule", self.schedule, SCHEDULES)
        check_one_of("NestedLoop", "block", self.block, BLOCKS)
        super().__post_init__()


SHIFTS = ("even", "random")
WALKS = ("auto", "full", "half")
SIDES = ("smaller", "left", "right")
THREADS = (1, 2, 4, 8, 16, 32)
OUTPUTS = ("staged", "ordered", "bounded")
ASSIGNMENTS = ("query", "candidate")


@dataclass(frozen=True)
class ZOrder(BatchedMethod):
    """Compare each row with an interval of the best of several shifted Z-orders.

    This is a published method for comparison; `method="zorder"` selects it with these
    defaults. It follows LSS (Lieberman, Sankaranarayanan & Samet, "A Fast Similarity
    Join Algorithm Using Graphics Processing Units", ICDE 2008). For each of several
    shifts of the coordinates, rows are sorted by the interleaved bits of their
    coordinates. In each of these lists, all neighbors of a row lie between the two
    corners of the box around it.

    Parameters
    ----------
    lists : int or {"auto", "d+1", "log"}
        Number of lists. "d+1": the number of dimensions plus one, rounded up to an odd
        number. For this number and small `eps`, the paper proves a bound on the work.
        "log": about the binary logarithm of the number of dimensions plus one. "auto":
        the number that is cheapest on a sample. On GPUs, "auto" means "log" if the join
        takes less time than the choice.
    shifts : {"even", "random"}
        Shift of each list, as a fraction of the widest column's extent: 0, 1/lists,
        2/lists, ..., or random.
    seed : int
        Seed of random shifts.
    walk : {"auto", "full", "half"}
        The rows that a row is compared with in a self-join. "full": all rows of its
        shortest interval; only rows with later positions form pairs with it, so that
        each pair is returned once. "half": the rows between the row itself and the
        upper corner, in the list that is best for all rows together. "auto": the
        cheaper of the two.
    index : {"smaller", "left", "right"}
        In a join of two tables or chunks, which of them is sorted. Rows of the other
        one look up their intervals.
    output : {"staged", "ordered", "bounded"}
        Order of the pairs of two chunks. "staged": as they are found. "ordered": sorted
        by left, then right row. "bounded" differs from "staged" only on GPUs: each
        candidate has a slot in the buffer, whose position comes from prefix sums of the
        intervals' lengths. Empty slots are removed. Threads need no common counter, but
        `buffer` limits candidates instead of pairs.
    words : int
        Number of 64-bit words per key, 1 to 4. They determine the number of bits per
        coordinate, at most 20.
    threads : int
        For GPUs: number of threads that share the interval of a query: 1, 2, 4, 8, 16
        or 32.
    assign : {"query", "candidate"}
        For GPUs: work of a thread. "query": a share of the interval of a query.
        "candidate": one candidate. The thread finds the candidate's query by binary
        search in prefix sums of the intervals' lengths.
    precision, buffer, batches, streams, sample
        Options for GPUs, as in `NestedLoop`.

    Notes
    -----
    There are three differences to the paper. Corners are moved outward by the possible
    rounding error. All rows have their half intervals in the same list. The paper
    chooses a list per row, which loses some pairs and repeats others. And intervals are
    never truncated to fit a buffer.

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
    assign: str = "query"

    def __post_init__(self) -> None:
        if not is_word(self.lists, "auto", "d+1", "log"):
            check_whole(
                "ZOrder",
                "lists",
                self.lists,
                1,
                MAX_DIMS + 1,
                "'auto', 'd+1', 'log', or ",
            )
        check_one_of("ZOrder", "shifts", self.shifts, SHIFTS)
        check_whole("ZOrder", "seed", self.seed, 0, 2**63 - 1)
        check_one_of("ZOrder", "walk", self.walk, WALKS)
        check_one_of("ZOrder", "index", self.index, SIDES)
        check_one_of("ZOrder", "output", self.output, OUTPUTS)
        check_one_of("ZOrder", "words", self.words, (1, 2, 3, 4))
        check_one_of("ZOrder", "threads", self.threads, THREADS)
        check_one_of("ZOrder", "assign", self.assign, ASSIGNMENTS)
        super().__post_init__()

    @property
    def needs_sample(self) -> bool:
        return self.lists == "auto"
