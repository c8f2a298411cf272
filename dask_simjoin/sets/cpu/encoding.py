"""Assign numbers to the tokens of texts, and sort the tokens within rows."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sizes import NUMBER_BYTES


@kernel
def take_each_once(
    offsets: Array,
    codes: Array,
    last_row: Array,
    out_offsets: Array,
    out: Array,
    frequency: Array,
) -> int:
    """Remove repeated codes from each row, count the rows that have each code, and
    return how many codes remain.

    `last_row`: scratch, with one zero per code.
    """
    done = 0
    for row in range(len(offsets) - 1):
        out_offsets[row] = done
        for k in range(offsets[row], offsets[row + 1]):
            code = codes[k]
            if last_row[code] != row + 1:
                last_row[code] = row + 1
                frequency[code] += 1
                out[done] = code
                done += 1
    out_offsets[len(offsets) - 1] = done
    return done


@kernel
def put_in_order(
    offsets: Array,
    codes: Array,
    rank: Array,
    starts: Array,
    cursor: Array,
    rows: Array,
    out: Array,
) -> None:
    """Replace the codes in each row by their ranks, in ascending order.

    This is a counting sort. It lists the rows of each token. Then it goes through the
    tokens in ascending order, and appends each one to its rows. Scratch: `starts`
    (tokens + 1,), int64 zeros; `cursor` (rows,), int64; `rows` (codes,), int32.
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
    # from here on, `starts[token]` is the end of the token's rows
    first = 0
    for token in range(len(starts) - 1):
        for place in range(first, starts[token]):
            row = rows[place]
            out[cursor[row]] = token
            cursor[row] += 1
        first = starts[token]


@kernel
def pack(
    offsets: Array, tokens: Array, chosen: Array, bits: int, number: int, keys: Array
) -> None:
    """Make keys to sort sets by. A key has the size of a set, then its first `number`
    tokens with `bits` bits each.
    """
    for n in range(len(chosen)):
        first, stop = offsets[chosen[n]], offsets[chosen[n] + 1]
        key = stop - first
        for k in range(number):
            key = (key << bits) | (
                np.int64(tokens[first + k]) if first + k < stop else np.int64(0)
            )
        keys[n] = key


@device_function
def compare(offsets: Array, tokens: Array, one: int, other: int, first: int) -> int:
    """Compare two sets of equal size by their tokens from `first` on. Return a number
    below, equal to, or above 0.
    """
    a, b = offsets[one], offsets[other]
    for k in range(first, offsets[one + 1] - a):
        if tokens[a + k] != tokens[b + k]:
            return int(tokens[a + k]) - int(tokens[b + k])
    return 0


