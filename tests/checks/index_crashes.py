"""Let an index fail at each of its file operations: `python -m
tests.checks.index_crashes`.

The disk is full from the k-th operation on, until the call has failed; or the process
is killed at it.  After each the index is opened again: it must be as before or as after
the call, the same call must work then, and so must one more update, a vacuum and
putting rows in order.  Pairs are compared with brute force each time.
"""

import argparse
import builtins
import contextlib
import errno
import io
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import dask
import pandas as pd

import dask_simjoin
from dask_simjoin.disk_index import versions
from dask_simjoin.errors import IndexFormatError, IndexWriteError, SimJoinWarning

FIRST = {k: float(k) for k in range(12)}
BEFORE = {k: x for k, x in FIRST.items() if k != 9}
NEW = {3: 4.5, 20: 0.5, 21: 11.0}
GONE = [0, 7]
AFTER = {k: x for k, x in BEFORE.items() if k not in GONE} | NEW
RESTORED = {k: float(k) for k in range(10)}

NEED_ROOM = ("fsync", "link", "mkdir")
"""What fails on a full disk, besides making and writing files."""

OTHERS = ("unlink", "rmdir", "listdir", "scandir", "stat", "rename", "replace")
"""What a process can be killed at besides."""


def frame(rows):
    return pd.DataFrame({"key": list(rows), "x": list(rows.values())})


def make(path):
    how = {
        "on": "x",
        "id": "key",
        "row_group": 4,
        "store_pairs": True,
        "recluster": "never",
    }
    frame(RESTORED).simjoin.index(1.0, path, **how)


def update(path):
    dask_simjoin.open_index(path).update(
        frame(NEW), delete=GONE, if_exists="replace", batch="new"
    )


def restore(path):
    dask_simjoin.open_index(path).restore(1)


def optimize(path):
    dask_simjoin.open_index(path).optimize("all")


def vacuum(path):
    """All files that no version names count as a day old."""
    day, versions.A_DAY = versions.A_DAY, -1000
    try:
        dask_simjoin.open_index(path).vacuum(keep=1)
    finally:
        versions.A_DAY = day


ACTIONS = {
    "make": (make, None, RESTORED),
    "update": (update, BEFORE, AFTER),
    "restore": (restore, BEFORE, RESTORED),
    "optimize": (optimize, BEFORE, BEFORE),
    "vacuum": (vacuum, BEFORE, BEFORE),
}
"""What is done, and the rows before and after it."""


class Faults:
    """Counts file operations beneath a folder from now on, and lets them fail from one
    of them on.
    """

    def __init__(self, folder, at, kill):
        self.folder, self.at, self.kill, self.done = str(folder), at, kill, 0

    def operation(self, needs_room=True):
        if not self.kill and not needs_room:
            return
        self.done += 1
        if self.done > self.at:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wrapped(self, function, needs_room):
        def called(*args, **options):
            own = isinstance(args[0] if args else None, int) or self.folder in str(
                args[0] if args else ""
            )
            if own:
                self.operation(needs_room)
            return function(*args, **options)

        return called

    @contextlib.contextmanager
    def installed(self):
        plain = {name: getattr(os, name) for name in (*NEED_ROOM, *OTHERS, "open")}
        plain_open, faults = builtins.open, self

        class Writer(io.BufferedWriter):
            def write(self, data):
                faults.operation()
                return super().write(data)

        def opened(path, mode="r", *args, **options):
            if "x" not in mode or faults.folder not in str(path):
                return plain_open(path, mode, *args, **options)
            faults.operation()
            return Writer(io.FileIO(path, mode.replace("b", "")))

        def os_open(path, flags, *args, **options):
            if faults.folder in str(path):
                faults.operation(bool(flags & os.O_CREAT))
            return plain["open"](path, flags, *args, **options)

        for name in NEED_ROOM:
            setattr(os, name, self.wrapped(plain[name], True))
        for name in OTHERS:
            setattr(os, name, self.wrapped(plain[name], False))
        os.open, builtins.open = os_open, opened
        try:
            yield
        finally:
            builtins.open = plain_open
            for name, function in plain.items():
                setattr(os, name, function)


