"""Memory budgets of results of plain frames, and of sparse matrices."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psutil

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.limits import MEMORY_LIMIT, Limits, free_disk
from dask_simjoin.request.messages import about_many, size_text
from dask_simjoin.request.options import read_settings
from dask_simjoin.request.spec import RowSpec

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


def limits_now(limits: Limits, size: int, device: int | None) -> Limits:
    """Return the limits for a plain frame. Its result must fit in the memory that is
    free now.

    `size`: bytes of the frame.  `device`: see `check_room`.
    """
    room = int(free_memory() / PEAK if device is None else device / DEVICE_PEAK)
    result = min(limits.result, room)
    return replace(
        limits,
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
    options: str | None = None,
    equal: bool = False,
    two: bool = False,
    lists: bool = False,
    most: bool = False,
    kind: str = "",
) -> None:
    """Refuse a result that does not fit in memory while it is built.

    `rows`: lower bound of the number of rows.  `cause`: the option that messages name
    as the cause of these rows.  `sampled`: whether `rows` is estimated.  `device`: free
    bytes of the GPU that holds the result, if any.  `free`: free bytes of host memory
    before the join; None: use the memory that is free now. `two`, `options`, `equal`,
    `kind`: see `fewer_pairs`. `lists`, `most`: see `_in_parts`.
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
        things = "rows" if _is_nearest(cause, kind) else "pairs"
        number = (
            f"an estimated {about_many(rows)} {things} or more"
            if sampled
            else f"at least {rows:,.0f} {things}"
        )
        # if the result itself is too large, its size is enough
        built = (
            "" if size > free else f", and {size_text(need, free)} while it is built"
        )
        memory = "memory" if device is None else "the memory of the GPU"
        verb = "" if _is_nearest(cause, kind) else _join_verb(two, kind)
        lazy, remedy = _in_parts(size, things, lists, most, verb)
        raise BudgetError(
            f"{cause} gives {number} ({size_text(size, free)}{built}). The result must "
            f"fit in {memory}, and {size_text(free)} are free. "
            f"{fewer_pairs(cause, two, options, equal, kind)} {lazy}",
            remedies=[remedy, *verbs_without_pairs(cause, two, kind)],
        )


def room_now(
    row_bytes: float, spec: RowSpec, two: bool, device: int | None
) -> Callable[[int], None]:
    """Return a function that checks whether a number of result rows fits in the memory
    that is free now. `two`: whether there are two tables.
    """
    free = free_memory() if device is None else None
    return lambda rows: check_room(
        rows,
        row_bytes,
        spec.request,
        False,
        device,
        free,
        two=two,
        lists=spec.of_lists,
        kind=spec.kind,
    )


@contextlib.contextmanager
def within_memory(
    spec: RowSpec, two: bool, options: str | None = None
) -> Iterator[None]:
    """Convert a `MemoryError` to a `BudgetError` that names the cause of the large
    result. `two`, `options`: see `fewer_pairs`.
    """
    try:
        yield
    except MemoryError as error:
        cause, kind = spec.request, spec.kind
        lazy, remedy = _in_parts(0, "pairs", spec.of_lists, verb=_join_verb(two, kind))
        raise BudgetError(
            f"{cause} gives a result that does not fit in memory: {error}. "
            f"{fewer_pairs(cause, two, options, kind=kind)} {lazy}",
            remedies=[remedy, *verbs_without_pairs(cause, two, kind)],
        ) from error


def _join_verb(two: bool, kind: str) -> str:
    """Return the verb that finds pairs. `two`, `kind`: see `fewer_pairs`."""
    return f"{kind}join" if two else f"{kind}self_join"


