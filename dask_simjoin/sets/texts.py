"""Split texts into tokens and q-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.engine.base import splitting_kernels
from dask_simjoin.sets.token_ids import Occurrences, numbered_integers

MIN_SLOTS = 1 << 12
"""Slots of the first hash table of tokens; it grows fourfold."""

TOGETHER = 32
"""Tokens of a text that are looked up together."""


def byte_kinds(separators: bytes, leads: bytes = b"") -> np.ndarray:
    """Return the kind of each byte (256,), uint8; `leads`: first bytes of possible white space."""
    kinds = np.zeros(256, np.uint8)
    kinds[list(separators)] = 1
    kinds[list(leads)] = 2
    return kinds


SPACES = byte_kinds(b"\t\n\v\f\r\x1c\x1d\x1e\x1f ", b"\xc2\xe1\xe2\xe3")
"""White space, as in Python's `str.split`."""

NO_WORDS = byte_kinds(bytes(c for c in range(128) if not chr(c).isalnum()))
"""ASCII characters between words of letters and digits."""


def bytes_of(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of an Arrow array of large strings, and the bounds of each text (n + 1,)."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.frombuffer(b"", np.uint8), np.zeros(len(texts) + 1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends - ends[0]


def split_at_bytes(data: np.ndarray, ends: np.ndarray, kinds: np.ndarray) -> Occurrences:
    """Split texts and number their nonempty tokens; see `bytes_of` and `byte_kinds`."""
    texts = len(ends) - 1
    max_tokens = (len(data) + texts) // 2 + 1
    keys, pool = np.empty(max_tokens, np.uint64), np.empty(len(data), np.uint8)
    pool_ends, codes = np.zeros(max_tokens + 1, np.int64), np.empty(max_tokens, np.int32)
    offsets, done = np.zeros(texts + 1, np.int64), np.zeros(4, np.int64)
    heads, hashed = np.empty((TOGETHER, 3), np.int64), np.empty(TOGETHER, np.uint64)
    size, number_tokens = MIN_SLOTS, splitting_kernels().number_tokens
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


KEY_BITS = 64
"""A gram is one key if its characters have fewer bits."""

MAX_NUMBER = 2**62
"""Bound of the numbers of grams.  Grams are renumbered before their numbers would exceed it."""


AT_ONCE = 1 << 20
"""Characters of grams that are written together."""


def code_points(texts: Any, pad: int, pads: tuple[int, int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of each text (n + 1,), and the characters of texts as code points.

    `pads`: characters before and after each nonempty text, `pad` times each; None: no padding.
    """
    texts = pc.cast(texts, pa.large_string())
    sizes = pc.utf8_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    points = _points(texts)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if pads is None or not pad:
        return offsets, points
    padded = np.where(sizes > 0, sizes + 2 * pad, 0)
    ends = np.cumsum(padded)
    found = np.full(int(ends[-1]) if len(ends) else 0, pads[0], np.uint32)
    begins = (ends - padded)[sizes > 0]
    own = sizes[sizes > 0]
    found[np.repeat(begins + pad - offsets[:-1][sizes > 0], own) + np.arange(len(points))] = points
    tails = (begins + pad + own)[:, None] + np.arange(pad)
    found[tails.ravel()] = pads[1]
    return np.concatenate([[0], ends]), found


def _points(texts: Any) -> np.ndarray:
    """Return the code points of all texts, concatenated."""
    if not len(texts):
        return np.zeros(0, np.uint32)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if data is None or ends[0] == ends[-1]:
        return np.zeros(0, np.uint32)
    raw = data.slice(int(ends[0]), int(ends[-1] - ends[0]))
    plain = np.frombuffer(raw, np.uint8)
    if not (plain & 0x80).any():
        return plain.astype(np.uint32)
    return np.frombuffer(str(raw, "utf-8").encode("utf-32-le"), np.uint32)


def grams_of(offsets: np.ndarray, points: np.ndarray, q: int) -> Occurrences:
    """Number the q-grams of texts."""
    sizes = np.diff(offsets)
    grams = np.maximum(sizes - (q - 1), 0)
    ends = np.concatenate([[0], np.cumsum(grams)])
    if not ends[-1]:
        return Occurrences(ends, np.zeros(0, np.int32), None)
    bits = int(points.max()).bit_length()
    if bits * q < KEY_BITS:
        codes, firsts = _numbered(offsets, points, q, bits, int(ends[-1]))
        return Occurrences(ends, codes, _written(points, firsts, q))
    # start of each gram
    places = np.repeat(offsets[:-1] - ends[:-1], grams) + np.arange(ends[-1])
    letters, alphabet = numbered_integers(points)
    base, above = len(alphabet), len(alphabet)
    numbers = letters.astype(np.int64)
    for k in range(1, q):
        if above * base >= MAX_NUMBER:
            numbers, some = numbered_integers(numbers)
            numbers, above = numbers.astype(np.int64), len(some)
        # numbers that reach beyond their text's end are unused
        numbers[: len(numbers) - 1] = numbers[: len(numbers) - 1] * base + letters[k:]
        numbers = numbers[: len(numbers) - 1]
        above *= base
    codes, kinds = numbered_integers(numbers[places])
    one = np.empty(len(kinds), np.int64)
    one[codes] = places
    return Occurrences(ends, codes, _written(points, one, q))


def _numbered(
    offsets: np.ndarray, points: np.ndarray, q: int, bits: int, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each gram (`number`,), and the position where each distinct gram comes first.

    The characters of a gram, of `bits` bits each, fit one uint64 key.
    """
    codes, keys, firsts = np.empty(number, np.int32), np.empty(number, np.uint64), np.empty(number, np.int64)
    ends, done = np.zeros(len(offsets), np.int64), np.zeros(4, np.int64)
    offsets, points = np.asarray(offsets, np.int64), np.require(points, np.uint32, "W")
    size, number_grams = MIN_SLOTS, splitting_kernels().number_grams
    while not number_grams(
        points, offsets, q, bits, np.full(size, -1, np.int32), keys, firsts, codes, ends, done
    ):
        size *= 4
    return codes, firsts[: done[3]].copy()


def _written(points: np.ndarray, places: np.ndarray, q: int) -> Any:
    """Return Arrow strings of the q characters from each position, in batches to save memory."""
    some = max(1, AT_ONCE // q)
    steps = range(0, len(places), some)
    return pa.concat_arrays([_strings(points[places[at : at + some, None] + np.arange(q)]) for at in steps])


def _strings(points: np.ndarray) -> Any:
    """Return Arrow strings of rows (n, q) of code points."""
    widths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    ends = np.concatenate([[0], np.cumsum(widths.sum(1))])
    data = np.ascontiguousarray(points.astype("<u4")).tobytes().decode("utf-32-le").encode()
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(data)]
    return pa.LargeStringArray.from_buffers(len(points), buffers[1], buffers[2])
