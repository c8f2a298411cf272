"""Rows in files as an index writes them, without the index: tests say which rows came,
went and stayed.
"""

import hashlib
import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from dask_simjoin.disk_index.files import FOLDERS
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.rows import write_deleted, write_example, write_rows
from dask_simjoin.disk_index.schema import schema_of
from dask_simjoin.disk_index.types import (
    SEQ,
    VERSION,
    Delta,
    Options,
    RowGroups,
    Snapshot,
)

KEPT = "kept"


class Stored:
    """Row files of versions 1 and 2 in a folder."""

    def __init__(self, root, x, eps, metric="euclidean", p=2, dims=None, group=64):
        """`x`: the rows (n, columns) of version 1, numbered as they come."""
        for name in FOLDERS:
            (root / name).mkdir()
        self._own = Transaction(root)
        self._own.lease.touch()
        self.root, self.on = root, tuple(f"c{k}" for k in range(x.shape[1]))
        dims = dims or x.shape[1]
        rows = self.frame(x, np.arange(len(x)), 1)
        self.schema = schema_of(rows.drop(columns=[SEQ, VERSION]))
        self.options = Options(
            eps=eps,
            on=self.on,
            id="id",
            metric=metric,
            p=p,
            dims=dims,
            lists=False,
            keep=(KEPT,),
            names=("kept_left", "kept_right"),
            dropna=False,
            return_distance=False,
            cut=tuple(reversed(range(min(dims, 16)))),
            group=group,
            recluster="auto",
            example=write_example(self._own, self.schema),
        )
        self.files, self.groups = [], []
        self._write(rows)
        self.rows, self.gone = len(x), np.zeros(0, np.int64)

    def frame(self, x, seq, version):
        """Return rows with some numbers; ids fall as numbers grow."""
        columns = {SEQ: seq, VERSION: np.full(len(x), version), "id": 10**6 - 7 * seq}
        named = dict(zip(self.on, np.asarray(x, np.float64).T, strict=True))
        return pd.DataFrame(columns | named | {KEPT: seq % 5})

    def _write(self, rows):
        written = write_rows(rows, self.options, self._own, self.schema, "pandas")
        if written is not None:
            self.groups.append(
                RowGroups(
                    **vars(written.groups)
                    | {"file": written.groups.file + len(self.files)}
                )
            )
            self.files.append(written.name)

    def change(self, x, seq, gone):
        """Make version 2: rows with some numbers come or are replaced, others go."""
        self._write(self.frame(x, seq, 2))
        numbers = pq.read_table(self.root / "rows" / self.files[0], columns=[SEQ])[
            SEQ
        ].to_numpy()
        self.gone = np.flatnonzero(np.isin(numbers, np.concatenate([gone, seq])))
        self.came, places = (
            len(seq),
            {self.files[0]: self.gone} if len(self.gone) else {},
        )
        self.deleted = (write_deleted(self._own, places, 2)[0].name,)

    def snapshot(self, chosen, places, named, versions, rows, deleted=()):
        """Read the rows of some row groups."""
        groups = RowGroups(
            **{
                one.name: np.concatenate(
                    [getattr(part, one.name) for part in self.groups]
                )
                for one in fields(RowGroups)
            }
        )
        options = self.root, self.options, "pandas", tuple(self.files)
        return Snapshot(
            *options, groups[chosen(groups)], places, named, versions, rows, deleted
        )

    def first(self):
        """Return the rows of version 1."""
        return self.snapshot(
            lambda groups: groups.newest == 1, {}, False, (0, 1), self.rows
        )

    def delta(self):
        """Return the changes of version 2."""
        at = self.gone

        def touched(groups):
            ends = np.searchsorted(at, [groups.start, groups.start + groups.rows])
            return (groups.file == 0) & (ends[1] > ends[0])

        rest = self.rows - len(at)
        return Delta(
            self.snapshot(
                lambda groups: groups.newest == 2, {}, False, (1, 2), self.came
            ),
            self.snapshot(touched, {0: at}, True, (0, 1), len(at), self.deleted),
            self.snapshot(
                lambda groups: groups.newest == 1,
                {0: at},
                False,
                (0, 1),
                rest,
                self.deleted,
            ),
        )


def rows_on_a_line(ids):
    """Return rows whose coordinate is their id."""
    return pd.DataFrame({"key": np.array(ids), "x": np.array(ids, float)})


def forged(body):
    """Return the text of a manifest file whose checksum is right."""
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    told = {
        "format": 1,
        "checksum": hashlib.sha256(plain.encode()).hexdigest(),
        "manifest": body,
    }
    return json.dumps(told)
