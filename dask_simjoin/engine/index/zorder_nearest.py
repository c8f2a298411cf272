"""The layout of searches for nearest neighbours in lists in Z-order: see `dask_simjoin.engine.zorder`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.index.zorder import ZOrderLayout, make_zorder_layout
from dask_simjoin.engine.zorder import ZOrder
from dask_simjoin.metrics.norms import Norm

LISTS = 5
"""Lists of which as many are made as there are dimensions and one more, at most, unless a number is given."""


@dataclass(frozen=True)
class ZOrderSearch:
    """Constants of one search.

    Attributes
    ----------
    keys : ZOrderLayout
        How rows are sorted, of no threshold.
    approximate : bool
        Whether only rows next to a query in each list are looked at.
    """

    keys: ZOrderLayout
    approximate: bool

    @property
    def dims(self) -> int:
        """Dimensions of points."""
        return self.keys.dims

    @property
    def norm(self) -> Norm:
        """Of what is computed."""
        return self.keys.norm

    @property
    def method(self) -> str:
        """The method's name."""
        return "zorder"

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        words = self.keys.in_words(names).partition("; walk")[0]
        return f"{words}; {'neighbours in them only' if self.approximate else 'then intervals'}"


def make_zorder_search(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, norm: Norm,
                       options: ZOrder, approximate: bool) -> ZOrderSearch:  # fmt: skip
    """Choose keys and lists for points within the box [lower, upper], of this variance (d,)."""
    if options.lists == "auto":
        dims = len(lower)
        options = replace(options, lists=min(LISTS, dims + 1 + dims % 2))
    return ZOrderSearch(make_zorder_layout(options, lower, upper, variance, 0.0, norm), approximate)
