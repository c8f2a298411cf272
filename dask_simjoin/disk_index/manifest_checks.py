"""Check that the values of a manifest make sense.

Other programs can write manifests, too, whose checksums are right. Without these
checks, impossible values would lead to wrong counts, endless loops or errors that name
no file.
"""

from __future__ import annotations

import datetime
import math
import re

import numpy as np

from dask_simjoin.disk_index.types import (
    DeletedFile,
    KeyFile,
    Manifest,
    MarkFile,
    Options,
    PairFile,
    RowFile,
)
from dask_simjoin.request.options import MAX_WHOLE
from dask_simjoin.request.units import check_eps, check_metric

KINDS = ("index", "update", "restore", "rewrite")

MAX_ROWS = 1 << 40
"""A single file has at most this many rows."""

LARGEST_GROUP = 1 << 16
"""Largest number of rows of a row group."""

POLICIES = ("auto", "always", "never")

CONTENT = re.compile(r"[0-9]{1,19}:[0-9a-f]{16} [0-9]{1,19}:[0-9a-f]{16}")
"""Text of a `BatchContent`."""


def check_manifest(manifest: Manifest) -> None:
    """Raise `ValueError` if a value of a manifest is impossible. The types of all
    values are right already.
    """
    version = manifest.version
    _check_range("version", version, 1, MAX_WHOLE)
    if manifest.parent is not None and not 1 <= manifest.parent < version:
        raise ValueError(
            f"its 'parent' is {_shown(manifest.parent)}, but a parent is an earlier "
            f"version than {version}"
        )
    if manifest.kind not in KINDS:
        raise ValueError(f"its 'kind' is {manifest.kind[:80]!r}")
    datetime.datetime.fromisoformat(manifest.time)
    _check_files(manifest)
    _check_counts(manifest)
    for name, made in manifest.batches.items():
        _check_range(f"version of batch {name[:80]!r}", made, 1, version)
    if not all(map(CONTENT.fullmatch, manifest.contents.values())):
        raise ValueError("its 'contents' are not numbers of rows and digests")
    for name, count in manifest.counters.items():
        if not 0 <= count < math.inf:
            raise ValueError(f"its counter {name[:80]!r} is {count!r}")
    check_options(manifest.options)


def _check_files(manifest: Manifest) -> None:
    pairs: list[PairFile | MarkFile] = [*manifest.pairs.files, *manifest.pairs.marks]
    dated: list[DeletedFile | PairFile | MarkFile] = [*manifest.deleted, *pairs]
    sized: list[RowFile | KeyFile] = [*manifest.files, *manifest.keys]
    for what, names in (
        ("rows", [one.name for one in manifest.files]),
        ("deletions", [one.name for one in manifest.deleted]),
        ("keys", [one.name for one in manifest.keys]),
        ("pairs", [one.name for one in pairs]),
        ("earlier batches", manifest.earlier),
    ):
        if len(set(names)) < len(names):
            raise ValueError(f"it lists a file of {what} twice")
    for one in dated:
        _check_range(f"version of {one.name}", one.version, 1, manifest.version)
    for file in (*sized, *dated):
        _check_range(f"number of rows of {file.name}", file.rows, 0, MAX_ROWS)
    for keys in manifest.keys:
        _check_range(f"smallest key of {keys.name}", keys.low, 0, keys.high)
        _check_range(
            f"largest key of {keys.name}", keys.high, 0, np.iinfo(np.uint64).max
        )


def _check_counts(manifest: Manifest) -> None:
    there = sum(one.rows for one in manifest.files)
    # deletion files may also list rows of files that are not in use any more
    deleted = sum(one.rows for one in manifest.deleted)
    _check_range("number of rows", manifest.rows, max(0, there - deleted), there)
    _check_range("'next_seq'", manifest.next_seq, manifest.rows, MAX_WHOLE)


def check_options(options: Options) -> None:
    """Raise `ValueError` if an option of an index has an impossible value."""
    metric, _ = check_metric(options.metric, options.p)
    check_eps(options.eps, "eps")
    columns = len(options.on)
    if not columns or len(set(options.on)) < columns or (options.lists and columns > 1):
        raise ValueError(f"its columns 'on' are {list(options.on)[:9]}")
    if options.dims < 1 or (not options.lists and options.dims != metric.dims(columns)):
        raise ValueError(
            f"its 'dims' is {_shown(options.dims)} for {columns} columns and "
            f"metric {metric.name!r}"
        )
    if len(options.names) != 2 * len(options.keep):
        raise ValueError("its 'names' are not two for each column of 'keep'")
    if len(set(options.cut)) < len(options.cut) or not all(
        0 <= one < options.dims for one in options.cut
    ):
        raise ValueError(f"its 'cut' is {list(options.cut)[:9]}")
    _check_range("'group'", options.group, 1, LARGEST_GROUP)
    policy = options.recluster
    if policy not in POLICIES and (isinstance(policy, str) or not policy >= 1):
        raise ValueError(f"its 'recluster' is {str(policy)[:80]!r}")
    if not 0 < options.unit_size < math.inf:
        raise ValueError(f"its 'unit_size' is {options.unit_size!r}")


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"its {name} is {_shown(value)}, not from {low} to {high}")


def _shown(number: int) -> str:
    """Return a number as text. Python refuses to print very long numbers."""
    return str(number) if abs(number) < 1 << 99 else "out of range"
