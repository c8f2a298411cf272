"""Whether what a plain frame's join gives fits this machine's memory."""

from __future__ import annotations

import contextlib
import math
import resource
from collections.abc import Callable, Iterator

import psutil
from dask.utils import format_bytes
from distributed.system import MEMORY_LIMIT

from dask_simjoin.errors import BudgetError, Remedy

SURE = 1 << 26
"""Bytes that are not asked for."""

PARTS = 8

MARGIN = 1.25
"""How much more than what is just enough a message recommends."""

PEAK = 1.3
"""Memory that a join takes on the host at its peak, in units of its result's: see docs/benchmarks.md.

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
