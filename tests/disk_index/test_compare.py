"""Changed rows compared with each other and with unchanged rows."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.graph import spec_of
from dask_simjoin.disk_index.pair_files import found_pairs
from dask_simjoin.disk_index.types import Part
from tests.disk_index.test_changes import (
    GONE,
    NEW,
    ROWS,
    change,
    found_in,
    grid,
    pairs_of,
)
from tests.support.profiles import every_nth
from tests.support.stored import Stored

pytestmark = pytest.mark.usefixtures("in_this_thread")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "n", "apart"), every_nth(4, [(2, 2000, True), (20, 800, False)])
)
def test_parts_are_read_where_they_are_compared(dims, n, apart, tmp_path, small_tasks):
    """Where there are more rows than fit side by side; not where each part is near to
    most others.
    """
    x = np.random.default_rng(1).uniform(0, 1, (n, dims))
    stored, eps = (
        Stored(tmp_path, x, {2: 0.02, 20: 1.0}[dims]),
        {2: 0.02, 20: 1.0}[dims],
    )
    rows = stored.first()
    pairs = found_pairs(rows, spec_of(rows, eps, True))
    found = pairs.expr.operand("blocks")
    assert bool(found.read_by_task) == apart == (not found.changed)
    want = pairs_of((np.arange(n), x), eps, "euclidean", 2, True)
    assert want
    assert found_in(pairs, True) == want


@pytest.mark.parametrize(
    "counts",
    [(NEW, 0, 0), (0, GONE, 0), (0, 0, ROWS), (1, 0, 0), (0, ROWS, 0), (0, 0, 1)],
)
def test_few_rows_are_held_and_every_kind_of_change_is_told(counts, tmp_path):
    stored, *versions = change(
        tmp_path, lambda random, n: grid(random, n, 2), 1.0, counts=counts
    )
    old, new = (pairs_of(version, 1.0, "euclidean", 2, False) for version in versions)
    found = PairChanges(stored.delta(), False)
    assert not any(
        isinstance(rows, Part) for side in found.blocks for rows in side.changed
    )
    assert found_in(found.added, False) == new - old
    assert found_in(found.removed, False) == old - new
    assert (found.report.inserted, found.report.deleted) == (
        counts[0] + counts[2],
        counts[1] + counts[2],
    )


VALUES = {
    "none": ([None] * 4, None),
    "texts": (["a", "b", None, "d"], "e"),
    "numbers": ([0.0, np.nan, 2.0, 3.0], 5.0),
    "lists": ([[1.0], [2.0, np.nan], [3.0], None], [4.0]),
}


@pytest.mark.parametrize("persisted", every_nth(4, [False, True]))
def test_pairs_of_which_other_values_are_kept_have_changed(persisted, tmp_path):
    """So that a table of pairs, less those that went, with those that came, is that of
    the new version.
    """
    rows = pd.DataFrame(
        {"key": range(4), "x": [0.0, 1.0, 2.0, 9.0]}
        | {k: v for k, (v, _) in VALUES.items()}
    )
    index = rows.simjoin.index(1.0, tmp_path, on="x", id="key", keep=list(VALUES))
    if persisted:
        index.persist()
    changes = index.update(rows, if_exists="replace")
    assert not len(changes.added) and not len(changes.removed)
    for name, (_, new) in VALUES.items():
        before, since = index.pairs().compute(), index.version
        again = rows[2:3].assign(
            **{name: pd.Series([new], index=[2], dtype=rows[name].dtype)}
        )
        index.update(again, if_exists="replace")
        found = index.changes(since).compute()
        removed, added = (
            found[found["diff"] == sign].drop(columns="diff") for sign in (-1, 1)
        )
        if new is None:
            assert not len(found)
            continue
        assert [
            side[["left", "right"]].to_numpy().tolist() for side in (removed, added)
        ] == [[[1, 2]]] * 2
        kept = pd.concat([before[before["right"] != 2], added], ignore_index=True)
        pd.testing.assert_frame_equal(kept, index.pairs().compute())
        assert repr(removed[f"{name}_right"].tolist()) != repr(
            added[f"{name}_right"].tolist()
        )
