"""Run writers, vacuums and a reader of an index in every order: `python -m
tests.checks.index_schedules`.

These are the functions of the package, in threads of which one runs at a time, up to
its next operation on a file.  All orders with few preemptions are tried (Musuvathi &
Qadeer 2007, "Iterative context bounding").  A listing begins and ends apart, and gives
what was there at the begin, at the end, at one of them or at both.
"""

import argparse
import builtins
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dask_simjoin.disk_index.files import FOLDERS
from dask_simjoin.disk_index.manifests import latest, manifest_path
from dask_simjoin.disk_index.publishing import transaction
from dask_simjoin.disk_index.snapshots import last_version
from dask_simjoin.disk_index.types import Manifest, Options, RowFile
from dask_simjoin.disk_index.versions import Change, attempted, chain, commit, vacuumed
from dask_simjoin.errors import IndexConflictError

LISTINGS = {
    "least": lambda before, after: before & after,
    "most": lambda before, after: before | after,
    "before": lambda before, after: before,
    "after": lambda before, after: after,
}
"""What a listing gives of what was there as it began and as it ended."""

NO_FILE = "0" * 32 + ".parquet"
"""The name of a file that nobody reads."""


@dataclass
class Run:
    """Threads that run one at a time, in an order that is given; after it, each as long
    as it can.
    """

    root: Path
    order: list
    listing: str
    trace: list = field(default_factory=list)
    given: list = field(default_factory=list)

    def __post_init__(self):
        self.here, self.waiting, self.ended, self.errors = (
            threading.local(),
            {},
            set(),
            [],
        )
        self.arrived, self.gone = threading.Semaphore(0), 0

    def gate(self):
        """Wait until it is this thread's turn."""
        number = getattr(self.here, "number", None)
        if number is not None:
            self.arrived.release()
            self.waiting[number].acquire()

    def _thread(self, number, work):
        self.here.number = number
        self.waiting[number].acquire()
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.ended.add(number)
            self.arrived.release()

    def go(self, works):
        """Run all of them to their ends."""
        self.waiting = {number: threading.Semaphore(0) for number in range(len(works))}
        threads = [
            threading.Thread(target=self._thread, args=one) for one in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        current = None
        while len(self.ended) < len(works):
            able = [number for number in range(len(works)) if number not in self.ended]
            chosen = current if current in able else able[0]
            if len(self.trace) < len(self.order):
                chosen = self.order[len(self.trace)]
            self.trace.append((able, current, chosen))
            current = chosen
            self.waiting[chosen].release()
            self.arrived.acquire()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def linked(self, content):
        """Note a version that was made; it must be the next one, of the last one."""
        body = json.loads(content)["manifest"]
        last = self.given[-1]
        assert (body["version"], body["parent"]) == (last + 1, last), (
            body["version"],
            body["parent"],
            last,
        )
        self.given.append(body["version"])

    @contextlib.contextmanager
    def gated(self):
        """Let operations on files of the index wait for their turn."""
        names = ("link", "unlink", "stat", "listdir", "utime", "fsync", "open")
        plain, plain_open = {name: getattr(os, name) for name in names}, builtins.open
        folders = tuple(str(self.root / name) for name in ("_versions", "deleted"))

        def own(path):
            return hasattr(self.here, "number") and str(path).startswith(folders)

        def wrapped(name):
            def called(path, *args, **options):
                if own(path) and not (name == "open" and not args[0] & os.O_CREAT):
                    self.gate()
                return plain[name](path, *args, **options)

            return called

        def link(source, target):
            if not own(source):
                return plain["link"](source, target)
            self.gate()
            try:
                plain["link"](source, target)
            except OSError:
                self.gone += 1
                raise
            with plain_open(target) as file:
                self.linked(file.read())

        def listdir(path):
            if not own(path):
                return plain["listdir"](path)
            self.gate()
            before = set(plain["listdir"](path))
            self.gate()
            return sorted(LISTINGS[self.listing](before, set(plain["listdir"](path))))

        def opened(path, *args, **options):
            if own(path):
                self.gate()
            return plain_open(path, *args, **options)

        for name in ("unlink", "stat", "utime", "open"):
            setattr(os, name, wrapped(name))
        os.link, os.listdir, os.fsync = link, listdir, lambda number: None
        builtins.open = io.open = opened
        try:
            yield
        finally:
            builtins.open = io.open = plain_open
            for name, function in plain.items():
                setattr(os, name, function)


def version(own, parent, base, name):
    """Make a version that deletes a row of some file, which nobody reads."""
    change = Change("update", deleted={name: np.array([0])}, batch=name)
    return commit(own, parent, base, change, "pandas")


def template(root, versions):
    """An index of some versions, without rows."""
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    how = (
        1.0,
        ("x",),
        None,
        "euclidean",
        2,
        1,
        False,
        (),
        (),
        False,
        False,
        (0,),
        1,
        "never",
        NO_FILE,
    )
    options = Options(*how)
    # more rows than all writers delete
    files, rows = (RowFile(NO_FILE, 1000, NO_FILE),), 1000
    made = Manifest(0, None, "index", None, "", options, files, (), (), rows, rows)
    for number in range(versions):
        with transaction(root) as own:
            made = version(own, made, number, f"first {number}")[0]


def writer(root, name, commits, made):
    """What a writer does: it makes versions of the last one, one after the other, and
    notes them.
    """

    def work():
        for number in range(commits):
            batch = f"{name} {number}"
            with contextlib.suppress(IndexConflictError):
                attempted(
                    root,
                    lambda: last_version(root, "pandas"),
                    lambda now, base, own, batch=batch: version(
                        own, now.manifest, base, batch
                    ),
                )
                made.append(batch)

    return work


def reader(run):
    """What a reader does: it reads the last version, which is none older than at its
    call.
    """

    def work():
        before = run.given[-1]
        assert latest(run.root).version >= before

    return work


def tried(source, root, order, listing, commits, vacuums, readers):
    """Run an order; returns its trace, and what came of it."""
    shutil.copytree(source, root)
    run, made = Run(root, order, listing), []
    run.given.append(latest(root).version)
    works = [
        writer(root, f"writer {n}", number, made) for n, number in enumerate(commits)
    ]
    works += [lambda: vacuumed(root, 1)] * vacuums + [reader(run)] * readers
    with run.gated():
        run.go(works)
    last = latest(root)
    assert last.version == run.given[-1]
    assert set(last.batches) == {"first 0", "first 1", *made}
    assert len(last.deleted) == 2 + len(made)
    for one in chain(root, last):
        assert all((root / "deleted" / file.name).exists() for file in one.deleted)
    assert chain(root, last)[-1].version == min(
        number
        for number in range(1, last.version + 1)
        if manifest_path(root, number).exists()
    )
    assert all(path.suffix == ".json" for path in (root / "_versions").iterdir())
    # where nobody can tell whether a manifest that is gone was a writer's own, its
    # files stay
    left = len(list((root / "deleted").iterdir())) - len(last.deleted)
    assert 0 <= left <= run.gone
    shutil.rmtree(root)
    return run.trace, f"{len(made)} made" + ", a file left" * (left > 0)


def explore(preemptions, listing, commits=(1, 2), vacuums=1, readers=0, step=1):
    """Try every order with so many preemptions at most, or each `step`-th of them;
    returns the counts.
    """
    counts, todo, number = Counter(), [Order([], 0)], 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "template"
        template(source, 2)
        while todo:
            order = todo.pop()
            number += 1
            if order.cost == preemptions and number % step:
                continue
            trace, what = tried(
                source,
                Path(folder) / "index",
                order,
                listing,
                commits,
                vacuums,
                readers,
            )
            counts[what] += 1
            counts["operations"] += len(trace)
            chosen = [one for _, _, one in trace]
            spent = 0
            for at, (able, current, one) in enumerate(trace):
                if at >= len(order):
                    cost = spent + (current in able)
                    if cost <= preemptions:
                        todo += [
                            Order([*chosen[:at], other], cost)
                            for other in able
                            if other != one
                        ]
                spent += current in able and one != current
    return counts


class Order(list):
    """Which thread goes on, operation by operation, and how many preemptions that
    takes.
    """

    def __init__(self, values, cost):
        super().__init__(values)
        self.cost = cost


def main(arguments=None):
    """Print how many orders were run, and what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preemptions", type=int, default=2)
    parser.add_argument(
        "--commits", type=int, nargs="+", default=[1, 2], help="of each writer"
    )
    parser.add_argument("--vacuums", type=int, default=1)
    parser.add_argument("--readers", type=int, default=0)
    parser.add_argument(
        "--step",
        type=int,
        default=1,
        help="of the most preempted orders, each so-many-th",
    )
    parser.add_argument(
        "--listings", nargs="+", default=list(LISTINGS), choices=list(LISTINGS)
    )
    asked = parser.parse_args(arguments)
    for listing in asked.listings:
        begun = time.perf_counter()
        found = explore(
            asked.preemptions,
            listing,
            asked.commits,
            asked.vacuums,
            asked.readers,
            asked.step,
        )
        operations = found.pop("operations")
        print(
            f"listing {listing}: {sum(found.values()):,} orders, {operations:,} "
            f"operations, {dict(found)}, "
            f"{time.perf_counter() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
