"""Options of joins by lists in Z-order, by k-means clusters, and by nested loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dask_simjoin.catalog import Method
from dask_simjoin.errors import OptionError


def is_word(value: object, *words: str) -> bool:
    """Return whether a value is one of the words; False for arrays, whose comparison gives an array."""
    return isinstance(value, str) and value in words


def check_whole(owner: str, name: str, value: object, low: int, high: int, others: str = "") -> None:
    """Refuse values other than whole numbers from `low` to `high`; `others`: more allowed values, as text."""
    if type(value) is not int or not low <= value <= high:
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use {others}a whole number from {low} to {high:,}."
        )


def check_one_of(owner: str, name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Refuse values that do not equal an allowed value of the same type."""
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise OptionError(
            f"{owner}({name}={value!r}) is not allowed; use one of {', '.join(map(repr, allowed))}."
        )


@dataclass(frozen=True, kw_only=True)
class BatchedMethod(Method):
    """A method with the options of `NestedLoop` for GPUs: precision of the filter, and batches of queries."""

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
                f"{owner}(sample={self.sample!r}) is not allowed; use a float above 0 and up to 1.0."
            )

    @property
    def consecutive(self) -> bool:
        """Whether each batch has consecutive queries; if not, batches are strided and have equal work."""
        return False


WINDOWS = ("one-sided", "two-sided", "thesis")
INNER = ("tiles", "nested_loop")
MAX_CLUSTERS = 4096


@dataclass(frozen=True)
class KMeans(BatchedMethod):
    """Join the rows of each k-means cluster, and the rows near its border.

    This is a published method for comparison; `method="kmeans"` selects it with these defaults. It follows
    KMEANS-JOIN of Korkmaz, "K-means Clustering Based Similarity Join on GPU" (MSc thesis, Bilkent 2012),
    section 4.3, with other windows. Each row belongs to the cluster of the nearest center. It is copied to
    another cluster if it lies within a window at the border between the two, so that some cluster has both
    rows of each pair.

    Parameters
    ----------
    clusters : int or "auto"
        Number of clusters. "auto": the number with the fewest comparisons on a sample.
    iterations : int
        Maximum iterations of Lloyd's algorithm on the sample.
    seed : int
        Seed for the rows that are the first centers.
    windows : {"one-sided", "two-sided", "thesis"}
        The rows to copy. For two chunks or tables, these are always left rows within `eps` of the border.

        - "one-sided": rows within `eps` of the border to a cluster with a higher number. They are compared
          with that cluster's own rows, so each pair is compared once.
        - "two-sided": rows within half of `eps` of a border, to the other side. A pair with both rows in
          several clusters belongs to the cluster with the highest number.
        - "thesis": as "two-sided", but within `eps`, as published.
    inner : {"tiles", "nested_loop"}
        The join within a cluster: by tiles in kd order, or by a nested loop. On CPUs, the nested loop
        compares blocks in a rotation, as in the thesis.
    precision, buffer, batches, streams, sample
        For GPUs, as in `NestedLoop`.

    Notes
    -----
    Unlike in the thesis, the centers come from a sample, and any number of clusters is possible. Windows are
    wider by the possible rounding errors, and no pair is found twice.

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
            check_whole("KMeans", "clusters", self.clusters, 1, MAX_CLUSTERS, "'auto' or ")
        check_whole("KMeans", "iterations", self.iterations, 0, 10_000)
        check_whole("KMeans", "seed", self.seed, 0, 2**63 - 1)
        check_one_of("KMeans", "windows", self.windows, WINDOWS)
        check_one_of("KMeans", "inner", self.inner, INNER)
        super().__post_init__()

    @property
    def needs_sample(self) -> bool:
        """Whether centers depend on a sample: always."""
        return True

    def approximate_layout(self, layout: Any) -> Any:
        """Return the layout of the approximate join, which copies no rows and loses pairs across clusters."""
        return replace(layout, copies=False)


SCHEDULES = ("rotation", "triangle")
BLOCKS = (32, 64, 128, 256)


@dataclass(frozen=True)
class NestedLoop(BatchedMethod):
    """Compare each row with each other row, without an index.

    This is a published method for comparison; `method="nested_loop"` selects it with these defaults. It
    follows Korkmaz, "K-means Clustering Based Similarity Join on GPU" (MSc thesis, Bilkent 2012), sections
    4.1 and 4.2, which build on Böhm et al. 2009.

    Parameters
    ----------
    schedule : {"rotation", "triangle"}
        The comparisons of a row. "rotation": blocks are on a circle, and each block is compared with the
        half of the circle after it, so that all blocks have equal work (GPU-INLJ, algorithm 5). "triangle":
        each row is compared with all later rows (GPU-NLJ, algorithm 4).
    block : int
        Rows per block: 32, 64, 128 or 256; on GPUs the threads per block.
    precision : {"float32", "float64"}
        On GPUs: the precision of the first comparison. float64 decides the cases that float32 leaves open.
        Norms other than squares always use float64.
    buffer : int
        On GPUs: maximum pairs per batch. The number of batches follows from an estimate of all pairs. A batch
        with more pairs is repeated in two halves.
    batches, streams : int
        On GPUs: minimum number of batches, and batches that run at the same time.
    sample : float
        On GPUs: share of the queries that are run for the estimate of pairs.

    Notes
    -----
    The thesis pads rows to an odd number of blocks, and padded rows form pairs. Here there is no padding. If
    the number of blocks is even, two opposite blocks of the circle are compared by the first of the two.

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
MAX_LISTS = 4097


