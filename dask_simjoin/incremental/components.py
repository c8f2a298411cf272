"""Groups of rows that pairs connect, which are told on from version to version.

A group is named by its row of the smallest number.  So it keeps its name as long as that row stays in it: it
takes the name of an older group that it unites with, and what is parted from that row gets another one.

Pairs that came unite groups.  Only groups that lost pairs are looked through again: their rows are read, and
joined with each other.  What was told of a version is kept in a file beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.cluster.algorithms.components import Edges, spanning_forest
from dask_simjoin.engine.base import frames_for, host_joiner, joiner_for
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import VersionGoneError
from dask_simjoin.incremental.blocks import Blocks, all_blocks, cut_parts, sizes
from dask_simjoin.incremental.changes import Changes
from dask_simjoin.incremental.compare import Comparison, pairs_within
from dask_simjoin.incremental.files import new_name, write_new
from dask_simjoin.incremental.lazy import lazy_pairs, spec_of
from dask_simjoin.incremental.loaded import Loaded, rows_of
from dask_simjoin.incremental.rows import read_part, read_tables
from dask_simjoin.incremental.schema import as_frame
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import SEQ, Snapshot
from dask_simjoin.metrics.types import Frame
