"""Nearest neighbours on the GPU: by joins."""

from dask_simjoin.backends.gpu import BACKEND
from dask_simjoin.backends.joined_nearest import JoinSearcher

SEARCHER = JoinSearcher(BACKEND)
