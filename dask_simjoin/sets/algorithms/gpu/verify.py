"""Verifies candidates, flat or probe by probe: each way for both."""

from __future__ import annotations

from typing import NamedTuple

import cupy
import numpy as np

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.launch import SHARED_BYTES, blocks, over
from dask_simjoin.sets.algorithms.gpu.operands import Operands
from dask_simjoin.sets.algorithms.gpu.sinks import Sink

LONG = 2000
"""Tokens of a pair of sets, on average, from which on a warp compares them together.

With 260 of them a thread each is seven times as fast on an H200: it gives most pairs up after a few
(benchmarks/results/gpu-sets).
"""


class Grouped(NamedTuple):
    """Candidates that follow each other probe by probe.

    Attributes
    ----------
    probes : array (probes,), int32
        Sets of the left side; or of the right one, with candidates of the left: `turned`.
    starts : array (probes + 1,), int64
        Where each one's candidates begin.
    candidates : array (candidates,), int32
    turned : bool
    """

    probes: Array
    starts: Array
    candidates: Array
    turned: bool


def grouped(pairs: Array) -> Grouped:
    """Sort flat candidates."""
    keys = cupy.sort(pairs.reshape(-1).view(cupy.uint64))
    probes = (keys >> np.uint64(32)).astype(cupy.int32)
    firsts = cupy.flatnonzero(probes[1:] != probes[:-1]) + 1
    ends = cupy.zeros(1, cupy.int64), cupy.full(1, len(keys), cupy.int64)
    starts = cupy.concatenate([ends[0], firsts.astype(cupy.int64), ends[1]])
    candidates = (keys & np.uint64(0xFFFFFFFF)).astype(cupy.int32)
    return Grouped(probes[starts[:-1]], starts, candidates, True)


def flat(some: Grouped) -> Array:
    """Name the probe of each candidate."""
    number = len(some.candidates)
    pairs = cupy.empty((number, 2), cupy.int32)
    arguments = (
        some.probes, some.starts, np.int32(len(some.probes)), some.candidates, np.uint64(number),
        np.int32(some.turned), pairs,
    )  # fmt: skip
    over(number, "verify", "flatten", arguments)
    return pairs


def way_for(join: Operands, verify: str) -> str:
    """Return the way that was asked for, or the best."""
    if verify != "auto":
        return verify
    mean = sum(len(side.block["tokens"]) / len(side) for side in (join.left, join.right))
    return "warp" if mean > LONG else "thread"


def verify_flat(join: Operands, pairs: Array, verify: str, threads: int, sink: Sink) -> None:
    """Verify candidates in any order; A, B and C want them sorted."""
    if not len(pairs):
        return
    way = way_for(join, verify)
    if way in KERNELS:
        verify_grouped(join, grouped(pairs), way, threads, sink)
        return
    arguments = (*join.sides, pairs, np.uint64(len(pairs)), *sink.take(len(pairs)))
    constants = join.constants | {"SINK": sink.number}
    if way == "warp":
        over(32 * len(pairs), "verify", "verify_pairs_by_warp", arguments, **constants)
    else:
        over(len(pairs), "verify", "verify_pairs", arguments, **constants)
    sink.done()


def accept(pairs: Array, overlaps: Array, sink: Sink) -> None:
    """Take pairs that something else found to match."""
    if len(pairs):
        arguments = (pairs, overlaps, np.uint64(len(pairs)), *sink.take(len(pairs)))
        over(len(pairs), "verify", "take_pairs", arguments, SINK=sink.number)
        sink.done()


KERNELS = {"A": "verify_by_thread", "B": "verify_by_block", "C": "verify_by_path"}
"""Those of Bellas and Gounaris."""


def verify_grouped(join: Operands, some: Grouped, verify: str, threads: int, sink: Sink) -> None:
    """Verify candidates that follow each other probe by probe."""
    number = len(some.probes)
    if not number:
        return
    way = way_for(join, verify)
    if way not in KERNELS:
        verify_flat(join, flat(some), way, threads, sink)
        return
    largest = [int(side.distinct[-1]) for side in (join.left, join.right)]
    tokens = {"A": 0, "B": largest[some.turned], "C": sum(largest)}[way]
    shared = min(4 * tokens, SHARED_BYTES - 256)  # the kernel has some of its own
    size = np.int32(number if way == "A" else shared // 4)
    arguments = (
        *(join.turned if some.turned else join.sides), some.probes, some.starts, some.candidates, size,
        np.int32(some.turned), *sink.take(len(some.candidates)),
    )  # fmt: skip
    constants = join.constants | {"SINK": sink.number}
    launched = -(-number // threads) if way == "A" else number
    blocks(launched, threads, "verify", KERNELS[way], arguments, shared, **constants)
    sink.done()
