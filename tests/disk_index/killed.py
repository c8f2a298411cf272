"""Keep what a process would leave that is killed at a file operation, for each of them:
see `test_crash`.

A killed process leaves its files as they are, so a copy of them is kept before each
operation of one run:
python -m tests.disk_index.killed FOLDER ACTION ...
"""

import builtins
import io
import os
import shutil
import sys
from pathlib import Path

import dask
import pandas as pd

import dask_simjoin
from dask_simjoin.disk_index import versions
from dask_simjoin.disk_index.files import FOLDERS, PAIRS

FIRST = pd.DataFrame({"key": range(12), "x": [float(k) for k in range(12)]})
NEW = pd.DataFrame({"key": [3, 20, 21], "x": [4.5, 0.5, 11.0]})
GONE = [0, 7]


def make(path):
    """Make the index, and a version more."""
    FIRST.iloc[:10].simjoin.index(
        1.0, path, on="x", id="key", row_group=4, store_pairs=True
    )


def grow(path):
    """Make two more versions."""
    index = dask_simjoin.open_index(path)
    index.update(FIRST.iloc[10:], batch="one")
    index.update(None, delete=[9])


def update(path):
    """Insert, replace and delete as one version."""
    dask_simjoin.open_index(path).update(
        NEW, delete=GONE, if_exists="replace", batch="new"
    )


def restore(path):
    """Bring back what was."""
    dask_simjoin.open_index(path).restore(1)


def vacuum(path):
    """Remove what is old, and what no version names: all of it counts as a day old."""
    versions.A_DAY = -1000
    dask_simjoin.open_index(path).vacuum(keep=1)


def optimize(path):
    """Put rows in order."""
    dask_simjoin.open_index(path).optimize("all")


ACTIONS = {
    "make": make,
    "update": update,
    "restore": restore,
    "optimize": optimize,
    "vacuum": vacuum,
}


class Counting:
    """Counts the file operations beneath a folder, and keeps its files before each of
    them.
    """

    def __init__(self, folder):
        self.folder, self.done, self.copying = folder, 0, False

    def operation(self):
        """Keep what a process leaves that is killed now; a copy itself is no operation."""
        if self.copying:
            return
        self.copying = True
        if self.folder.exists():
            shutil.copytree(self.folder, f"{self.folder}-{self.done}")
        self.copying = False
        self.done += 1

    def install(self):
        """Count those of this process from now on."""
        for name in ("fsync", "link", "unlink", "mkdir", "rename", "replace"):
            setattr(os, name, self.counted(getattr(os, name)))
        plain, counting = builtins.open, self

        class Writer(io.BufferedWriter):
            """A file whose first write may be cut in half."""

            begun = False

            def write(self, data):
                if self.begun:
                    return super().write(data)
                self.begun, every = True, memoryview(data).cast("B")
                super().write(every[: len(every) // 2])
                self.flush()
                counting.operation()
                super().write(every[len(every) // 2 :])
                return len(every)

        def opened(path, mode="r", *args, **options):
            if "x" not in mode:
                return plain(path, mode, *args, **options)
            counting.operation()
            return Writer(io.FileIO(path, mode.replace("b", "")))

        builtins.open = opened

    def counted(self, function):
        """The function, counted."""

        def called(*args, **options):
            self.operation()
            return function(*args, **options)

        return called


def main(root, names):
    """Leave a folder ACTION-NUMBER of each operation of an action, and a last one of
    the whole action.
    """
    template = root / "template"
    for action in (make, grow):
        action(str(template))
    for name in names:
        path = root / name
        if name != "make":
            shutil.copytree(template, path)
        if name == "vacuum":  # there are leftovers of a writer, too
            for folder in (*FOLDERS, PAIRS):
                (path / folder / f"{'0' * 32}.parquet").touch()
        child = os.fork()  # in which files are counted
        if not child:
            counting = Counting(path)
            counting.install()
            ACTIONS[name](str(path))
            counting.operation()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"{name} failed in {path}")


if __name__ == "__main__":
    with dask.config.set(scheduler="sync"):
        main(Path(sys.argv[1]), sys.argv[2:])
