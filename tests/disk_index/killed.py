"""Run something again and again, killed at one file operation after the other: a script of `test_crash`.

It forks once all is loaded, without a thread of Python: python -m tests.disk_index.killed FOLDER ACTION ...
"""

import builtins
import io
import os
import shutil
import signal
import sys
from pathlib import Path

import dask
import pandas as pd

import dask_simjoin

FIRST = pd.DataFrame({"key": range(12), "x": [float(k) for k in range(12)]})
NEW = pd.DataFrame({"key": [3, 20, 21], "x": [4.5, 0.5, 11.0]})
GONE = [0, 7]


def make(path):
    """Make the index, and a version more."""
    FIRST.iloc[:10].simjoin.index(1.0, path, on="x", id="key", row_group=4, store_pairs=True)


def grow(path):
    """Make two more versions."""
    index = dask_simjoin.open_index(path)
    index.update(FIRST.iloc[10:], batch="one")
    index.update(None, delete=[9])


def update(path):
    """Insert, replace and delete as one version."""
    dask_simjoin.open_index(path).update(NEW, delete=GONE, if_exists="replace", batch="new")


def restore(path):
    """Bring back what was."""
    dask_simjoin.open_index(path).restore(1)


def vacuum(path):
    """Remove what is old."""
    dask_simjoin.open_index(path).vacuum(keep=1)


def optimize(path):
    """Put rows in order."""
    dask_simjoin.open_index(path).optimize("all")


ACTIONS = {"make": make, "update": update, "restore": restore, "optimize": optimize, "vacuum": vacuum}


class Counting:
    """Counts file operations, and kills this process at one of them."""

    def __init__(self, at):
        self.at, self.done = at, 0

    def operation(self):
        """Note one; the process dies before it is done."""
        self.done += 1
        if self.done > self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self):
        """Count those of this process from now on."""
        for name in ("fsync", "link", "unlink", "mkdir"):
            setattr(os, name, self.counted(getattr(os, name)))
        plain, counting = builtins.open, self

        class Writer(io.BufferedWriter):
            """A file whose first write may be cut in half."""

            begun = False

            def write(self, data):
                if not self.begun and counting.done == counting.at:
                    half = memoryview(data).nbytes // 2
                    super().write(memoryview(data).cast("B")[:half])
                    self.flush()
                if not self.begun:
                    counting.operation()
                self.begun = True
                return super().write(data)

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


def in_child(action, path, at=None):
    """Run something in a process of its own, killed at an operation; tells whether it was."""
    child = os.fork()
    if not child:
        code = 1
        try:
            if at is not None:
                Counting(at).install()
            with dask.config.set(scheduler="sync"):
                action(str(path))
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"{action.__name__} failed in {path}")
    return os.WIFSIGNALED(status)


def main(root, names):
    """Leave a folder ACTION-NUMBER of each operation that an action was killed at, and a last whole one."""
    template = root / "template"
    with dask.config.set(scheduler="sync"):
        for action in (make, grow):
            action(str(template))
        shutil.copytree(template, root / "warm")
        for name in names:
            if name != "make":
                ACTIONS[name](str(root / "warm"))
    for name in names:
        action = ACTIONS[name]
        for at in range(1000):
            path = root / f"{name}-{at}"
            if name != "make":
                shutil.copytree(template, path)
            if not in_child(action, path, at):
                break


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
