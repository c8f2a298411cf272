"""Compare all pairs of sets of admissible sizes."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.sets.algorithms.cpu.needs import beyond, need


@kernel
def join(q, d, same, limits, left, right, overlaps, limit, start, q_counts, d_counts, tally):  # type: ignore[no-untyped-def]
    """Join two blocks, or one with itself: write pairs, or add up counts, as there are arrays for them.

    Returns how many pairs it wrote, -1 where there was no room for all, and the set of `d` to go on with.
    """
    q_offsets, q_tokens, q_weights = q
    d_offsets, d_tokens, d_weights = d
    writing, counting = len(left) > 0, len(q_counts) > 0
    done = 0
    for j in range(start, len(d_weights)):
        b = d_offsets[j + 1] - d_offsets[j]
        for i in range(j if same else len(q_weights)):
            a = q_offsets[i + 1] - q_offsets[i]
            least = need(limits, a, b)
            if least > min(a, b):
                continue
            tally[1] += 1
            x, y, common = q_offsets[i], d_offsets[j], 0
            while x < q_offsets[i + 1] and y < d_offsets[j + 1]:
                s, t = q_tokens[x], d_tokens[y]
                common += s == t
                x += s <= t
                y += t <= s
            if least <= common < beyond(limits, a, b):
                tally[4] += 1
                tally[0] += q_weights[i] * d_weights[j]
                if counting:
                    q_counts[i] += d_weights[j]
                    d_counts[j] += q_weights[i]
                if writing:
                    if done == len(left):
                        return -1, j
                    left[done], right[done], overlaps[done] = i, j, common
                    done += 1
        if 0 <= limit <= done:
            return done, (j + 1 if j + 1 < len(d_weights) else -1)
    tally[2] = tally[3] = tally[1]
    return done, -1
