"""The options of nested loops, as an object: see `NestedLoop`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dask_simjoin.engine.asked import check_batches, check_one_of

SCHEDULES = ("rotation", "triangle")
BLOCKS = (32, 64, 128, 256)


@dataclass(frozen=True)
class NestedLoop:
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
        "pandas": "dask_simjoin.engine.cpu.methods.nested",
        "cudf": "dask_simjoin.engine.gpu.methods.nested",
    }
    max_dims: ClassVar[int | None] = None

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

    def is_best(self, dims: int) -> bool:
        """Tell that "auto" never takes it: the product's own methods leave rows out."""
        return False
