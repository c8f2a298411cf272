"""Methods as objects: what `method=` takes instead of a name, with options of their own."""

from dask_simjoin.engine.grid import Grid
from dask_simjoin.engine.kmeans import KMeans
from dask_simjoin.engine.methods import Sweep, Tiles
from dask_simjoin.engine.nested import NestedLoop
from dask_simjoin.engine.zorder import ZOrder

__all__ = ["Grid", "KMeans", "NestedLoop", "Sweep", "Tiles", "ZOrder"]