@dataclass(frozen=True)
class ZOrder(BatchedMethod):
    """Compare a row with an interval of rows in the best of several shifted Z-orders.

    This is a published method for comparison; `method="zorder"` selects it with these defaults. It follows
    LSS (Lieberman, Sankaranarayanan & Samet, "A Fast Similarity Join Algorithm Using Graphics Processing
    Units", ICDE 2008). Rows are sorted by the interleaved bits of their coordinates, once per shift. In each
    of these lists, the neighbors of a row lie between the corners of the box around it.

    Parameters
    ----------
    lists : int or {"auto", "d+1", "log"}
        Number of lists. "d+1": the number of dimensions plus one, made odd; for small `eps`, the paper proves
        a bound of its work. "log": the logarithm of the dimensions plus one. "auto": the cheapest number on a
        sample. On GPUs "auto" is "log" if the join takes less time than the choice.
    shifts : {"even", "random"}
        Shifts of the lists, as fractions of the widest column's extent: 0, 1/lists, 2/lists, ..., or random.
    seed : int
        Seed of random shifts.
    walk : {"auto", "full", "half"}
        The rows to compare with a row of a self-join. "full": all rows of its shortest interval; later rows
        form pairs with the row. "half": the rows from the row itself to the upper corner, in the one list
        that is best for all rows. "auto": the cheaper of the two.
    index : {"smaller", "left", "right"}
        The table or chunk to sort; rows of the other table or chunk look up their intervals.
    output : {"staged", "ordered", "bounded"}
        Order of the pairs of two chunks: as they are found, or sorted by left and then right rows. "bounded":
        as "staged". On GPUs each candidate then has a place in the buffer from prefix sums of the intervals'
        lengths, and empty places are removed. No counter is shared, but `buffer` limits candidates.
    words : int
        64-bit words per key, 1 to 4. They determine the bits per coordinate, at most 20.
    threads : int
        On GPUs: threads that share the interval of a query: 1, 2, 4, 8, 16 or 32.
    assign : {"query", "candidate"}
        On GPUs: what a thread handles. "query": a share of the interval of a query. "candidate": one
        candidate, whose query it finds by binary search in prefix sums of the intervals' lengths.
    precision, buffer, batches, streams, sample
        For GPUs, as in `NestedLoop`.

    Notes
    -----
    There are three differences to the paper. Corners are moved outward by the possible rounding error. Half
    intervals are in the same list for all rows: with a list per row, pairs are lost and repeated. And
    intervals are never cut to fit a buffer.

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
            check_whole("ZOrder", "lists", self.lists, 1, MAX_LISTS, "'auto', 'd+1', 'log', or ")
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
        """Whether the number of lists depends on a sample."""
        return self.lists == "auto"
