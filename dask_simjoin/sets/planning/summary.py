"""What one pass over a partition tells of its sets: rows, ids, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.ids import id_bytes, row_ids, value_bytes
from dask_simjoin.metrics.types import Frame
from dask_simjoin.planning.statistics.sample import Sample, sample_size
from dask_simjoin.planning.statistics.unique_ids import IdSummary, summarise_ids
from dask_simjoin.sets.chunks import checked_presence, read_sets
from dask_simjoin.sets.coded import same_numbers
from dask_simjoin.sets.encode import CodedSets
from dask_simjoin.sets.spec import SetSpec

NUMBERS = 16
"""Numbers of a row of the sample, about: what its size goes by."""


@dataclass(frozen=True, eq=False)
class SetSample:
    """Some rows of a partition, drawn without replacement, and their sets.

    Attributes
    ----------
    drawn : Sample
        Which rows; their coordinate is the size of their set, 0 of empty ones and -1 of none.
    offsets : array (rows + 1,), int64
        Where each row's tokens begin and end.
    tokens : array (tokens,), int64
        Integers, or strings' hashes: alike in all partitions.
    """

    drawn: Sample
    offsets: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True, eq=False)
class SetSummary:
    """See the module's text.

    Attributes
    ----------
    source_rows, missing : int
        Rows of the partition, and how many of them have no set.
    ids : IdSummary or None
        None where rows need no names.
    id_bytes, kept_bytes : float
        Memory of one row's id, and of its columns that the result keeps.
    sample : SetSample
    """

    source_rows: int
    missing: int
    ids: IdSummary | None
    id_bytes: float
    kept_bytes: float
    sample: SetSample

    @property
    def nbytes(self) -> int:
        """Memory of its sample, which is most of it."""
        return self.sample.tokens.nbytes + 3 * self.sample.offsets.nbytes


def summarise_sets(frame: Frame, number: int, spec: SetSpec, with_ids: bool, partitions: int,
                   seed: int = 0) -> SetSummary:  # fmt: skip
    """Summary of one partition, of so many.

    `number`: the partition's; `with_ids`: the result names rows, so their ids must be unique; `seed`: what
    tells tables apart, as of the same rows other samples must be drawn.
    """
    rows = len(frame)
    where = number if partitions > 1 else None
    present = checked_presence(frame, spec, where)
    names = row_ids(frame, spec.id, spec.id_dtype) if with_ids else None
    size = sample_size(rows, NUMBERS, partitions)
    places = np.arange(rows)
    if size < rows:
        # the number too: of partitions that are alike, other rows must be drawn in each
        random = np.random.default_rng((rows, number, seed))
        places = np.sort(random.choice(rows, size, replace=False, shuffle=False))
    some = frame[list(spec.on)] if size == rows else frame[list(spec.on)].iloc[places]
    read = read_sets(some, spec, where, named=False)
    sets: CodedSets = read["sets"]
    sizes = np.diff(sets["offsets"]).astype(np.float64)
    if read["missing"] is not None:
        sizes[read["missing"]] = -1
    return SetSummary(
        rows,
        int((~present).sum()),
        None if names is None else summarise_ids(names, spec.id),
        8.0 if names is None else id_bytes(names),
        sum(value_bytes(frame[name]) for name in spec.keep),
        SetSample(
            Sample(rows, places, sizes[:, None]),
            sets["offsets"],
            same_numbers(read["vocabulary"]["tokens"])[sets["codes"]],
        ),
    )
