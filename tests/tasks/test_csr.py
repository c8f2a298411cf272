"""Sparse neighbor matrices in CSR form: built in place, within memory."""

import sys
import types

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.graph import pairs
from dask_simjoin.planning.budget import Fitting
from dask_simjoin.planning.limits import Limits
from dask_simjoin.tasks import csr
from dask_simjoin.tasks import csr as entries
from tests.support.points import frame_of


@pytest.fixture(scope="module")
def dense():
    """A frame of rows that have many neighbours, some of them equal."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(k, 0.1, (150, 2)) for k in range(3)])
    return frame_of(np.concatenate([x, x[:40]]))


def forbid_filling(monkeypatch):
    def fill(*args):
        raise AssertionError("it is filled")

    monkeypatch.setattr(csr, "fill", fill)


def test_a_graph_that_does_not_fit_is_not_filled(dense, monkeypatch):
    forbid_filling(monkeypatch)
    number = dense.simjoin.neighbor_counts(0.5).sum()
    size = f"{(16 * number + 8 * len(dense)) / 2**20:.2f} MiB"
    with dask.config.set({"simjoin.result-limit": "1 MiB"}):
        want = (
            f"eps=0.5 gives {number:,} entries, which take {size}, and "
            "simjoin.result-limit of dask.config.set is 1 MiB. Use a"
        )
        with pytest.raises(BudgetError, match=want):
            dense.simjoin.neighbor_graph(0.5)
        lazy = dd.from_pandas(dense, npartitions=3).simjoin.neighbor_graph(
            0.5, include_self=True
        )
    with pytest.raises(
        BudgetError, match=r"an estimated [0-9,]+ entries.*simjoin.result-limit"
    ):
        lazy.compute()
    # the same from exact numbers, where the sample tells too little
    whole = Fitting.check
    monkeypatch.setattr(
        Fitting, "check", lambda *args, sampled=False: sampled or whole(*args)
    )
    with pytest.raises(
        BudgetError, match=f"gives {number + len(dense):,} entries, which"
    ):
        lazy.compute()


def test_memory(dense, monkeypatch):
    forbid_filling(monkeypatch)
    ddf = dd.from_pandas(dense, npartitions=3)
    workers = Limits(threads=2, memory=2**30, cluster=True, limit=4 * 2**20)
    lazy = ddf.simjoin.neighbor_graph(0.5)
    with monkeypatch.context() as patched:
        patched.setattr(pairs, "limits_for", lambda library: workers)
        with pytest.raises(
            BudgetError, match=r"smallest worker has room for 1.33 MiB.*larger workers"
        ):
            lazy.compute()
    monkeypatch.setattr(csr, "MEMORY_LIMIT", 2**20)
    for make in (
        lambda: dense.simjoin.neighbor_graph(0.5),
        ddf.simjoin.neighbor_graph(0.5).compute,
    ):
        with pytest.raises(
            BudgetError, match=r"this machine has 1 MiB.*a larger machine"
        ):
            make()


def test_int32_of_old_cupy(monkeypatch):
    for kind, most in ((np.int32, 2**31 - 1), (np.int64, None)):
        made = types.SimpleNamespace(indices=np.zeros(0, kind))
        module = types.SimpleNamespace(csr_matrix=lambda shape, made=made: made)
        monkeypatch.setitem(sys.modules, "cupyx.scipy.sparse", module)
        assert csr.max_entries("CuPy") == most
    fitting = Fitting(0.5, 10, [], 2**31 - 1)
    fitting.check(2**31 - 1)
    with pytest.raises(BudgetError, match=r"at most 2,147,483,647.*CuPy 14.1 or newer"):
        fitting.check(2**31)
    assert (
        csr.offset_type("CuPy", 2**31 - 1) == np.int32
        and csr.offset_type("CuPy", 2**31) == np.int64
    )
    assert csr.offset_type(np, 1) == np.int64


@pytest.mark.parametrize("slices", [50, 1 << 20])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_arrays_as_a_whole_do_what_the_kernels_do(slices, kind, monkeypatch):
    monkeypatch.setattr(entries, "PAIRS_AT_ONCE", slices)
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 30, 60) * (rng.uniform(size=60) < 0.8)
    counts[7] = 6000  # more than the first gap of the sort
    starts = entries.starts_of(counts)
    rows = rng.permutation(np.repeat(np.arange(60, dtype=np.int32), counts))
    columns, values = (
        rng.permutation(len(rows)).astype(kind),
        rng.integers(0, 40, len(rows)) / 8,
    )
    sorted_ = {}
    for name, sort in (("kernels", entries.sort_rows), ("arrays", entries.sort_arrays)):
        out, out_values, at = (
            np.empty_like(columns),
            np.empty_like(values),
            starts[:-1].copy(),
        )
        for some in np.array_split(np.arange(len(rows)), 5):
            entries.put(rows[some], columns[some], values[some], at, out, out_values)
        assert at.tolist() == starts[1:].tolist()
        sort(starts, out, out_values)
        sorted_[name] = out, out_values
    order = np.lexsort((columns, values, rows))
    for found in sorted_.values():
        assert (found[0] == columns[order]).all() and (found[1] == values[order]).all()
    room = starts + np.arange(61) * 3
    moved = []
    for move, how in ((entries.move, counts), (entries.move_arrays, starts)):
        out, out_values, at = (
            np.zeros(room[-1], kind),
            np.zeros(room[-1]),
            room[:-1].copy(),
        )
        move(how, *sorted_["kernels"], at, out, out_values)
        assert (at == room[:-1] + counts).all()
        assert (
            out[np.repeat(room[:-1] - starts[:-1], counts) + np.arange(len(rows))]
            == columns[order]
        ).all()
        moved.append((out, out_values))
    assert all((a == b).all() for a, b in zip(*moved, strict=True))
    assert pd.Series(entries.narrow(np.array([0, 300]))).dtype == np.uint16
