"""Limits of a plan: the machine or cluster that runs it, and the sizes that it allows."""

from __future__ import annotations

import contextlib
import math
import resource
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import dask
import psutil

from dask_simjoin.request.messages import size_text
from dask_simjoin.request.options import Settings, size_origin
from dask_simjoin.sizes import PARSED_BYTES

CGROUP_FILES = (
    "memory/memory.limit_in_bytes",
    "memory/memory.soft_limit_in_bytes",
    "memory.max",
    "memory.high",
    "memory.low",
)
"""Files of Linux control groups (versions 1 and 2) that have a memory limit."""


def memory_limit(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory that all processes of the machine or container may use
    together.
    """
    limits = [psutil.virtual_memory().total]
    for name in CGROUP_FILES:
        try:
            limits.append(int((cgroups / name).read_text()))
        except (
            OSError,
            ValueError,
        ):  # the file does not exist, or has the word "max" instead of a number
            continue
    limits.append(resource.getrlimit(resource.RLIMIT_RSS)[1])
    return min(limit for limit in limits if limit > 0)


def free_disk(of_workers: Iterable[str]) -> int | None:
    """Return the free bytes on the disk with the most space, among all that Dask or the
    caller writes to.

    These are the disks of the working directory, of Dask's temporary directory and of
    the workers.  None: some workers are on other machines, so their disks are unknown.
    """
    scratch = list(of_workers)
    if not all(Path(folder).exists() for folder in scratch):
        return None
    free = []
    for folder in (".", dask.config.get("temporary-directory", None), *scratch):
        with contextlib.suppress(OSError):
            free.append(shutil.disk_usage(folder or ".").free)
    return max(free, default=None)


MEMORY_LIMIT = memory_limit()
"""Bytes of memory of this machine or container."""

SHARE = 12
"""A chunk takes at most 1 / SHARE of a task's memory.

With larger chunks, workers would often pause and spill.
"""

NEED = 5
"""Memory of a task, divided by the size of a chunk.

A task holds two indexed chunks, a chunk that is being indexed, and its result. A single
chunk of all rows may take 1 / NEED of this process's memory. This leaves a margin: a
join with threads takes a third more memory than its plan expects. If partitions are
read from files, it takes twice the expected memory.
"""

MOVED_SHARE = NEED * NEED
"""Moved data take at most 1 / MOVED_SHARE of the memory of a GPU or a thread.

These are the chunks of a GPU, if there are several. Making a chunk takes `NEED` times
its size. Dask-CUDA moves chunks to the host only when they fill 80 % of the memory. So
`NEED` times the size of a chunk must fit into the remaining 20 %. If all chunks take at
most 1 / NEED of the memory, nothing is moved, so they may be as large as a single one.

Rows that a thread sends to other workers are moved, too. A shuffle holds about eight
copies of them: five at the sender, three at the receiver. Without this limit,
partitions of 1,000,000 rows of 40 bytes killed workers with 700 MB.
"""

MAX_CHUNK = 2**30
"""Largest default size of a chunk in bytes.

With larger chunks, the load of workers would be less balanced.
"""

MAX_OUTPUT = 256 * 2**20
"""Largest default size of a result partition in bytes.

It is small, because later steps hold several of them.
"""

MAX_DEVICE_CHUNK = 12 * 2**30
"""Largest default size of a chunk on GPUs in bytes.

It is large, because small tasks do not keep a GPU busy.
"""

MAX_RESULT = 2**40
"""Default limit of the size of a result in bytes."""

SET, FREE = "simjoin.result-limit", "the free space on the disk"
"""Origins of the limit of results, in the words of messages."""

LOCAL = "the default without a cluster"
"""Origin of the size of chunks, in the words of messages."""

LOCAL_CHUNK = 128 * 2**20
"""Bytes of a chunk, and of a result partition, if there is no cluster and no known
memory limit.
"""


@dataclass(frozen=True)
class Limits:
    """The machine or cluster that runs the tasks, and the sizes that it allows.

    `planning.resources.limits_for` looks up the machine, and `sized` sets the sizes.
    """

    threads: int = 1  # number of tasks that run at the same time
    memory: int | None = None  # bytes for each thread; None: no limit is known
    cluster: bool = False  # whether the tasks run on a distributed cluster
    limit: int | None = None  # memory limit of the smallest worker
    # whether each task runs on a GPU; `memory` is then the memory of this GPU
    gpu: bool = False
    # bytes of chunks that Dask-CUDA keeps in the memory of each GPU; None: unknown, or no
    # limit
    device: int | None = None
    workers: int = 1  # number of worker processes; chunks must be sent between them
    # memory per thread of this process, in bytes; None: unknown, or the tasks run
    # elsewhere
    shared: int | None = None
    # number of threads of the smallest worker, or of this process, that can share the
    # work of one task
    together: int = 1
    # number of threads of all workers of one host, the one with the fewest threads
    of_host: int = 1
    disk: int | None = None  # free bytes on the disk with the most space; None: unknown
    plain: bool = False  # whether the tables are plain frames, joined by this process
    shuffle: str = "tasks"  # how rows are shuffled, if they are
    # sizes in bytes
    chunk: int = LOCAL_CHUNK  # coordinates and ids of one chunk
    output: int = LOCAL_CHUNK  # one partition of the result
    result: int = MAX_RESULT  # all pairs of the result; a larger one is refused
    # whether the user set `chunk`; it is then also the target size of chunks
    chosen: bool = False
    # where `chunk` and `result` come from, in the words of messages
    origin: str = LOCAL
    result_origin: str = SET

    @property
    def room(self) -> int | None:
        """Bytes of memory for the data of one task; None if unknown."""
        return self.limit or self.memory or self.shared

    @property
    def whole(self) -> int:
        """Bytes that a single chunk of all rows may take; 0: it has the same limit as
        each of several chunks.

        A single chunk may be larger on a GPU, and if threads share the memory of this
        process.
        """
        if self.gpu:
            return min((self.memory or 0) // SHARE, MAX_DEVICE_CHUNK)
        return (
            0
            if self.cluster or self.shared is None
            else self.shared * self.threads // NEED
        )

    @property
    def for_tree(self) -> int:
        """Number of threads that make the spanning tree of one chunk.

        While one worker makes it, the other workers of its host wait for it.
        """
        return max(self.together, self.of_host)

    def for_each(self, chunks: int) -> int:
        """Return how many threads index a chunk together: several if there are fewer
        chunks than threads.
        """
        return max(1, min(self.together, self.threads // max(1, chunks)))

    def sized(
        self, blocksize: int | None, settings: Settings, size: float = math.inf
    ) -> Limits:
        """Return the limits with the sizes of a join.

        `size`: bytes of all rows. If they fill little of the GPUs' memory, chunks may be
        larger.
        """
        chunk, origin = self._chunk(blocksize, settings, size)
        chosen = blocksize is not None or settings.blocksize is not None
        if chosen:
            output = chunk
        elif self.memory is None:
            output = LOCAL_CHUNK
        elif self.gpu:
            # larger than `MAX_CHUNK`, because that limits the comparisons of a task,
            # not its pairs
            output = self.memory // SHARE
        else:
            output = min(chunk, MAX_OUTPUT)
        if settings.result is not None:
            result = settings.result
            result_origin = size_origin("result-limit", result)
        elif self.disk is not None and self.disk < MAX_RESULT:
            result, result_origin = self.disk, FREE
        else:
            result, result_origin = MAX_RESULT, f"the default of {SET}"
        return replace(
            self,
            chunk=chunk,
            output=settings.output or output,
            result=result,
            chosen=chosen,
            origin=origin,
            result_origin=result_origin,
        )

    def _chunk(
        self, blocksize: int | None, settings: Settings, size: float
    ) -> tuple[int, str]:
        """Return the largest size of a chunk, and where it comes from."""
        if blocksize is not None:
            return blocksize, f"blocksize={size_text(blocksize)!r}"
        if settings.blocksize is not None:
            return settings.blocksize, size_origin("blocksize", settings.blocksize)
        if self.memory is None:
            chunk = LOCAL_CHUNK
            if self.shared is not None:
                chunk = min(max(self.shared // SHARE, LOCAL_CHUNK), MAX_CHUNK)
            if chunk == LOCAL_CHUNK:
                return chunk, LOCAL
            memory = size_text(self.shared or 0)
            return chunk, f"from {memory} of memory for each thread of this process"
        if not self.gpu:
            share, most, each = (
                SHARE,
                MAX_CHUNK,
                "for each thread of the smallest worker",
            )
        elif NEED * size <= self.memory * self.workers:
            share, most, each = SHARE, MAX_DEVICE_CHUNK, "on the smallest GPU"
        else:
            share, most, each = MOVED_SHARE, MAX_DEVICE_CHUNK, "on the smallest GPU"
        chunk = min(max(self.memory // share, PARSED_BYTES), most)
        if chunk == most:
            return chunk, "the default on workers with enough memory"
        return chunk, f"1/{share} of {size_text(self.memory)} {each}"

    def for_chunks(self, chunks: int, largest: float) -> Limits:
        """Return the limits for this number of chunks. A single chunk may take up to
        `whole`.

        `largest`: bytes of the largest chunk.
        """
        if self.gpu and chunks == 1 and not self.chosen and largest > self.whole:
            return replace(self, chunk=math.ceil(largest), origin="all rows on a GPU")
        if chunks > 1 or self.chosen or not self.chunk < largest <= self.whole:
            return self
        share = (
            f"1/{SHARE} of the memory of a GPU"
            if self.gpu
            else f"1/{NEED} of the memory of this process"
        )
        return replace(self, chunk=self.whole, origin=f"all rows in {share}")


PLAIN = Limits(plain=True)
"""Plain frames, which this process joins with one thread."""
