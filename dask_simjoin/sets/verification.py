"""Options of methods of set joins on GPUs: who filters, and how candidates are verified."""

from __future__ import annotations

from dataclasses import dataclass

from dask_simjoin.errors import OptionError

WAYS = ("auto", "thread", "warp", "A", "B", "C")
FILTERS = ("gpu", "cpu")
BLOCKS = (32, 64, 96, 128, 160, 192, 224, 256)
WORDS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class OnGpu:
    """What all methods can be told of GPUs; it changes no pair.

    Parameters
    ----------
    verify : {"auto", "thread", "warp", "A", "B", "C"}
        Who compares the tokens of a candidate: a thread, or a warp whose threads share the path on which
        the two sets are merged.  Or as in Bellas & Gounaris: "A", a thread all candidates of a probe; "B", a
        block those of a probe, a thread each, the probe in shared memory; "C", a block each candidate, by
        such a path.  "auto": a thread, or for long sets a warp.
    block : int
        Threads of a block that compares bitmaps, or that verifies by "A", "B" or "C": 32 to 256.
    words : int or None
        Words of 32 bits of the bitmap of a set: 1, 2, 4, 8, 16 or 32.  None: by the sizes of the sets.  On
        CPUs words have 64 bits, so that it has half as many; None: as a sample of the sets says.
    chunk_bytes : int or None
        Bytes of the candidates that are on the GPU at a time, and of what is written where they match: the
        paper's M_c.  None: a part of the memory that is free, or 64 MB where the CPU filters.
    """

    verify: str = "auto"
    block: int = 128
    words: int | None = None
    chunk_bytes: int | None = None

    def __post_init__(self) -> None:
        self._check("verify", WAYS)
        self._check("block", BLOCKS)
        self._check("words", (None, *WORDS))
        if self.chunk_bytes is not None and (type(self.chunk_bytes) is not int or self.chunk_bytes < 1):
            raise OptionError(
                f"{type(self).__name__}(chunk_bytes={self.chunk_bytes!r}) is not allowed; use a whole number "
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
    """What methods can be told that filter by an index.

    Parameters
    ----------
    filter : {"gpu", "cpu"}
        Who filters for a GPU: itself, or the CPU, as in the paper, while the GPU verifies the candidates that
        the CPU found before.
    """

    filter: str = "gpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("filter", FILTERS)
