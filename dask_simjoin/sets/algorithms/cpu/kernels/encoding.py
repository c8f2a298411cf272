"""Put the tokens of rows in order, and equal sets together: what is around the sorts."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.types import Array


@kernel
def take_each_once(offsets: Array, codes: Array, seen: Array, out_offsets: Array, out: Array,
                   frequency: Array) -> int:  # fmt: skip
    """Copy each row's codes without repetitions, and count in how many rows each is; how many were copied.

    `seen`: an array for each code, of zeros.
    """
    done = 0
    for row in range(len(offsets) - 1):
        out_offsets[row] = done
        for k in range(offsets[row], offsets[row + 1]):
            code = codes[k]
            if seen[code] != row + 1:
                seen[code] = row + 1
                frequency[code] += 1
                out[done] = code
                done += 1
    out_offsets[len(offsets) - 1] = done
    return done


@kernel
def put_in_order(offsets: Array, codes: Array, rank: Array, starts: Array, cursor: Array, rows: Array,
                 out: Array) -> None:  # fmt: skip
    """Write each row's tokens, the ranks of its codes, ascending: by token, then back by row.

    `starts`: (tokens + 1,) int64 zeros; `cursor`: (rows,) int64; `rows`: (codes,) int32.
    """
    for k in range(len(codes)):
        starts[rank[codes[k]] + 1] += 1
    for t in range(len(starts) - 1):
        starts[t + 1] += starts[t]
    for row in range(len(cursor)):
        cursor[row] = offsets[row]
        for k in range(offsets[row], offsets[row + 1]):
            token = rank[codes[k]]
            rows[starts[token]] = row
            starts[token] += 1
    # each entry of `starts` is now where the next token's rows begin
    first = 0
    for token in range(len(starts) - 1):
        for place in range(first, starts[token]):
            row = rows[place]
            out[cursor[row]] = token
            cursor[row] += 1
        first = starts[token]


@kernel
def pack(offsets: Array, tokens: Array, chosen: Array, bits: int, number: int, keys: Array) -> None:
    """Make keys that order some rows by size, then by their first tokens, so many of so many bits."""
    for n in range(len(chosen)):
        first, stop = offsets[chosen[n]], offsets[chosen[n] + 1]
        key = stop - first
        for k in range(number):
            key = (key << bits) | (np.int64(tokens[first + k]) if first + k < stop else np.int64(0))
        keys[n] = key


@device_function
def compare(offsets: Array, tokens: Array, one: int, other: int, first: int) -> int:
    """Compare two rows of one size from a token on: below 0, 0, or above 0."""
    a, b = offsets[one], offsets[other]
    for k in range(first, offsets[one + 1] - a):
        if tokens[a + k] != tokens[b + k]:
            return int(tokens[a + k]) - int(tokens[b + k])
    return 0


@kernel
def settle(offsets: Array, tokens: Array, keys: Array, number: int, order: Array, room: Array,
           starts: Array) -> int:  # fmt: skip
    """Put rows of equal keys in order, and note where each distinct set's rows begin; how many there are.

    `order`: rows by their keys; those of equal sets stay in their order.
    """
    found, n = 0, len(order)
    begin = 0
    while begin < n:
        end = begin + 1
        while end < n and keys[end] == keys[begin]:
            end += 1
        if offsets[order[begin] + 1] - offsets[order[begin]] > number:
            for k in range(begin + 1, end):
                if compare(offsets, tokens, order[begin], order[k], number) != 0:
                    _merge_sorted(offsets, tokens, number, order, room, begin, end)
                    break
            starts[found] = begin
            found += 1
            for k in range(begin + 1, end):
                if compare(offsets, tokens, order[k - 1], order[k], number) != 0:
                    starts[found] = k
                    found += 1
        else:
            starts[found] = begin
            found += 1
        begin = end
    starts[found] = n
    return found


@device_function
def _merge_sorted(offsets: Array, tokens: Array, number: int, order: Array, room: Array, begin: int,
                  end: int) -> None:  # fmt: skip
    """Sort a part of `order` by the rows' tokens, equal ones in their order."""
    width = 1
    while width < end - begin:
        for left in range(begin, end, 2 * width):
            middle, right = min(left + width, end), min(left + 2 * width, end)
            i, j = left, middle
            for k in range(left, right):
                if j >= right or (i < middle and compare(offsets, tokens, order[i], order[j], number) <= 0):
                    room[k] = order[i]
                    i += 1
                else:
                    room[k] = order[j]
                    j += 1
        for k in range(begin, end):
            order[k] = room[k]
        width *= 2


@kernel
def gather_sets(offsets: Array, tokens: Array, chosen: Array, out_offsets: Array, out: Array) -> None:
    """Copy the tokens of some rows, one after the other."""
    done = 0
    for n in range(len(chosen)):
        out_offsets[n] = done
        for k in range(offsets[chosen[n]], offsets[chosen[n] + 1]):
            out[done] = tokens[k]
            done += 1
    out_offsets[len(chosen)] = done


STEP, FIRST, SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
"""The numbers of splitmix64."""


@kernel
def hash_sets(offsets: Array, tokens: Array, out: Array) -> None:
    """Hash each row's tokens, in their order."""
    for row in range(len(offsets) - 1):
        state = np.uint64(0)
        for k in range(offsets[row], offsets[row + 1]):
            state = (state ^ np.uint64(tokens[k])) + STEP
            state = (state ^ (state >> np.uint64(30))) * FIRST
            state = (state ^ (state >> np.uint64(27))) * SECOND
            state = state ^ (state >> np.uint64(31))
        out[row] = state
