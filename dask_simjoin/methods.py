"""Methods as objects: what `method=` takes instead of a name, with options of their own."""

from dask_simjoin.engine.methods import Sweep, Tiles
from dask_simjoin.papers.grid import Grid
from dask_simjoin.papers.lists import KMeans, NestedLoop, ZOrder

__all__ = ["Grid", "KMeans", "NestedLoop", "Sweep", "Tiles", "ZOrder"]