def killed(action, path, at):
    """Run something in a process of its own, killed at an operation; tells whether it
    was.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            with Faults(path, at, True).installed():
                action(path)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise AssertionError(f"{action.__name__} failed in a child")
    return os.WIFSIGNALED(status)


def full(action, path, at):
    """Run something on a disk that is full from an operation on; tells whether that
    mattered.
    """
    faults, text = Faults(path, at, False), None
    try:
        with faults.installed():
            action(path)
    except IndexWriteError as error:
        text = str(error)
    assert text is None or (str(path.parent) in text and "Free disk" in text), text
    return faults.done > at


def pairs_of(rows):
    some = sorted(rows)
    return {
        frozenset(two)
        for two in itertools.combinations(some, 2)
        if abs(rows[two[0]] - rows[two[1]]) <= 1
    }


def check(index, rows):
    """Refuse an index that has other rows or other pairs."""
    found = index.pairs().compute()
    listed = [frozenset(two) for two in zip(found["left"], found["right"], strict=True)]
    assert len(listed) == len(set(listed))
    assert set(listed) == pairs_of(rows), (index.version, sorted(map(sorted, listed)))
    assert len(index) == len(rows)


def named(path):
    """All files of an index that its versions name, and those that there are."""
    from dask_simjoin.disk_index.manifests import latest
    from dask_simjoin.disk_index.versions import chain, files_of

    wanted = files_of(chain(path, latest(path)))
    there = {
        (one.parent.name, one.name) for one in path.glob("*/*") if one.suffix != ".json"
    }
    return wanted, there


def contents(path):
    """What is in a folder: the kind and the size of each file, and where it is."""
    files = (one for one in path.glob("**/*") if one.is_file())
    return tuple(
        sorted((one.parent.name, one.suffix, one.stat().st_size) for one in files)
    )


def verified(name, path, mode):
    """Look at what is left, do the same again, and go on; tells which version there
    was.
    """
    action, before, after = ACTIONS[name]
    if before is None:
        try:
            index = dask_simjoin.open_index(path)
        except IndexFormatError:
            if mode == "full":
                assert not path.exists(), list(path.glob("**/*"))
            make(path)
            state = "none"
        else:
            check(index, after)
            state = "made"
    else:
        index = dask_simjoin.open_index(path)
        state = f"version {index.version}"
        check(index, before if index.version == 3 else after)
        wanted, there = named(path)
        assert wanted <= there, wanted - there
        if mode == "full" and name != "vacuum":
            assert there <= wanted | {
                ("_versions", one.name) for one in path.glob("_versions/*.json")
            }, there - wanted
        action(path)
    index = dask_simjoin.open_index(path)
    check(index, after)
    rows = after | {500: 3.5}
    index.update(frame({500: 3.5}))
    check(index, rows)
    index.vacuum(keep=1)
    index.optimize("all")
    check(dask_simjoin.open_index(path), rows)
    return state


def run(names, modes, step, first=0, most=None):
    """Let each action fail at each operation, or at each `step`-th; returns the counts."""
    counts = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(scheduler="sync"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", SimJoinWarning)
        template = Path(folder) / "template"
        make(template)
        dask_simjoin.open_index(template).update(
            frame({10: 10.0, 11: 11.0}), batch="one"
        )
        dask_simjoin.open_index(template).delete([9])
        for name in names:  # kernels are compiled before anything is forked
            shutil.copytree(template, Path(folder) / f"warm {name}")
            if name != "make":
                ACTIONS[name][0](Path(folder) / f"warm {name}")
        for name, mode in itertools.product(names, modes):
            seen = {}
            for at in itertools.count(first, step):
                path = Path(folder) / f"{name} {mode} {at}"
                if name != "make":
                    shutil.copytree(template, path)
                if name == "vacuum":  # there are leftovers of a writer, too
                    killed(update, path, 20)
                hit = (killed if mode == "kill" else full)(ACTIONS[name][0], path, at)
                left = contents(path)
                # else it is as after another operation, but for names
                if left not in seen:
                    seen[left] = verified(name, path, mode)
                state = seen[left]
                # a first load removes it itself
                shutil.rmtree(path, ignore_errors=True)
                counts[name, mode, state] += 1
                if not hit or (most is not None and at >= most):
                    break
    return counts


def main(arguments=None):
    """Print how often each action was left in each state."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--actions", nargs="+", default=list(ACTIONS), choices=list(ACTIONS)
    )
    parser.add_argument(
        "--modes", nargs="+", default=["full", "kill"], choices=["full", "kill"]
    )
    parser.add_argument(
        "--step", type=int, default=1, help="fail at each so-many-th operation"
    )
    parser.add_argument(
        "--first", type=int, default=0, help="the operation to begin with"
    )
    asked = parser.parse_args(arguments)
    begun = time.perf_counter()
    for name in asked.actions:
        for (_, mode, state), number in run(
            [name], asked.modes, asked.step, asked.first
        ).items():
            print(f"{name}, {mode}: {number} times {state}", flush=True)
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
