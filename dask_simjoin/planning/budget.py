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
from dask_simjoin.sizes import FEW, MARGIN, SPARE_BYTES

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


@dataclass(frozen=True)
class Cause:
    """The option that makes a result large, and what its remedies depend on."""

    option: str  # with its value: "eps=1"
    two: bool = False  # whether there are two tables
    # the options of the call that determine distances: see `RowSpec.same_options`;
    # None: no eps can be recommended
    options: str | None = None
    equal: bool = False  # whether all rows have the same coordinates
    kind: str = ""  # see `RowSpec.kind`
    lists: bool = False  # whether a column holds lists, which Dask converts to texts
    numbered: bool = False  # whether columns have numbers, as in tables of arrays

    @classmethod
    def of(cls, spec: RowSpec, two: bool, equal: bool = False) -> Cause:
        """Return the option that limits the pairs of a join."""
        numbered = all(type(name) is int for name in spec.on)
        lists = spec.of_lists
        return cls(
            spec.request, two, spec.same_options, equal, spec.kind, lists, numbered
        )

    @property
    def table(self) -> str:
        return "x" if self.numbered else "frame"

    @property
    def is_nearest(self) -> bool:
        """Whether the option is a number of nearest rows: "k=5", say."""
        return not self.kind and self.option.startswith("k=")

    @property
    def counting(self) -> list[Remedy]:
        """The verbs that count pairs without building them. There are none for nearest
        rows, or if there are two tables.
        """
        if self.two or self.is_nearest:
            return []
        names = f"count_{self.kind}pairs", f"{self.kind}neighbor_counts"
        return [Remedy(verb=name) for name in names]

    @property
    def smaller(self) -> str:
        """The change of the option that gives fewer pairs: "a smaller eps"."""
        name = self.option.partition("=")[0]
        larger = name in ("threshold", "similarity")
        return f"a {'larger' if larger else 'smaller'} {name}"

    @property
    def without_pairs(self) -> str:
        """A sentence that recommends the verbs that count pairs; "" if there are none."""
        counts = " or ".join(f"{one.verb}()" for one in self.counting)
        return f" If you only need counts, use {counts}." if counts else ""

    @property
    def fewer_pairs(self) -> str:
        """Sentences that recommend an option that gives fewer pairs, and verbs that
        count pairs.
        """
        if self.equal and not self.two:
            use = "All rows have the same coordinates, so a smaller eps does not help."
        else:
            use = f"Use {self.smaller}.{self._eps_by_neighbors}"
        return f"{use}{self.without_pairs}"

    @property
    def _eps_by_neighbors(self) -> str:
        """A sentence that says how to choose an eps, if it is the cause, and there are
        not two tables.
        """
        if self.two or self.options is None or not self.option.startswith("eps="):
            return ""
        return (
            f" For example, eps=numpy.median(dask_simjoin.k_distances({self.table}, "
            f"10{self.options})) gives half of the rows at least 10 neighbors."
        )


def check_room(
    rows: float,
    row_bytes: float,
    cause: Cause,
    sampled: bool,
    device: int | None = None,
    free: int | None = None,
    most: bool = False,
) -> None:
    """Refuse a result that does not fit in memory while it is built.

    `rows`: lower bound of the number of rows.  `sampled`: whether `rows` is estimated.
    `device`: free bytes of the GPU that holds the result, if any.  `free`: free bytes
    of host memory before the join; None: use the memory that is free now. `most`: see
    `_in_parts`.
    """
    size = rows * row_bytes
    need = size * (PEAK if device is None else DEVICE_PEAK)
    if need <= SPARE_BYTES:
        return
    if device is not None:
        free = device
    elif free is None:
        free = free_memory()
    if need > free:
        things = "rows" if cause.is_nearest else "pairs"
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
        lazy, remedy = _in_parts(size, cause, most)
        raise BudgetError(
            f"{cause.option} gives {number} ({size_text(size, free)}{built}). The "
            f"result must fit in {memory}, and {size_text(free)} are free. "
            f"{cause.fewer_pairs} {lazy}",
            remedies=[remedy, *cause.counting],
        )


def room_now(
    row_bytes: float, cause: Cause, device: int | None
) -> Callable[[int], None]:
    """Return a function that checks whether a number of result rows fits in the memory
    that is free now.
    """
    free = free_memory() if device is None else None
    return lambda rows: check_room(rows, row_bytes, cause, False, device, free)


@contextlib.contextmanager
def within_memory(cause: Cause) -> Iterator[None]:
    """Convert a `MemoryError` to a `BudgetError` that names the cause of the large
    result.
    """
    try:
        yield
    except MemoryError as error:
        lazy, remedy = _in_parts(0, cause)
        raise BudgetError(
            f"{cause.option} gives a result that does not fit in memory: {error}. "
            f"{cause.fewer_pairs} {lazy}",
            remedies=[remedy, *cause.counting],
        ) from error


def _in_parts(size: float, cause: Cause, most: bool = False) -> tuple[str, Remedy]:
    """Return the remedy for a result that does not fit in memory: a Dask DataFrame, and
    the configuration that it needs.

    The remedy is a sentence, and a `Remedy` for programs. `size`: bytes of the result;
    0: unknown.  `most`: whether `check_share` would refuse the result.
    """
    config: dict[str, Any] = {}
    settings = read_settings()
    limits = Limits(disk=free_disk(())).sized(None, settings)
    if size > limits.result or (most and settings.result is None):
        config |= enough_result(size)
    if cause.lists:
        config["dataframe.convert-string"] = False
    first = f"dask.config.set({config}), then " if config else "use "
    space = f" with more than {size_text(size)} free" if size else ""
    rows = "pandas.DataFrame(x)" if cause.numbered else "frame"
    table = f"dd.from_pandas({rows}, npartitions={FEW})"
    join = f"{cause.kind}{'join' if cause.two else 'self_join'}"
    call = f"{table}.simjoin.{join}(...)"
    things = "pairs"
    if cause.is_nearest:  # several verbs find nearest rows
        call, things = f"the same verb of {table}.simjoin", "rows"
    return (
        f"If you need all {things} and only aggregate them, or write them to a disk"
        f"{space}: {first}{call}, whose result comes in parts.",
        Remedy(config=config, npartitions=FEW),
    )


def enough_result(need: float, like: float = 1) -> dict[str, str]:
    """Return the configuration that allows a result of `need` bytes. `like`: see
    `size_text`.
    """
    return {"simjoin.result-limit": size_text(MARGIN * need, like, up=True)}


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