@kernel
def settle(
    offsets: Array,
    tokens: Array,
    keys: Array,
    number: int,
    order: Array,
    scratch: Array,
    starts: Array,
) -> int:
    """Sort rows that have equal keys by their remaining tokens. Return the number of
    distinct sets.

    `order`: the rows, sorted by key. Rows with equal sets keep their order. `starts`:
    output; for each distinct set, where its rows begin in `order`.
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
                    _merge_sorted(offsets, tokens, number, order, scratch, begin, end)
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
def _merge_sorted(
    offsets: Array,
    tokens: Array,
    number: int,
    order: Array,
    scratch: Array,
    begin: int,
    end: int,
) -> None:
    """Sort a range of `order` by the tokens of its rows. Rows with equal sets keep
    their order.
    """
    width = 1
    while width < end - begin:
        for left in range(begin, end, 2 * width):
            middle, right = min(left + width, end), min(left + 2 * width, end)
            i, j = left, middle
            for k in range(left, right):
                if j >= right or (
                    i < middle
                    and compare(offsets, tokens, order[i], order[j], number) <= 0
                ):
                    scratch[k] = order[i]
                    i += 1
                else:
                    scratch[k] = order[j]
                    j += 1
        for k in range(begin, end):
            order[k] = scratch[k]
        width *= 2


@kernel
def gather_sets(
    offsets: Array, tokens: Array, chosen: Array, out_offsets: Array, out: Array
) -> None:
    done = 0
    for n in range(len(chosen)):
        out_offsets[n] = done
        for k in range(offsets[chosen[n]], offsets[chosen[n] + 1]):
            out[done] = tokens[k]
            done += 1
    out_offsets[len(chosen)] = done


SPLITMIX_STEP, SPLITMIX_FIRST, SPLITMIX_SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
"""Constants of the hash function splitmix64."""


@kernel
def hash_sets(offsets: Array, tokens: Array, out: Array) -> None:
    for row in range(len(offsets) - 1):
        state = np.uint64(0)
        for k in range(offsets[row], offsets[row + 1]):
            state = (state ^ np.uint64(tokens[k])) + SPLITMIX_STEP
            state = (state ^ (state >> np.uint64(30))) * SPLITMIX_FIRST
            state = (state ^ (state >> np.uint64(27))) * SPLITMIX_SECOND
            state = state ^ (state >> np.uint64(31))
        out[row] = state


TOKEN, SEPARATOR, LEAD = 0, 1, 2
"""Kinds of bytes: part of a token; separator of tokens; first byte of a character that
may be white space.
"""


@device_function
def space_bytes(data: Array, at: int, end: int) -> int:
    """Return the size of the white space character that begins with this byte above
    127; 0: none.
    """
    lead, after = data[at], data[at + 1] if at + 1 < end else 0
    if lead == 0xC2:
        return 2 if after == 0x85 or after == 0xA0 else 0
    last = data[at + 2] if at + 2 < end else 0
    if lead == 0xE1:
        return 3 if after == 0x9A and last == 0x80 else 0
    if lead == 0xE2 and after == 0x80:
        return 3 if last <= 0x8A or last == 0xA8 or last == 0xA9 or last == 0xAF else 0
    if lead == 0xE2:
        return 3 if after == 0x81 and last == 0x9F else 0
    return 3 if after == 0x80 and last == 0x80 else 0


@device_function
def mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    """Combine a hash with the next word. For equal hashes `state`, different words give
    different results.
    """
    product = (state ^ word) * SPLITMIX_STEP
    return product ^ (product >> np.uint64(32))


@device_function
def put(slots: Array, key: np.uint64, code: int) -> None:
    """Store `code` in the slot that the hash `key` selects, or in the next free slot.

    `len(slots)` is a power of two.
    """
    mask = np.uint64(len(slots) - 1)
    place = key & mask
    while slots[place] >= 0:
        place = (place + np.uint64(1)) & mask
    slots[place] = code


@inline_source
def look_up(
    hashed: Array, some: int, heads: Array, slots: Array, keys: Array, pool_ends: Array
) -> None:
    """Write to `heads` the numbers of the first `some` tokens, if they are in the slots
    that their hashes select; else -1.
    """
    mask = np.uint64(len(slots) - 1)
    for k in range(some):
        heads[k, 2] = slots[hashed[k] & mask]
    for k in range(some):
        one = heads[k, 2]
        if one >= 0 and (
            keys[one] != hashed[k] or pool_ends[one + 1] - pool_ends[one] != heads[k, 1]
        ):
            # the slot holds another token
            heads[k, 2] = -1


@kernel
def number_tokens(
    data: Array,
    ends: Array,
    kinds: Array,
    slots: Array,
    keys: Array,
    pool: Array,
    pool_ends: Array,
    codes: Array,
    offsets: Array,
    heads: Array,
    hashed: Array,
    done: Array,
) -> bool:
    """Continue to split texts. Return whether all texts are split; if not, call again
    with more `slots`.

    Tokens are looked up in groups. The lookups of a group are independent, so their
    waits for memory overlap.

    `data`: the texts as UTF-8, uint8. `ends` (texts + 1,): bounds of the texts in
    `data`. `kinds` (256,): the kind of each byte. `slots`, int32: the hash table, all
    -1 at first. Its length is a power of two, and at least twice the number of distinct
    tokens. `heads` (group, 3), int64, and `hashed` (group,), uint64: scratch.

    Output for distinct tokens: their hashes `keys`, their bytes `pool`, and the bounds
    `pool_ends` in it. Output for texts: token numbers `codes`, and bounds `offsets`.
    Element 0 of `pool_ends` and of `offsets` must be 0 and is not written. `done` (4,),
    int64: number of split texts, next byte, number of tokens, number of distinct
    tokens.
    """
    text, at, number, differ = done[0], done[1], done[2], done[3]
    mask = np.uint64(len(slots) - 1)
    # such a table does not fit in the cache of a core. If all slots of a group are
    # read before any token is compared, the waits for memory overlap
    far = len(slots) >= 2**17
    for code in range(differ):
        put(slots, keys[code], code)
    while text < len(ends) - 1:
        end = ends[text + 1]
        while at < end:
            some = 0
            while at < end and some < hashed.size:
                kind = kinds[data[at]]
                if kind != TOKEN:
                    wide = space_bytes(data, at, end) if kind == LEAD else 1
                    if wide:
                        at += wide
                        continue
                first, key, word = at, np.uint64(0), np.uint64(0)
                while at < end:
                    byte = data[at]
                    kind = kinds[byte]
                    if kind != TOKEN and (
                        kind == SEPARATOR or space_bytes(data, at, end)
                    ):
                        break
                    word = (word << np.uint64(8)) | np.uint64(byte)
                    at += 1
                    if (at - first) % NUMBER_BYTES == 0:
                        key, word = mixed(key, word), np.uint64(0)
                size = at - first
                key = mixed(key ^ np.uint64(size), word)
                hashed[some], heads[some, 0], heads[some, 1] = key, first, size
                if not far:
                    heads[some, 2] = slots[key & mask]
                some += 1
            if far:
                look_up(hashed, some, heads, slots, keys, pool_ends)
            for k in range(some):
                key, size, code = hashed[k], heads[k, 1], heads[k, 2]
                # two tokens of at most one word with equal hashes and sizes are equal,
                # so their bytes need not be compared
                known = code >= 0 and keys[code] == key and size <= NUMBER_BYTES
                if not (known and pool_ends[code + 1] - pool_ends[code] == size):
                    first, place = heads[k, 0], key & mask
                    code = int(slots[place])
                    while code >= 0:
                        if (
                            keys[code] == key
                            and pool_ends[code + 1] - pool_ends[code] == size
                        ):
                            begin = pool_ends[code]
                            same = size if size <= NUMBER_BYTES else 0
                            while (
                                same < size and pool[begin + same] == data[first + same]
                            ):
                                same += 1
                            if same == size:
                                break
                        place = (place + np.uint64(1)) & mask
                        code = int(slots[place])
                    if code < 0:
                        if 2 * differ >= len(slots):
                            done[0], done[1], done[2], done[3] = (
                                text,
                                first,
                                number,
                                differ,
                            )
                            return False
                        code = differ
                        slots[place], keys[code] = code, key
                        begin = pool_ends[code]
                        for byte in range(size):
                            pool[begin + byte] = data[first + byte]
                        pool_ends[code + 1] = begin + size
                        differ += 1
                codes[number] = code
                number += 1
        text += 1
        offsets[text] = number
    done[0], done[1], done[2], done[3] = text, at, number, differ
    return True


@kernel
def number_grams(
    points: Array,
    offsets: Array,
    q: int,
    bits: int,
    slots: Array,
    keys: Array,
    firsts: Array,
    codes: Array,
    ends: Array,
    done: Array,
) -> bool:
    """Continue to assign numbers to the q-grams of texts. Return whether all texts are
    done: see `number_tokens`.

    `points`, uint32: the characters of the texts, each below ``2**bits``. All q
    characters together have at most 63 bits. `offsets` (texts + 1,): bounds of the
    texts in `points`.

    Output for distinct q-grams: their characters `keys`, and the positions `firsts`
    where each occurs first. Output for texts: q-gram numbers `codes`, and bounds
    `ends`; element 0 of `ends` is not written. `done` (4,), int64: number of finished
    texts, next character, number of q-grams, number of distinct q-grams.
    """
    text, at, number, differ = done[0], done[1], done[2], done[3]
    mask, width = np.uint64(len(slots) - 1), np.uint64(bits)
    whole = (np.uint64(1) << np.uint64(q * bits)) - np.uint64(1)
    for code in range(differ):
        put(slots, mixed(keys[code], np.uint64(0)), code)
    while text < len(offsets) - 1:
        last = offsets[text + 1] - q
        at = max(at, offsets[text])
        key = np.uint64(0)
        if at <= last:
            for k in range(at, at + q - 1):
                key = (key << width) | np.uint64(points[k])
        while at <= last:
            key = ((key << width) | np.uint64(points[at + q - 1])) & whole
            place = mixed(key, np.uint64(0)) & mask
            code = slots[place]
            while code >= 0 and keys[code] != key:
                place = (place + np.uint64(1)) & mask
                code = slots[place]
            if code < 0:
                if 2 * differ >= len(slots):
                    done[0], done[1], done[2], done[3] = text, at, number, differ
                    return False
                code = differ
                slots[place], keys[code], firsts[code] = code, key, at
                differ += 1
            codes[number] = code
            number += 1
            at += 1
        text += 1
        ends[text] = number
    done[0], done[1], done[2], done[3] = text, at, number, differ
    return True
