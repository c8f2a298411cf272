"""Texts split at bytes, and their tokens numbered, where characters between tokens are told by bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dask_simjoin.engine.base import splitting_kernels
from dask_simjoin.sets.coded import Occurrences

FEWEST = 1 << 12
"""Places of the first table of tokens; it grows fourfold."""

TOGETHER = 32
"""Tokens of a text that are looked up side by side."""


def byte_kinds(separators: bytes, leads: bytes = b"") -> np.ndarray:
    """Tell what each byte is (256,), uint8; `leads`: first ones of what may be white space."""
    kinds = np.zeros(256, np.uint8)
    kinds[list(separators)] = 1
    kinds[list(leads)] = 2
    return kinds


SPACES = byte_kinds(b"\t\n\v\f\r\x1c\x1d\x1e\x1f ", b"\xc2\xe1\xe2\xe3")
"""White space, as Python's texts have it."""

NO_WORDS = byte_kinds(bytes(c for c in range(128) if not chr(c).isalnum()))
"""What is between words of letters and digits, in ASCII."""


def bytes_of(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 of an Arrow array of large strings, and where each begins and ends (n + 1,)."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.frombuffer(b"", np.uint8), np.zeros(len(texts) + 1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends - ends[0]


def split_at_bytes(data: np.ndarray, ends: np.ndarray, kinds: np.ndarray) -> Occurrences:
    """Split texts and number their tokens, none of which is empty; see `bytes_of` and `byte_kinds`."""
    texts = len(ends) - 1
    most = (len(data) + texts) // 2 + 1
    keys, pool = np.empty(most, np.uint64), np.empty(len(data), np.uint8)
    pool_ends, codes = np.zeros(most + 1, np.int64), np.empty(most, np.int32)
    offsets, done = np.zeros(texts + 1, np.int64), np.zeros(4, np.int64)
    heads, hashed = np.empty((TOGETHER, 3), np.int64), np.empty(TOGETHER, np.uint64)
    size, number_tokens = FEWEST, splitting_kernels().number_tokens
    while not number_tokens(
        data,
        ends,
        kinds,
        np.full(size, -1, np.int32),
        keys,
        pool,
        pool_ends,
        codes,
        offsets,
        heads,
        hashed,
        done,
    ):
        size *= 4
    _, _, number, differ = done.tolist()
    if not differ:
        return Occurrences(offsets, codes[:0].copy(), None)
    used = pool_ends[: differ + 1].copy()
    buffers = [None, pa.py_buffer(used), pa.py_buffer(pool[: used[-1]].tobytes())]
    tokens = pa.LargeStringArray.from_buffers(differ, buffers[1], buffers[2])
    return Occurrences(offsets, codes[:number].copy(), tokens)
