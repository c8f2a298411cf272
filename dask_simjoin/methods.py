"""Method objects with options, which `method=` accepts in place of a name."""

from typing import TYPE_CHECKING, Any

from dask_simjoin.catalog import METHODS, Sweep, Tiles

if TYPE_CHECKING:
    from dask_simjoin.papers.grid import Grid
    from dask_simjoin.papers.lists import KMeans, NestedLoop, ZOrder

__all__ = ["Grid", "KMeans", "NestedLoop", "Sweep", "Tiles", "ZOrder"]

PUBLISHED = {
    "Grid": "grid",
    "KMeans": "kmeans",
    "NestedLoop": "nested_loop",
    "ZOrder": "zorder",
}
"""Class of a published method -> name of the method. The class is loaded when it is
first used.
"""


def __getattr__(name: str) -> Any:
    """Load the class of a published method."""
    if name not in PUBLISHED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return type(METHODS[PUBLISHED[name]])


def __dir__() -> list[str]:
    return sorted(globals().keys() | PUBLISHED.keys())
