"""Memory budgets: of tasks, of sparse matrices, and of results of plain frames."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.request.messages import size_text
from dask_simjoin.request.options import Settings, size_origin

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


MEMORY_LIMIT = memory_limit()
"""Bytes of memory of this machine or container."""

SHARE = 12
"""A chunk takes at most 1 / SHARE of a task's memory.

With larger chunks, workers would often pause and spill.
"""

MAX_CHUNK = 2**30
"""Largest default size of a chunk in bytes.

With larger chunks, the load of workers would be less balanced.
"""

WHOLE = 5
"""A single chunk of all rows may take 1 / WHOLE of this process's memory.

This leaves a margin: a join with threads takes a third more memory than its plan
expects. If partitions are read from files, it takes twice the expected memory.
"""

MAX_OUTPUT = 256 * 2**20
"""Largest default size of a result partition in bytes.

It is small, because later steps hold several of them.
"""

DEVICE_SHARE = 25
"""Each of several chunks takes at most 1 / DEVICE_SHARE of a GPU's memory; a single
chunk, 1 / SHARE.

Making a chunk takes up to five times its size. Dask-CUDA moves chunks to the host only
when they fill 80 % of the memory. So five times the size of a chunk must fit into the
remaining 20 %.
"""

FEW_ROWS = 4
"""The limit of `DEVICE_SHARE` applies only if the chunks of a GPU take more than 1 /
FEW_ROWS of its memory.

Otherwise nothing is moved to the host, so each of several chunks may be as large as a
single one. The chunks and the making of another one then take at most 1 / 4 and 5 /
`SHARE` of the memory, less than 80 %.
"""

MAX_DEVICE_CHUNK = 12 * 2**30
"""Largest default size of a chunk on GPUs in bytes.

It is large, because small tasks do not keep a GPU busy.
"""

MAX_RESULT = 2**40
"""Default limit of the size of a result in bytes."""

SET, FREE = "simjoin.result-limit", "the free space on the disk"
"""Origins of the limit of results, in the words of messages."""

MIN_CHUNK = 2**20
"""Smallest default size of a chunk in bytes."""

LOCAL_CHUNK = 128 * 2**20
"""Bytes of a chunk, and of a result partition, if there is no cluster and no known
memory limit.
"""


@dataclass(frozen=True)
class Resources:
    """The machine or cluster that runs the tasks."""

    threads: int = 1  # number of tasks that run at the same time
    memory: int | None = None  # bytes for each thread; None: no limit is known
    cluster: bool = False  # whether the tasks run on a distributed cluster
    limit: int | None = None  # memory limit of the smallest worker
    # whether each task runs on a GPU; `memory` is then the memory of this GPU
    gpu: bool = False
    workers: int = 1  # number of worker processes; chunks must be sent between them
    # memory per thread of this process, in bytes; None: unknown, or the tasks run
    # elsewhere
    shared: int | None = None
    # number of threads of the smallest worker, or of this process, that can share the
    # work of one task
    together: int = 1
    disk: int | None = None  # free bytes on the disk with the most space; None: unknown

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
            else self.shared * self.threads // WHOLE
        )

    def for_each(self, chunks: int) -> int:
        """Return how many threads index a chunk together: several if there are fewer
        chunks than threads.
        """
        return max(1, min(self.together, self.threads // max(1, chunks)))


@dataclass(frozen=True)
class Budget:
    """Limits of a plan in bytes."""

    chunk: int  # coordinates and ids of one chunk
    output: int  # one partition of the result
    result: int  # all pairs of the result together; a larger result is refused
    # whether the user set `chunk`; it is then also the target size of chunks
    chosen: bool
    origin: str  # where `chunk` comes from, in the words of messages
    limit: str = SET  # where `result` comes from, in the words of messages


def budget_of(
    chunks: int, largest: float, budget: Budget, resources: Resources
) -> Budget:
    """Return the budget for this number of chunks. A single chunk may take up to
    `Resources.whole`.

    `largest`: bytes of the largest chunk.
    """
    if chunks > 1 or budget.chosen or not budget.chunk < largest <= resources.whole:
        return budget
    share = (
        f"1/{SHARE} of the memory of a GPU"
        if resources.gpu
        else f"1/{WHOLE} of the memory of this process"
    )
    return replace(budget, chunk=resources.whole, origin=f"all rows in {share}")


def budget_of_rows(size: float, budget: Budget, resources: Resources) -> Budget:
    """Return the budget for rows of `size` bytes in all.

    If they fill little of the GPUs' memory, chunks may be larger.
    """
    memory = resources.memory or 0
    if (
        not resources.gpu
        or budget.chosen
        or FEW_ROWS * size > memory * resources.workers
    ):
        return budget
    origin = f"1/{SHARE} of {size_text(memory)} on the smallest GPU"
    return replace(budget, chunk=max(budget.chunk, resources.whole), origin=origin)


def make_budget(
    blocksize: int | None, settings: Settings, resources: Resources
) -> Budget:
    """Return the budget of a join."""
    if blocksize is not None:
        chunk, origin = blocksize, f"blocksize={size_text(blocksize)!r}"
    elif settings.blocksize is not None:
        chunk = settings.blocksize
        origin = size_origin("blocksize", chunk)
    elif resources.memory is not None:
        share, most = (
            (DEVICE_SHARE, MAX_DEVICE_CHUNK) if resources.gpu else (SHARE, MAX_CHUNK)
        )
        chunk = min(max(resources.memory // share, MIN_CHUNK), most)
        each = (
            "on the smallest GPU"
            if resources.gpu
            else "for each thread of the smallest worker"
        )
        origin = f"1/{share} of {size_text(resources.memory)} {each}"
        if chunk == most:
            origin = "the default on workers with enough memory"
    else:
        chunk, origin = LOCAL_CHUNK, "the default without a cluster"
        if resources.shared is not None:
            chunk = min(max(resources.shared // SHARE, LOCAL_CHUNK), MAX_CHUNK)
            if chunk > LOCAL_CHUNK:
                origin = f"from {size_text(resources.shared)} of memory for each thread of this process"
    chosen = blocksize is not None or settings.blocksize is not None
    if chosen:
        output = chunk
    elif resources.memory is None:
        output = LOCAL_CHUNK
    elif resources.gpu:
        # larger than `MAX_CHUNK`, because that limits the comparisons of a task, not
        # its pairs
        output = resources.memory // SHARE
    else:
        output = min(chunk, MAX_OUTPUT)
    if settings.result is not None:
        result = settings.result
        limit = size_origin("result-limit", result)
    elif resources.disk is not None and resources.disk < MAX_RESULT:
        result, limit = resources.disk, FREE
    else:
        result, limit = MAX_RESULT, f"the default of {SET}"
    return Budget(chunk, settings.output or output, result, chosen, origin, limit)


SURE = 1 << 26
"""Results up to this number of bytes are never refused."""

PARTS = 8
"""Number of partitions that messages recommend for a Dask DataFrame."""

MARGIN = 1.25
"""Messages recommend the smallest sufficient size times this factor."""

PEAK = 1.3
"""Peak host memory of a join, divided by the size of its result: see
docs/benchmarks/memory.md.

