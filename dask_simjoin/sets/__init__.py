"""Joins of sets of tokens by their similarity: tokenizers, and methods with their
options.
"""

from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin
from dask_simjoin.sets.tokens import Custom, Delimiter, QGrams, Whitespace, Words

__all__ = [
    "AllPairs",
    "Bitmap",
    "Custom",
    "Delimiter",
    "GroupJoin",
    "PPJoin",
    "QGrams",
    "Whitespace",
    "Words",
]
