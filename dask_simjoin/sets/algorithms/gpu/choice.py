"""Which method "auto" is on a GPU."""

from __future__ import annotations

from dask_simjoin.sets.algorithms.gpu.bitmaps import listed, words_for
from dask_simjoin.sets.algorithms.gpu.operands import Operands
from dask_simjoin.sets.methods import AUTO, METHODS, SetMethod

BITMAP_WORDS = 3e12
"""Words of bitmaps that are compared in a second."""

INDEX_SECONDS = 5e-3
"""What an index takes at least."""


def options_for(join: Operands, method: str | SetMethod) -> SetMethod:
    """Return the options that were asked for; for "auto" those of the bitmaps, or of the index."""
    if not isinstance(method, str):
        return method
    if method != AUTO:
        return METHODS[method]
    seconds = listed(join) * words_for(join.left, join.right) / BITMAP_WORDS
    return METHODS["bitmap" if seconds < INDEX_SECONDS else "ppjoin"]
