"""Rows are put in order by the index's policy; pairs and rows stay what they are."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.disk_index import maintenance
from dask_simjoin.disk_index.snapshots import last_version
from dask_simjoin.errors import OptionError
from dask_simjoin.sizes import FEW
from tests.support.oracle import as_set
from tests.support.profiles import every_nth

pytestmark = pytest.mark.usefixtures("in_this_thread")

EPS = 1.0


def rows(start, number, low=0.0, high=30.0, seed=0):
    """Rows numbered from `start`, uniform between two numbers."""
    x = np.random.default_rng([seed, start]).uniform(low, high, (number, 2))
    return pd.DataFrame(
        {"key": np.arange(start, start + number), "x": x[:, 0], "y": x[:, 1]}
    )


def made(folder, number=1000, **options):
    """Make an index of such rows."""
    return rows(0, number).simjoin.index(
        EPS, folder, on=["x", "y"], id="key", row_group=64, **options
    )


def joined(frame):
    """All pairs of a frame."""
    return as_set(frame.simjoin.self_join(EPS, on=["x", "y"], id="key"))


def files(index):
    """The row files of the last version."""
    return last_version(index.path, "pandas").manifest.files


def test_a_week_of_updates_then_optimize_is_a_full_build(tmp_path, monkeypatch):
    monkeypatch.setattr(maintenance, "PARTITION", 400)
    index, known = made(tmp_path / "grown", recluster="never"), rows(0, 1000)
    for day in range(7):
        new, gone = rows(1000 + 50 * day, 50), np.arange(30 * day, 30 * day + 30)
        index.update(new, delete=gone)
        known = pd.concat([known, new])
        known = known[~known["key"].isin(gone)]
    before, worn = index.version, index.quality()
    assert len(files(index)) == worn.files == 8
    assert index.optimize().version == before  # the policy is never to do so
    done = index.optimize("all")
    assert (done.version, done.files_dropped, done.rows) == (before + 1, 8, 1140)
    assert done.files_written == len(files(index)) >= 3
    assert index.quality().scan_ratio < 1.5 < worn.scan_ratio
    assert index.quality().deleted_share == 0 < worn.deleted_share
    assert index.changes(before).compute().empty
    anew = known.simjoin.index(
        EPS, tmp_path / "anew", on=["x", "y"], id="key", row_group=64
    )
    assert (
        as_set(index.pairs().compute())
        == as_set(anew.pairs().compute())
        == joined(known)
    )
    own, other = (
        one.rows().compute().sort_values("key", ignore_index=True)
        for one in (index, anew)
    )
    pd.testing.assert_frame_equal(own, other)
    last = last_version(index.path, "pandas").rows
    assert last.groups.rows.sum() == 1140
    for n in range(len(last.files)):  # files are of regions that do not meet
        own = last.groups.file == n
        low, high = last.groups.low[own].min(axis=0), last.groups.high[own].max(axis=0)
        rest = ((last.groups.low[~own] < high) & (last.groups.high[~own] > low)).all(
            axis=1
        )
        assert not rest.any()


@pytest.mark.parametrize("policy", every_nth(4, ["never", "always", 1.5, "auto"]))
def test_policies(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(
        maintenance, "COMMIT", 20 * maintenance.OPEN_COST
    )  # which opening eight files apart has cost
    monkeypatch.setattr(maintenance, "REWRITE", 200)
    index, known, written = made(tmp_path, recluster=policy), rows(0, 1000), []
    for day in range(FEW + 1):
        new = rows(1000 + 40 * day, 40)
        changes = index.update(new)
        before, known = joined(known), pd.concat([known, new])
        assert as_set(changes.added.compute()) == joined(known) - before
        written.append(changes.upkeep.files_written)
        assert index.version == max(changes.version, changes.upkeep.version)
        if policy == 1.5:
            assert index.quality().scan_ratio <= 1.5
    assert as_set(index.pairs().compute()) == joined(known)
    number = len(files(index))
    if policy == "never":
        assert not any(written) and number == 2 + FEW
    elif policy == "always":
        assert all(written) and number == 1
    elif (
        policy == "auto"
    ):  # as many files as are of about as many rows became one, as it pays
        assert written == [0] * (FEW - 1) + [1, 0] and number == 3
    else:
        assert any(written)
    assert set(index.history()["kind"]) == {"index", "update"} | (
        {"rewrite"} if any(written) else set()
    )


def test_rent_or_buy(tmp_path, monkeypatch):
    """Rows that are read in vain add up until they are as much as writing all that are
    not in order.
    """
    price = 0.1
    monkeypatch.setattr(maintenance, "REWRITE", price)
    monkeypatch.setattr(maintenance, "COMMIT", 0)
    monkeypatch.setattr(maintenance, "OPEN_COST", 0)
    monkeypatch.setattr(maintenance, "FEW", 100)
    index, before, days = made(tmp_path), 0.0, 0
    assert index.quality().excess == 0
    while days < 20:
        done, size = (
            index.update(rows(1000 + 5 * days, 5, high=3.0)).upkeep,
            1005 + 5 * days,
        )
        excess = index.quality().excess
        if done.files_written:
            break
        assert before <= excess <= price * size
        before, days = excess, days + 1
    assert (excess, done.rows, done.files_written) == (0, size, 1)
    assert before > price * size / 3 and days > 2


def test_files_with_many_deleted_rows_are_written_anew(tmp_path):
    index = made(tmp_path)
    assert index.delete(range(200)).upkeep.files_written == 0
    done = index.delete(range(200, 400)).upkeep
    assert (done.files_dropped, done.files_written, done.rows) == (1, 1, 600)
    assert index.quality().deleted_share == 0
    assert len(index.rows().compute()) == 600


def test_drift_of_centroids_is_told(tmp_path):
    index = made(tmp_path, recluster="never")
    assert index.quality().centroid_drift == 0
    index.update(rows(2000, 300, low=25.0))
    drifted = index.quality()
    assert (
        drifted.centroid_drift == pytest.approx(drifted.drift_in_eps * EPS)
        and drifted.centroid_drift > 1
    )
    assert "centroid drift" in repr(drifted)
    index.optimize("all")
    assert index.quality().centroid_drift == 0


def test_refused(tmp_path):
    index = made(tmp_path)
    with pytest.raises(OptionError, match="how='often' is not allowed"):
        index.optimize("often")
