"""Verbs of plain frames, whose kernels are compiled before anything is measured."""

from __future__ import annotations

import os

from benchmarks.harness.worker import THREADS

# set before the imports: libraries count cores when they are imported
os.environ.update(dict.fromkeys(THREADS, "1"))

import time

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor .simjoin)
from benchmarks.harness.points import PLACES, ROWS


class Points:
    """Rows of `benchmarks.cpu.joins`, a tenth of the points each."""

    params = ("unif2d", "unif6d", "expo16d", "expo64d")
    param_names = ("row",)
    # CPU time, because other work on the machine disturbs it less
    timer = time.process_time
    timeout = 300

    def setup(self, row: str) -> None:
        """Make the frame, and compile."""
        asked = ROWS[row].quick()
        x = asked.points()
        self.eps, self.frame = (
            asked.eps,
            pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])]),
        )
        self.time_self_join(row)
        self.time_count_pairs(row)
        self.time_knn_join(row)

    def time_self_join(self, row: str) -> None:
        """Find pairs."""
        self.frame.simjoin.self_join(self.eps)

    def time_count_pairs(self, row: str) -> None:
        """Count pairs."""
        self.frame.simjoin.count_pairs(self.eps)

    def time_knn_join(self, row: str) -> None:
        """Find the ten nearest rows."""
        self.frame.simjoin.knn_join(k=10)

    def peakmem_self_join(self, row: str) -> None:
        """Measure the memory of the process, its libraries included."""
        self.frame.simjoin.self_join(self.eps)


class Places:
    """The places of the examples: on the sphere, as clusters, and by their names."""

    timer = time.process_time
    timeout = 300

    def setup(self) -> None:
        """Read the table, and compile."""
        self.frame = pd.read_parquet(PLACES)
        self.how = {"on": ["latitude", "longitude"], "metric": "haversine"}
        self.time_haversine()
        self.time_dbscan()
        self.time_sets()

    def time_haversine(self) -> None:
        """Find pairs within two kilometers."""
        self.frame.simjoin.self_join(2_000, id="geonameid", **self.how)

    def time_dbscan(self) -> None:
        """Find clusters."""
        self.frame.simjoin.dbscan(10_000, min_samples=8, **self.how)

    def time_sets(self) -> None:
        """Find names that have most pairs of letters in common."""
        self.frame.simjoin.count_set_pairs("name", 0.8, tokenizer=("qgrams", 2))


class Embeddings:
    """Vectors by the cosine distance."""

    timer = time.process_time
    timeout = 300

    def setup(self) -> None:
        """Make the vectors, and compile."""
        x = np.random.default_rng(0).normal(size=(6_000, 384)).astype(np.float32)
        x[3_000:] = x[:3_000] + 0.2 * x[3_000:]
        self.frame = pd.DataFrame({"embedding": list(x)})
        self.time_cosine()

    def time_cosine(self) -> None:
        """Find pairs within 0.05."""
        self.frame.simjoin.self_join(0.05, on="embedding", metric="cosine")
