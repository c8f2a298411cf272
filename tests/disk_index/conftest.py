"""Small tasks, and an index of several versions."""

import pytest

from dask_simjoin.disk_index import blocks, cell_filter, changes, pair_files
from dask_simjoin.disk_index.blocks import Sizes
from tests.support import s3
from tests.support.stored import rows_on_a_line


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of 100 rows in tiles of 16, none of which are held."""
    monkeypatch.setattr(cell_filter, "UNORDERED_TILE", 16)
    for module in (changes, pair_files):
        monkeypatch.setattr(module, "sizes", lambda *_: Sizes(100, 2, 0))
    monkeypatch.setattr(blocks, "MIN_PART", 1)


@pytest.fixture
def index(tmp_path):
    """Five versions: made, two updates, rows put in order, and an update."""
    made = rows_on_a_line(range(6)).simjoin.index(
        1.0, tmp_path / "index", on="x", id="key", row_group=2, recluster="never"
    )
    made.update(rows_on_a_line([6, 7]), delete=[0], batch="a")
    made.update(rows_on_a_line([8]), delete=[1], batch="b")
    made.optimize("all")
    made.update(rows_on_a_line([0]), delete=[7], batch="c")
    return made


@pytest.fixture(scope="session")
def server():
    """Options of clients of an S3 server, which all tests of a process share."""
    with s3.server() as options:
        yield options
