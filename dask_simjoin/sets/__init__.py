"""Joins of sets of tokens by their similarity: tokenizers, and methods with their options."""

from dask_simjoin.sets.methods import Bitmap
from dask_simjoin.sets.tokens import Custom, Delimiter, QGrams, Whitespace, Words

__all__ = ["Bitmap", "Custom", "Delimiter", "QGrams", "Whitespace", "Words"]
