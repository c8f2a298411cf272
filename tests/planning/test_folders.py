"""Shuffles through a folder that cannot hold the rows are refused when they are planned."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import ScratchError
from dask_simjoin.planning import disk


@pytest.fixture
def frame(request):
    """Other rows for each test, as plans are kept with what they are of."""
    random = np.random.default_rng(sum(map(ord, request.node.name)))
    return pd.DataFrame(random.uniform(size=(500, 2)), columns=["x", "y"])


def pairs(frame, folder, method="disk"):
    how = {"temporary-directory": str(folder), "dataframe.shuffle.method": method}
    with dask.config.set(how | {"simjoin.result-limit": "1 GiB"}):
        ddf = dd.from_pandas(frame, npartitions=3)
        return len(ddf.simjoin.self_join(0.05, partitioning="spatial", blocksize="2 kB").compute())


@pytest.mark.parametrize("kind", ["missing", "a file", "not writable"])
def test_folders_that_cannot_be_written_are_refused_by_name(frame, tmp_path, kind):
    folder = "/proc/self" if kind == "not writable" else tmp_path / "folder"
    if kind == "a file":
        folder.write_text("")
    told = rf"files in '{folder}', which cannot be written: .*shuffle.method"
    with pytest.raises(ScratchError, match=told) as refused:
        pairs(frame, folder)
    ((name, value),) = refused.value.remedies[0].config.items()
    assert name == "dataframe.shuffle.method"
    assert pairs(frame, folder, value) == pairs(frame, tmp_path) > 0


def test_folders_without_room_are_refused_with_the_need(frame, tmp_path, monkeypatch):
    used = disk.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: used._replace(free=1000))
    with pytest.raises(ScratchError, match=r"at least [0-9.]+ kiB, and 0.98 kiB are free there"):
        pairs(frame, tmp_path)
    assert pairs(frame, tmp_path, "tasks") > 0
