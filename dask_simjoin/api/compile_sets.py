"""Compile what verbs of sets need: run each on a few texts, by every way to find pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.engine.base import HOME
from dask_simjoin.metrics.types import Frame
from dask_simjoin.sets.methods import CHOICES

SET_VERBS = ("set_self_join", "set_join", "set_neighbor_counts", "count_set_pairs", "set_near_duplicated")

ROWS, TOKENS = 1500, 40
"""So many that a method is chosen by what a sample tells."""


def compile_sets(verbs: Sequence[str], backend: str) -> list[tuple[str, float]]:
    """Run verbs; return them with the seconds that each took."""
    frame = texts(backend)
    lazy = dd.from_pandas(frame, npartitions=2)
    done = []
    for verb in verbs:
        begin = time.perf_counter()
        for method in CHOICES:
            run_on_texts(verb, frame, method=method)
        with dask.config.set(scheduler="synchronous"):
            dask.compute(run_on_texts(verb, lazy))
        done.append((verb, time.perf_counter() - begin))
    return done


def texts(backend: str) -> Frame:
    """Make rows of a few words, some of which are alike."""
    rng = np.random.default_rng(0)
    words = [[f"w{k}" for k in row] for row in rng.integers(0, TOKENS, (ROWS, 6)).tolist()]
    frame = pd.DataFrame({"text": pd.Series([" ".join(row) for row in words], dtype="str")})
    return frame if backend == HOME else dd.from_pandas(frame, npartitions=1).to_backend(backend).compute()


def run_on_texts(verb: str, frame: Frame, **more: Any) -> Any:
    """Call a verb on rows of `texts`."""
    options: dict[str, Any] = {"on": "text", "threshold": 0.7, "tokenizer": "whitespace"}
    if verb == "set_join":
        options["other"] = frame
    return VERBS[verb].function(frame, **options, **more)