It exceeds 1, because columns grow by an eighth at a time. If ids are not numbers,
positions of rows also take memory for a while.
"""

DEVICE_PEAK = 1.5
"""Peak GPU memory of a join, divided by the size of its result.

It exceeds 1, because growing columns are copied.
"""

LAZY = f"or a Dask DataFrame, dd.from_pandas(df, npartitions={PARTS}), whose result comes in parts"
"""Remedy for a result that does not fit in memory, in the words of messages."""


def free_memory() -> int:
    """Return the bytes that this process may still allocate.

    This is the smallest of: the free memory of the machine, the rest of the container's
    limit, and the rest of the process's limit.
    """
    process = psutil.Process().memory_info()
    free = [psutil.virtual_memory().available, MEMORY_LIMIT - process.rss]
    own = resource.getrlimit(resource.RLIMIT_AS)[0]
    if own != resource.RLIM_INFINITY:
        free.append(own - process.vms)
    return max(0, int(min(free)))


def plain_budget(budget: Budget, size: int, device: int | None) -> Budget:
    """Return the budget for a plain frame. Its result must fit in the memory that is
    free now.

    `size`: bytes of the frame.  `device`: see `check_room`.
    """
    room = int(free_memory() / PEAK if device is None else device / DEVICE_PEAK)
    result = min(budget.result, room)
    return replace(
        budget,
        chunk=size,
        output=result,
        result=result,
        origin="the size of the frame in memory",
    )


def check_room(
    rows: float,
    row_bytes: float,
    cause: str,
    sampled: bool,
    device: int | None = None,
    free: int | None = None,
) -> None:
    """Refuse a result that does not fit in memory while it is built.

    `rows`: lower bound of the number of rows.  `cause`: the option that messages name
    as the cause of these rows.  `sampled`: whether `rows` is estimated.  `device`: free
    bytes of the GPU that holds the result, if any.  `free`: free bytes of host memory
    before the join; None: use the memory that is free now.
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
        source = ", estimated from a sample," if sampled else ","
        raise BudgetError(
            f"{cause} gives at least {rows:,.0f} rows{source} which take "
            f"{size_text(size, free)}, and "
            f"{size_text(need, free)} while they are built. Only "
            f"{size_text(free)} are {where}. "
            f"{_remedy(cause)}",
            remedies=_remedies(cause),
        )


def room_now(row_bytes: float, cause: str, device: int | None) -> Callable[[int], None]:
    """Return a function that checks whether a number of result rows fits in the memory
    that is free now.
    """
    free = free_memory() if device is None else None
    return lambda rows: check_room(rows, row_bytes, cause, False, device, free)


