"""The options of joins by k-means clusters, as an object: see `KMeans`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dask_simjoin.engine.asked import check_batches, check_one_of, check_whole, is_word

WINDOWS = ("one-sided", "two-sided", "thesis")
INNER = ("tiles", "nested_loop")
MAX_CLUSTERS = 4096


@dataclass(frozen=True)
class KMeans:
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
        "pandas": "dask_simjoin.engine.cpu.methods.kmeans",
        "cudf": "dask_simjoin.engine.gpu.methods.kmeans",
    }
    max_dims: ClassVar[int | None] = None

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

    def is_best(self, dims: int) -> bool:
        """Tell that "auto" never takes it: the product's own methods are faster."""
        return False
