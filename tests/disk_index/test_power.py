"""What a power loss may undo: changes of a disk are synced in the order that
docs/explanation/versions.md says.
"""

import builtins
import os
from pathlib import Path

import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import publishing, versions

pytestmark = pytest.mark.usefixtures("in_this_thread")


class Disk:
    """Follows the changes of a folder that are not synced, and checks the rules."""

    def __init__(self, root, monkeypatch):
        self.root, self.contents, self.made, self.buried = (
            str(root),
            set(),
            set(),
            set(),
        )
        self.seen = []
        names = "link", "replace", "rename", "unlink", "fsync"
        self.plain = {name: getattr(os, name) for name in names}
        self.open = builtins.open
        for name in names:
            monkeypatch.setattr(os, name, getattr(self, name))
        monkeypatch.setattr(builtins, "open", self.opened)

    def opened(self, path, mode="r", *args, **how):
        file = self.open(path, mode, *args, **how)
        if "x" in mode:
            self.contents.add(str(path))
        return file

    def fsync(self, number):
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        self.contents.discard(str(path))
        for some in (self.made, self.buried):
            some.difference_update([one for one in some if Path(one).parent == path])
        self.plain["fsync"](number)

    def named(self, source, target):
        """A file gets a name: its content is durable already."""
        assert str(source) not in self.contents
        if str(target).endswith(".parquet"):
            self.made.add(str(target))

    def link(self, source, target):
        self.named(source, target)
        self.plain["link"](source, target)
        if str(target).endswith(".json"):
            files = {one for one in self.made if one.endswith(".parquet")}
            assert not self.contents and not files
            self.made.add(str(target))
            self.seen.append("version")

    def rename(self, source, target):
        self.named(source, target)
        self.plain["rename"](source, target)

    def replace(self, source, target):
        self.named(source, target)
        if str(target).endswith(".json"):
            assert not self.made
            self.buried.add(str(target))
            self.seen.append("tombstone")
        self.plain["replace"](source, target)

    def unlink(self, path):
        if str(path).endswith(".parquet") and self.root in str(path):
            assert not self.buried
            self.seen.append("removal")
        if str(path).endswith(".lease"):
            self.seen.append("lease")
        self.plain["unlink"](path)


def frame(keys):
    return pd.DataFrame({"key": list(keys), "x": [key / 2 for key in keys]})


def test_changes_are_synced_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "MAX_BATCHES", 2)
    path = tmp_path / "index"
    disk = Disk(path, monkeypatch)
    how = {"on": "x", "id": "key", "store_pairs": True, "recluster": "never"}
    index = frame(range(6)).simjoin.index(1.0, path, **how)
    assert not disk.made
    for k in range(4):
        index.update(frame([10 + k]), delete=[k], batch=str(k))
        assert not disk.made
    index.optimize("all")
    index.restore(2)
    assert not disk.made and disk.seen == ["version", "lease"] * 7
    other = dask_simjoin.open_index(path)
    monkeypatch.setattr(versions, "A_DAY", -1000)
    stray = path / "rows" / f"{'0' * 32}.parquet"
    for leftover in (False, True):
        if leftover:
            stray.touch()
            (path / "_versions" / f".{'0' * 16}.lease").touch()
        else:
            other.update(frame([20]))
        # as if another process had not synced its version yet
        disk.made.add(str(max((path / "_versions").glob("*.json"))))
        disk.seen.clear()
        other.vacuum(keep=1)
        kinds = ["version", "tombstone", "lease", "removal"]
        if not leftover:
            kinds = kinds[1::2]
        assert list(dict.fromkeys(disk.seen)) == kinds
        assert not stray.exists() and other.check().damaged == 0