@contextlib.contextmanager
def within_memory(cause: str) -> Iterator[None]:
    """Convert a `MemoryError` to a `BudgetError` that names the cause of the large
    result.
    """
    try:
        yield
    except MemoryError as error:
        raise BudgetError(
            f"{cause} gives a result that does not fit memory: {error}. "
            f"{_remedy(cause)}",
            remedies=_remedies(cause),
        ) from error


def _remedy(cause: str) -> str:
    return f"Use {fewer_pairs(cause)}, {LAZY}.{eps_by_neighbors(cause)}"


def _remedies(cause: str) -> list[Remedy]:
    return [Remedy(npartitions=PARTS), *verbs_without_pairs(cause)]


def verbs_without_pairs(cause: str, two: bool = False) -> list[Remedy]:
    """Return verbs that count pairs without building them.

    There are none for nearest rows ("k=5", say), or if there are two tables (`two`).
    """
    if two or cause.startswith("k="):
        return []
    of_sets = cause.startswith("threshold=")
    names = (
        ("count_set_pairs", "set_neighbor_counts")
        if of_sets
        else ("count_pairs", "neighbor_counts")
    )
    return [Remedy(verb=name) for name in names]


def enough_result(need: float, like: float = 1) -> dict[str, str]:
    """Return the configuration that allows a result of `need` bytes. `like`: see
    `size_text`.
    """
    return {"simjoin.result-limit": size_text(MARGIN * need, like, up=True)}


def fewer_pairs(cause: str, two: bool = False) -> str:
    """Recommend options that give fewer pairs than `cause` ("eps=1", say), or verbs
    that count pairs.
    """
    name, verbs = cause.partition("=")[0], verbs_without_pairs(cause, two)
    other = f"a {'larger' if name == 'threshold' else 'smaller'} {name}"
    counts = " or ".join(f"{remedy.verb}()" for remedy in verbs)
    return f"{other}, {counts}, which make no pairs" if verbs else other


def eps_by_neighbors(cause: str, two: bool = False) -> str:
    """Return a sentence that says how to choose an eps, if it is the cause of a large
    result, and there are not two tables.
    """
    if two or not cause.startswith("eps="):
        return ""
    return (
        " With eps=frame.simjoin.k_distances(10).median(), half of the rows have at "
        "least 10 neighbors (pass on= and metric= to it as here)."
    )


ENTRY, DEVICE_ENTRY = 16, 12
"""Bytes of an entry of a sparse matrix (its value and its column): on the host, and on
a GPU.
"""

PIECE = 12
"""Bytes of an entry in the pieces of a matrix.

They are added, because pieces are kept until the matrix is complete.
"""

ROW = 32
"""Bytes per row of a sparse matrix: the position of its first entry, and temporary
arrays.
"""


@dataclass(frozen=True)
class Limit:
    """A memory limit for a sparse matrix."""

    bytes: int  # bytes that are available
    # bytes of an entry and of a row of the matrix
    entry: int
    row: int
    # for messages: the words before the bytes, and the remedy
    where: str
    remedy: str
    config: str = ""  # the configuration key that sets the limit; "": there is none


@dataclass(frozen=True)
class Fitting:
    """The limits of a matrix of neighbors.

    `max_entries`: maximum number of entries that its integer indices allow; None: no
    limit.
    """

    eps: float
    rows: int
    limits: list[Limit]
    max_entries: int | None

    def check(self, entries: float, sampled: bool = False) -> None:
        """Refuse a matrix with too many entries.

        `sampled`: `entries` is an estimated lower bound, not a count.
        """
        about = f"eps={self.eps!r} gives {'at least ' if sampled else ''}{entries:,.0f} entries"
        about += ", estimated from a sample" if sampled else ""
        if self.max_entries is not None and entries > self.max_entries:
            raise BudgetError(
                f"{about}, and a sparse matrix of this CuPy has at most "
                f"{self.max_entries:,}, because its "
                "indices are int32. Use CuPy 14.1 or newer, a smaller eps, or "
                "ddf.to_backend('pandas')."
            )
        for limit in self.limits:
            need = entries * limit.entry + self.rows * limit.row
            if need > limit.bytes:
                config = (
                    {limit.config: size_text(MARGIN * need, up=True)}
                    if limit.config
                    else {}
                )
                helps = f"dask.config.set({config})" if config else limit.remedy
                raise BudgetError(
                    f"{about}, which take {size_text(need, limit.bytes)}, and {limit.where} "
                    f"{size_text(limit.bytes)}. Use a smaller eps, {helps}, or "
                    "self_join(), whose pairs "
                    "are lazy and may exceed memory.",
                    remedies=[
                        *([Remedy(config=config)] if config else []),
                        Remedy(verb="self_join"),
                    ],
                )
