"""The options of joins by lists in Z-order, as an object: see `ZOrder`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dask_simjoin.engine.asked import check_batches, check_one_of, check_whole, is_word

SHIFTS = ("even", "random")
WALKS = ("auto", "full", "half")
SIDES = ("smaller", "left", "right")
THREADS = (1, 2, 4, 8, 16, 32)
OUTPUTS = ("staged", "ordered")
MAX_LISTS = 4097


@dataclass(frozen=True)
class ZOrder:
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
        "pandas": "dask_simjoin.engine.cpu.methods.zorder",
        "cudf": "dask_simjoin.engine.gpu.methods.zorder",
    }
    max_dims: ClassVar[int | None] = None

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

    def is_best(self, dims: int) -> bool:
        """Tell that "auto" never takes it: the product's own methods are faster."""
        return False
