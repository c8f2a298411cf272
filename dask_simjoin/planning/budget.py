"""Memory budgets: per task, for sparse matrices, and for results of plain frames."""

from __future__ import annotations

import contextlib
import math
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psutil
from dask.utils import format_bytes
from distributed.system import MEMORY_LIMIT

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.request.options import Settings

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


def budget_of(chunks: int, largest: float, budget: Budget, resources: Resources) -> Budget:
    """Give the budget that so many chunks, the largest of so many bytes, keep to: see `Resources.whole`."""
    if chunks > 1 or budget.chosen or not budget.chunk < largest <= resources.whole:
        return budget
    return replace(
        budget, chunk=resources.whole, origin=f"all rows in 1/{WHOLE} of the memory of this process"
    )


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


SURE = 1 << 26
"""Bytes that are not asked for."""

PARTS = 8

MARGIN = 1.25
"""How much more than what is just enough a message recommends."""

PEAK = 1.3
"""Memory that a join takes on the host at its peak, in units of its result's: see docs/benchmarks/memory.md.

Columns grow by an eighth at a time; where ids are not numbers, positions lie beside them for a while.
"""

DEVICE_PEAK = 1.5
"""The same on a GPU, where a column that grows is copied: one of at least two."""

LAZY = f"or a Dask DataFrame, dd.from_pandas(df, npartitions={PARTS}), whose result comes in parts"


def free_memory() -> int:
    """Bytes that this process may still take: of what is free, of a container's limit, and of its own."""
    process = psutil.Process().memory_info()
    free = [psutil.virtual_memory().available, MEMORY_LIMIT - process.rss]
    own = resource.getrlimit(resource.RLIMIT_AS)[0]
    if own != resource.RLIM_INFINITY:
        free.append(own - process.vms)
    return max(0, int(min(free)))


def check_room(rows: float, row_bytes: float, cause: str, sampled: bool, device: int | None = None,
               free: int | None = None) -> None:  # fmt: skip
    """Refuse a result of at least so many rows that does not fit while it is made.

    `cause`: what gives it, for people; `sampled`: whether rows are estimated; `device`: memory of the GPU
    that the result is to be in, if it is; `free`: memory that was free before any of it was made.
    """
    size = rows * row_bytes
    need = size * (PEAK if device is None else DEVICE_PEAK)
    if need <= SURE:
        return
    if device is not None:
        free = device
    elif free is None:
        free = free_memory()
    if need > free:
        where = "free in this machine's memory" if device is None else "on the GPU"
        told = ", estimated from a sample," if sampled else ","
        raise BudgetError(
            f"{cause} gives at least {rows:,.0f} rows{told} which take {format_bytes(int(size))}, and "
            f"{format_bytes(int(need))} while they are made; {format_bytes(free)} are {where}. "
            f"{_remedy(cause)}",
            remedies=_remedies(cause),
        )


def room_now(row_bytes: float, cause: str, device: int | None) -> Callable[[int], None]:
    """Return what refuses so many rows, found so far, by the memory that is free before any is found."""
    free = free_memory() if device is None else None
    return lambda rows: check_room(rows, row_bytes, cause, False, device, free)


@contextlib.contextmanager
def within_memory(cause: str) -> Iterator[None]:
    """Say what took too much memory, where an estimate could not be sure that it would."""
    try:
        yield
    except MemoryError as error:
        raise BudgetError(
            f"{cause} gives a result that does not fit memory: {error}. {_remedy(cause)}",
            remedies=_remedies(cause),
        ) from error


def _remedy(cause: str) -> str:
    if cause.startswith("k="):
        return f"Use a smaller k, {LAZY}."
    return f"Use {fewer_pairs(cause)}, {LAZY}."


def _remedies(cause: str) -> list[Remedy]:
    return [Remedy(npartitions=PARTS), *([] if cause.startswith("k=") else verbs_without_pairs(cause))]


def verbs_without_pairs(cause: str, two: bool = False) -> list[Remedy]:
    """Verbs that tell of the same pairs and make none, of which there are none for `two` tables."""
    if two:
        return []
    of_sets = cause.startswith("threshold=")
    names = ("count_set_pairs", "set_neighbor_counts") if of_sets else ("count_pairs", "neighbor_counts")
    return [Remedy(verb=name) for name in names]


def enough_result(need: float) -> dict[str, str]:
    """Give the configuration that allows a result of so many bytes."""
    return {"simjoin.result-limit": format_bytes(math.ceil(MARGIN * need))}


def fewer_pairs(cause: str, two: bool = False) -> str:
    """What gives fewer pairs than `cause`, such as "eps=1", or materialises none; `two`: of two tables."""
    if two:
        name = cause.partition("=")[0]
        return f"a {'larger' if name == 'threshold' else 'smaller'} {name}"
    if cause.startswith("threshold="):
        return "a larger threshold, count_set_pairs() or set_neighbor_counts(), which materialise no pairs"
    name = cause.partition("=")[0]
    return f"a smaller {name}, count_pairs() or neighbor_counts(), which materialise no pairs"


ENTRY, DEVICE_ENTRY = 16, 12
"""Bytes of an entry: a number, and a column."""


PIECE = 12
"""The same in the pieces that a matrix is put together from, which are there until it is."""


ROW = 32
"""Bytes of a row: where it begins, and what is only there until all are filled."""


@dataclass(frozen=True)
class Limit:
    """Something that a matrix must fit.

    Attributes
    ----------
    bytes : int
        That there are.
    entry, row : int
        Bytes that an entry and a row take there.
    where, remedy : str
        What it is, and what helps, for people.
    config : str
        The name of the configuration that sets it; "": none does.
    """

    bytes: int
    entry: int
    row: int
    where: str
    remedy: str
    config: str = ""


@dataclass(frozen=True)
class Fitting:
    """What a matrix of neighbours must fit.

    Attributes
    ----------
    eps : float
    rows : int
    limits : list of Limit
    most : int or None
        Entries that it can have, whatever the memory.
    """

    eps: float
    rows: int
    limits: list[Limit]
    most: int | None

    def check(self, entries: float, sampled: bool = False) -> None:
        """Refuse a matrix of so many entries; `sampled`: or more."""
        about = f"eps={self.eps!r} gives {'at least ' if sampled else ''}{entries:,.0f} entries"
        about += ", estimated from a sample" if sampled else ""
        if self.most is not None and entries > self.most:
            raise BudgetError(
                f"{about}, and a sparse matrix of this CuPy has at most {self.most:,}, which int32 "
                "numbers. Use CuPy 14.1 or newer, a smaller eps, or ddf.to_backend('pandas')."
            )
        for limit in self.limits:
            need = entries * limit.entry + self.rows * limit.row
            if need > limit.bytes:
                config = {limit.config: format_bytes(math.ceil(MARGIN * need))} if limit.config else {}
                helps = f"dask.config.set({config})" if config else limit.remedy
                raise BudgetError(
                    f"{about}, which take {format_bytes(int(need))}, and {limit.where} "
                    f"{format_bytes(limit.bytes)}. Use a smaller eps, {helps}, or self_join(), whose pairs "
                    "are lazy and may exceed memory.",
                    remedies=[*([Remedy(config=config)] if config else []), Remedy(verb="self_join")],
                )
