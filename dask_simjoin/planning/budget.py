"""How much memory one task may use: from the workers, from `blocksize=` or from Dask's configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dask.utils import format_bytes

from dask_simjoin.options.settings import Settings

SHARE = 12
"""Chunks that fit the memory of a task: nearer to the limit workers pause and spill all the time."""

MAX_CHUNK = 2**30
"""Bytes of a chunk where memory would allow more: tasks cut its queries, and so they balance."""

WHOLE = 5
"""Chunks that fit this process's memory if there is one, of all rows: what threads find out of them takes a
third more than the plan says, or twice as much where partitions are read from files.  Several chunks of as
many rows take nearly as much, since all of them are kept."""

MAX_OUTPUT = 256 * 2**20
"""Bytes of a partition of the result where memory would allow more: what follows works with several."""

MAX_DEVICE_CHUNK = 12 * 2**30
"""The same on GPUs, which balance over the units of their kernels, and waste time on small tasks."""


MAX_RESULT = 2**40
"""Bytes of a result where nothing else limits it."""

SET, FREE = "the configuration's simjoin.result-limit", "what is free on the disk"
"""Where the limit of results comes from."""

LEAST_CHUNK = 2**20

LOCAL_CHUNK = 128 * 2**20
"""Bytes of a chunk, and of a partition of the result, without a cluster, where memory tells nothing."""


@dataclass(frozen=True)
class Resources:
    """What runs the tasks.

    Attributes
    ----------
    threads : int
        Tasks that run at a time.
    memory : int or None
        Bytes for each of them; None where no limit is known.
    cluster : bool
        Whether they run on a distributed cluster.
    limit : int or None
        Memory limit of the smallest worker.
    gpu : bool
        Whether tasks run on GPUs, one each, and `memory` is theirs.
    workers : int
        Processes with memory of their own, between which chunks move.
    shared : int or None
        Bytes for each of this process's threads, which share its memory; None: they do not, or are not known.
    together : int
        Threads of the smallest worker, or of this process, that can do one task's work together.
    disk : int or None
        Bytes free on the disk that has most of those to which results may go; None: it is not known.
    """

    threads: int = 1
    memory: int | None = None
    cluster: bool = False
    limit: int | None = None
    gpu: bool = False
    workers: int = 1
    shared: int | None = None
    together: int = 1
    disk: int | None = None

    @property
    def room(self) -> int | None:
        """Bytes that what one task alone holds may take; None where nothing tells."""
        return self.limit or self.memory or self.shared

    @property
    def whole(self) -> int:
        """Bytes that the one chunk of all rows may take where threads share this process's memory; else 0."""
        return 0 if self.cluster or self.shared is None else self.shared * self.threads // WHOLE

    def for_each(self, chunks: int) -> int:
        """Count the threads that index one of so many chunks together: those that would be idle."""
        return max(1, min(self.together, self.threads // max(1, chunks)))


@dataclass(frozen=True)
class Budget:
    """Bytes that a plan keeps to.

    Attributes
    ----------
    chunk : int
        Coordinates and ids of one chunk.
    output : int
        One partition of the result.
    result : int
        All pairs together: a join that gives more is refused.
    limit : str
        Where `result` comes from, for people.
    chosen : bool
        Whether the caller chose `chunk`: then chunks are about as large, and not only at most.
    origin : str
        Where `chunk` comes from, for people.
    """

    chunk: int
    output: int
    result: int
    chosen: bool
    origin: str
    limit: str = SET


def budget_of(chunks: int, largest: float, budget: Budget, have: Resources) -> Budget:
    """Give the budget that so many chunks, the largest of so many bytes, keep to: see `Resources.whole`."""
    if chunks > 1 or budget.chosen or not budget.chunk < largest <= have.whole:
        return budget
    return replace(budget, chunk=have.whole, origin=f"all rows in 1/{WHOLE} of the memory of this process")


def make_budget(blocksize: int | None, settings: Settings, resources: Resources) -> Budget:
    """The budget of a join."""
    if blocksize is not None:
        chunk, origin = blocksize, f"blocksize={format_bytes(blocksize)!r}"
    elif settings.blocksize is not None:
        chunk, origin = settings.blocksize, "the configuration's simjoin.blocksize"
    elif resources.memory is not None:
        most = MAX_DEVICE_CHUNK if resources.gpu else MAX_CHUNK
        chunk = min(max(resources.memory // SHARE, LEAST_CHUNK), most)
        each = "on the smallest GPU" if resources.gpu else "for each thread of the smallest worker"
        origin = f"1/{SHARE} of {format_bytes(resources.memory)} {each}"
        if chunk == most:
            origin = "the default on workers with enough memory"
    else:
        chunk, origin = LOCAL_CHUNK, "the default without a cluster"
        if resources.shared is not None:
            chunk = min(max(resources.shared // SHARE, LOCAL_CHUNK), MAX_CHUNK)
            if chunk > LOCAL_CHUNK:
                origin = f"by the memory of {format_bytes(resources.shared)} for each thread of this process"
    chosen = blocksize is not None or settings.blocksize is not None
    if chosen:
        output = chunk
    elif resources.memory is None:
        output = LOCAL_CHUNK
    elif resources.gpu:
        output = resources.memory // SHARE  # pairs are written once, and never compared with each other
    else:
        output = min(chunk, MAX_OUTPUT)
    if settings.result is not None:
        result, limit = settings.result, SET
    elif resources.disk is not None and resources.disk < MAX_RESULT:
        result, limit = resources.disk, FREE
    else:
        result, limit = MAX_RESULT, f"the default of {SET}"
    return Budget(chunk, settings.output or output, result, chosen, origin, limit)