def _in_parts(
    size: float, things: str, lists: bool, most: bool = False, verb: str = ""
) -> tuple[str, Remedy]:
    """Return the remedy for a result that does not fit in memory: a Dask DataFrame, and
    the configuration that it needs.

    The remedy is a sentence, and a `Remedy` for programs.
    `size`: bytes of the result; 0: unknown.  `things`: its rows, in words.  `lists`:
    whether a column holds lists, which Dask would convert to texts.  `most`: whether
    `check_share` would refuse the result.  `verb`: the verb of the call; "": unknown.
    """
    config: dict[str, Any] = {}
    settings = read_settings()
    limits = Limits(disk=free_disk(())).sized(None, settings)
    if size > limits.result or (most and settings.result is None):
        config |= enough_result(size)
    if lists:
        config["dataframe.convert-string"] = False
    first = f"dask.config.set({config}), then " if config else "use "
    space = f" with more than {size_text(size)} free" if size else ""
    table = f"dd.from_pandas(frame, npartitions={PARTS})"
    call = (
        f"{table}.simjoin.{verb}(...)" if verb else f"the same verb of {table}.simjoin"
    )
    return (
        f"If you need all {things} and only aggregate them, or write them to a disk"
        f"{space}: {first}{call}, whose result comes in parts.",
        Remedy(config=config, npartitions=PARTS),
    )


def _is_nearest(cause: str, kind: str) -> bool:
    """Return whether an option ("k=5", say) is a number of nearest rows."""
    return not kind and cause.startswith("k=")


def verbs_without_pairs(cause: str, two: bool = False, kind: str = "") -> list[Remedy]:
    """Return verbs that count pairs without building them.

    There are none for nearest rows ("k=5", say), or if there are two tables (`two`).
    `kind`: see `RowSpec.kind`.
    """
    if two or _is_nearest(cause, kind):
        return []
    return [
        Remedy(verb=name) for name in (f"count_{kind}pairs", f"{kind}neighbor_counts")
    ]


def enough_result(need: float, like: float = 1) -> dict[str, str]:
    """Return the configuration that allows a result of `need` bytes. `like`: see
    `size_text`.
    """
    return {"simjoin.result-limit": size_text(MARGIN * need, like, up=True)}


def fewer_pairs(
    cause: str,
    two: bool = False,
    options: str | None = None,
    equal: bool = False,
    kind: str = "",
) -> str:
    """Return sentences that recommend an option that gives fewer pairs than `cause`
    ("eps=1", say), and verbs that count pairs.

    `options`: the options of the call that determine distances: see
    `JoinSpec.same_options`; None: no eps can be recommended.  `equal`: whether all rows have the
    same coordinates.  `kind`: see `RowSpec.kind`.
    """
    if equal and not two:
        use = "All rows have the same coordinates, so a smaller eps does not help."
    else:
        use = f"Use {smaller(cause)}.{_eps_by_neighbors(cause, two, options)}"
    return f"{use}{without_pairs(cause, two, kind)}"


def without_pairs(cause: str, two: bool = False, kind: str = "") -> str:
    """Return a sentence that recommends the verbs that count pairs; "" if there are
    none.
    """
    verbs = verbs_without_pairs(cause, two, kind)
    counts = " or ".join(f"{one.verb}()" for one in verbs)
    return f" If you only need numbers, use {counts}." if counts else ""


def smaller(cause: str) -> str:
    """Return the change of an option that gives fewer pairs: "a smaller eps"."""
    name = cause.partition("=")[0]
    larger = name in ("threshold", "similarity")
    return f"a {'larger' if larger else 'smaller'} {name}"


def _eps_by_neighbors(cause: str, two: bool, options: str | None) -> str:
    """Return a sentence that says how to choose an eps, if it is the cause of a large
    result, and there are not two tables.
    """
    if two or options is None or not cause.startswith("eps="):
        return ""
    return (
        f" For example, eps=numpy.median(dask_simjoin.k_distances(frame, 10{options})) "
        "gives half of the rows at least 10 neighbors."
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
        number = (
            f"an estimated {about_many(entries)} entries or more"
            if sampled
            else f"{entries:,.0f} entries"
        )
        about = f"eps={self.eps!r} gives {number}"
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
