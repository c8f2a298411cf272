"""Methods of set joins, and their options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock, SetCounters, SetPairs

WAYS = ("auto", "thread", "warp", "A", "B", "C")
FILTERS = ("gpu", "cpu")
BLOCKS = (32, 64, 96, 128, 160, 192, 224, 256)
WORDS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """Options of all methods for GPUs; they do not change the pairs.

    Parameters
    ----------
    verify : {"auto", "thread", "warp", "A", "B", "C"}
        How the tokens of a candidate are compared. "thread": one thread compares them.
        "warp": the threads of a warp divide the merge path of the two sets. "A", "B"
        and "C" are from Bellas & Gounaris. "A": a thread compares all candidates of a
        probe. "B": a block compares them, with one thread per candidate and the probe
        in shared memory. "C": a block compares each candidate, along a merge path.
        "auto": "thread", or "warp" for long sets.
    block : int
        Threads of a block that compares bitmaps, or that verifies by "A", "B" or "C":
        32 to 256.
    words : int or None
        Number of 32-bit words in the bitmap of a set: 1, 2, 4, 8, 16 or 32. On CPUs,
        half as many words of 64 bits are used. None: the sizes of sets determine the
        number; on CPUs, a sample of sets does. 0: no bitmaps, as in the papers on
        `AllPairs`, `PPJoin` and `GroupJoin`.
    chunk_bytes : int or None
        Bytes on the GPU for a batch of candidates and their matches: M_c in the paper.
        None: a share of the free memory, or 64 MiB if the CPU filters.
    """

    verify: str = "auto"
    block: int = 128
    words: int | None = None
    chunk_bytes: int | None = None

    allowed_words: ClassVar[tuple[int, ...]] = WORDS

    def __post_init__(self) -> None:
        self._check("verify", WAYS)
        self._check("block", BLOCKS)
        self._check("words", (None, *self.allowed_words))
        if self.chunk_bytes is not None and (
            type(self.chunk_bytes) is not int or self.chunk_bytes < 1
        ):
            raise OptionError(
                f"{type(self).__name__}(chunk_bytes={self.chunk_bytes!r}) is not "
                "allowed; use a whole number "
                "above 0, or None."
            )

    def _check(self, name: str, allowed: tuple[object, ...]) -> None:
        value = getattr(self, name)
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise OptionError(
                f"{type(self).__name__}({name}={value!r}) is not allowed; use one of "
                f"{', '.join(map(repr, allowed))}."
            )


@dataclass(frozen=True, kw_only=True)
class Filtered(OnGpu):
    """Options of methods that filter by an index.

    Parameters
    ----------
    filter : {"gpu", "cpu"}
        Where candidates for a GPU are filtered: on the GPU, or on the CPU, as in the
        paper. The CPU filters the next candidates while the GPU verifies.
    """

    filter: str = "gpu"

    allowed_words: ClassVar[tuple[int, ...]] = (0, *WORDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("filter", FILTERS)


AUTO = "auto"
"""The value of `method` that lets the joiner choose a method for the sets at hand."""

SetMethod = OnGpu
"""A method to find pairs of sets. The documentation shows the first line of its
docstring.
"""


@dataclass(frozen=True, kw_only=True)
class AllPairs(Filtered):
    """Find candidates by an index of prefix tokens, and verify all candidates whose
    sizes allow a match.
    """


@dataclass(frozen=True, kw_only=True)
class PPJoin(Filtered):
    """Find candidates as `AllPairs`, and reject those with too few tokens after the
    first common token.
    """


@dataclass(frozen=True, kw_only=True)
class GroupJoin(Filtered):
    """Find candidates among groups of sets with the same size and prefix, then pair the
    members of groups.

    Parameters
    ----------
    members : {"gpu", "cpu"}
        Where members are paired if the CPU filters for a GPU. "cpu": as in Bellas &
        Gounaris, where the GPU verifies only one set of each group.
    """

    members: str = "gpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("members", FILTERS)


@dataclass(frozen=True, kw_only=True)
class Bitmap(OnGpu):
    """Compare the bitmaps of all sets whose sizes allow a match, then the tokens of the
    remaining pairs.
    """


METHODS: dict[str, SetMethod] = {
    "allpairs": AllPairs(),
    "ppjoin": PPJoin(),
    "groupjoin": GroupJoin(),
    "bitmap": Bitmap(),
}
"""Name of a method -> the method with its default options."""

CHOICES = (AUTO, *METHODS)
"""Values of the option `method`."""


def options_of(method: str | SetMethod) -> SetMethod | None:
    """Return the options of a method, which is given by its name or by an object. For
    "auto", return None.
    """
    if not isinstance(method, str):
        return method
    return None if method == AUTO else METHODS[method]


class SetJoiner(Protocol):
    """Finds the matching pairs of two blocks, each pair once. If `right` is None, it
    finds the pairs within `left`.

    A pair within one block has positions i < j. A method is given by its name, or by an
    object with its options.
    """

    def batches(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
    ) -> Iterator[SetPairs]:
        """Yield the pairs of sets in batches. The next batch reuses the memory of the
        arrays.
        """

    def count(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
        threads: int = 1,
    ) -> int:
        """Return the number of pairs of rows. It is the sum, over matching sets, of the
        products of their weights. `threads`: number of threads on the host.
        """

    def counts(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
        threads: int = 1,
    ) -> tuple[Array, Array]:
        """For each set of both blocks, return how many rows match it (n,), int64.

        If `right` is None, both results are the same array. `threads`: see `count`.
        """

    def counters(
        self,
        left: SetBlock,
        right: SetBlock | None,
        rule: Rule,
        method: str | SetMethod,
    ) -> SetCounters:
        """Count the work that `count` does."""
