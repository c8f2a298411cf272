"""Run writers, vacuums and readers of an index in every order: `python -m
tests.checks.index_schedules`.

These are the functions of the package, in threads of which one runs at a time, up to
its next operation on a file, or its next request to a store. All orders with few
preemptions are tried (Musuvathi & Qadeer 2007, "Iterative context bounding"). A listing
begins and ends apart, and gives what was there at the begin, at the end, at one of them
or at both. A name that is replaced meanwhile counts as gone and made again.

The index is on a disk, on a store in memory, or on moto's S3 server.
"""

import argparse
import builtins
import contextlib
import errno
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dask_simjoin.disk_index import stores, versions
from dask_simjoin.disk_index.files import FOLDERS
from dask_simjoin.disk_index.folders import is_tombstone
from dask_simjoin.disk_index.manifests import latest, manifest_path
from dask_simjoin.disk_index.publishing import transaction
from dask_simjoin.disk_index.snapshots import last_version
from dask_simjoin.disk_index.stores import ObjectPath, object_path
from dask_simjoin.disk_index.types import Manifest, Options, RowFile
from dask_simjoin.disk_index.versions import Change, attempted, chain, commit, vacuumed
from dask_simjoin.errors import IndexConflictError, IndexWriteError
from tests.support import s3

try:
    import obstore
except ImportError:  # machines with a GPU may lack it
    obstore = None

LISTINGS = {
    "least": lambda before, after: before & after,
    "most": lambda before, after: before | after,
    "before": lambda before, after: before,
    "after": lambda before, after: after,
}
"""What a listing gives of what was there as it began and as it ended."""

NO_FILE = "0" * 32 + ".parquet"
"""The name of a file that nobody reads."""

KINDS = ("disk", "memory", "s3")


@dataclass
class Run:
    """Threads that run one at a time, in an order that is given; after it, each as long
    as it can.
    """

    root: object
    order: list
    listing: str
    trace: list = field(default_factory=list)
    given: list = field(default_factory=list)  # the numbers of all versions, in order

    def __post_init__(self):
        self.here, self.waiting, self.ended, self.errors = (
            threading.local(),
            {},
            set(),
            [],
        )
        self.arrived, self.refused = threading.Semaphore(0), 0

    def gate(self):
        """Wait until it is this thread's turn."""
        self.arrived.release()
        self.waiting[self.here.number].acquire()

    def is_own(self, path):
        """Whether a thread of this run uses a file whose operations are ordered."""
        folders = f"{self.root}/_versions", f"{self.root}/deleted"
        return hasattr(self.here, "number") and str(path).startswith(folders)

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

    def made(self, content):
        """Note a version that was made; it must be the next one, of the last one."""
        body = json.loads(content)["manifest"]
        last = self.given[-1]
        found = body["version"], body["parent"], last
        assert found[:2] == (last + 1, last), found
        self.given.append(body["version"])

    def listed(self, list_now):
        """List files as (name, content identity); the listing takes two turns.

        A file that was replaced meanwhile may be missing.
        """
        self.gate()
        before = set(list_now())
        self.gate()
        after = set(list_now())
        return sorted({name for name, _ in LISTINGS[self.listing](before, after)})

    @contextlib.contextmanager
    def gated(self):
        """Let operations on files of the index wait for their turn."""
        names = "link", "unlink", "stat", "listdir", "replace", "rename", "open"
        plain = {name: getattr(os, name) for name in (*names, "fsync")}
        plain_open = builtins.open

        def wrapped(name):
            def called(path, *args, **options):
                if self.is_own(path) and (name != "open" or args[0] & os.O_CREAT):
                    self.gate()
                return plain[name](path, *args, **options)

            return called

        def link(source, target):
            if self.is_own(source):
                self.gate()
            try:
                plain["link"](source, target)
            except FileExistsError:
                self.refused += 1
                raise
            if self.is_own(source) and str(target).endswith(".json"):
                self.made(plain_read(target))

        def plain_read(path):
            with plain_open(path, "rb") as file:
                return file.read()

        def listdir(path):
            if not self.is_own(path):
                return plain["listdir"](path)

            def now():
                with os.scandir(path) as entries:
                    return [(one.name, one.inode()) for one in entries]

            return self.listed(now)

        def opened(path, *args, **options):
            if self.is_own(path):
                self.gate()
            return plain_open(path, *args, **options)

        for name in names:
            setattr(os, name, wrapped(name))
        os.link, os.listdir, os.fsync = link, listdir, lambda number: None
        builtins.open = io.open = opened
        try:
            yield
        finally:
            builtins.open = io.open = plain_open
            for name, function in plain.items():
                setattr(os, name, function)


class StoreRun(Run):
    """Threads that run one at a time, up to the next request of one of them."""

    def is_own(self, path):
        return super().is_own(f"{self.root.base}/{path}")

    @contextlib.contextmanager
    def gated(self):
        """Let requests wait for their turn."""
        requests = "put", "get", "head", "delete"
        names = (*requests, "list", "list_with_delimiter")
        plain = {name: getattr(obstore, name) for name in names}

        def wrapped(name):
            def called(store, path, *args, **options):
                if self.is_own(path):
                    self.gate()
                try:
                    done = plain[name](store, path, *args, **options)
                except obstore.exceptions.AlreadyExistsError:
                    self.refused += 1
                    raise
                if options.get("mode") == "create" and path.endswith(".json"):
                    self.made(args[0])
                return done

            return called

        def objects(list_now):
            found = {}

            def now():
                some = list_now()
                found.update({one["path"]: one for one in some})
                return [(one["path"], one["last_modified"]) for one in some]

            return [found[path] for path in self.listed(now)]

        def listing(store, path, **options):
            every = plain["list"]
            if not self.is_own(path):
                return every(store, path, **options)

            def now():
                return [one for some in every(store, path, **options) for one in some]

            return iter([objects(now)])

        def with_delimiter(store, path):
            every = plain["list_with_delimiter"]
            if not self.is_own(path):
                return every(store, path)
            found = objects(lambda: every(store, path)["objects"])
            return {"common_prefixes": [], "objects": found}

        for name in requests:
            setattr(obstore, name, wrapped(name))
        obstore.list, obstore.list_with_delimiter = listing, with_delimiter
        try:
            yield
        finally:
            for name, function in plain.items():
                setattr(obstore, name, function)


def version(own, parent, base, name):
    """Make a version that deletes a row of some file, which nobody reads."""
    change = Change("update", deleted={name: np.array([0])}, batch=name)
    return commit(own, parent, base, change, "pandas")


def template(root, number):
    """Make an index of some versions, without rows."""
    if isinstance(root, Path):
        for name in FOLDERS:
            (root / name).mkdir(parents=True)
    how = (
        *(1.0, ("x",), None, "euclidean", 2, 1, False, (), (), False, False, (0,)),
        *(1, "never", NO_FILE),
    )
    # more rows than all writers delete
    files, rows = (RowFile(NO_FILE, 1000, NO_FILE),), 1000
    made = Manifest(
        0, None, "index", None, "", Options(*how), files, (), (), rows, rows
    )
    for k in range(number):
        with transaction(root) as own:
            made = version(own, made, k, f"first {k}")[0]


def copied(source, target):
    if isinstance(source, Path):
        shutil.copytree(source, target)
        return
    for some in obstore.list(source.client, source.key):
        for one in some:
            name = one["path"].removeprefix(source.key)
            obstore.copy(source.client, one["path"], target.key + name)


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


def vacuum(root):
    """What a vacuum does: it removes what it can, again if another vacuum takes its
    temporary files for leftovers.
    """

    def work():
        while True:
            try:
                return vacuumed(root, 1)
            except IndexWriteError as error:
                if error.errno != errno.ENOENT:
                    raise

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
    copied(source, root)
    kind = Run if isinstance(root, Path) else StoreRun
    run, made = kind(root, order, listing), []
    run.given.append(latest(root).version)
    works = [
        writer(root, f"writer {n}", number, made) for n, number in enumerate(commits)
    ]
    works += [vacuum(root)] * vacuums + [reader(run)] * readers
    with run.gated():
        run.go(works)
    last = latest(root)
    assert last.version == run.given[-1]
    assert set(last.batches) == {"first 0", "first 1", *made}
    assert len(last.deleted) == 2 + len(made)
    numbers = range(1, last.version + 1)
    names = {one.name for one in (root / "_versions").iterdir()}
    own = {manifest_path(root, number).name for number in numbers}
    assert own <= names <= own | {".oldest", ".removed"}, names - own
    alive = [
        number
        for number in numbers
        if not is_tombstone(manifest_path(root, number).read_bytes())
    ]
    assert [one.version for one in chain(root, last)] == alive[::-1]
    there = {one.name for one in (root / "deleted").iterdir()}
    assert {one.name for old in chain(root, last) for one in old.deleted} <= there
    # where nobody can tell whether a manifest that is removed was a writer's own, its
    # files stay
    left = len(there) - len(last.deleted)
    assert 0 <= left <= run.refused
    if isinstance(root, Path):
        shutil.rmtree(root)
    fences = last.version - 2 - len(made)
    what = f"{len(made)} made" + f", {fences} fences" * (fences > 0)
    return run.trace, what + ", a file left" * (left > 0)


def explore(
    place,
    preemptions,
    listing,
    commits=(1, 2),
    vacuums=1,
    readers=0,
    step=1,
    leftovers=False,
):
    """Try every order with so many preemptions at most, or each `step`-th of them;
    returns the counts.

    `leftovers`: all files that no version names count as old, so that vacuums make
    versions.
    """
    counts, todo, number = Counter(), [Order([], 0)], 0
    source = place / uuid.uuid4().hex
    template(source, 2)
    day, versions.A_DAY = versions.A_DAY, -1000 if leftovers else versions.A_DAY
    try:
        while todo:
            order = todo.pop()
            number += 1
            if order.cost == preemptions and number % step:
                continue
            root = place / uuid.uuid4().hex
            trace, what = tried(source, root, order, listing, commits, vacuums, readers)
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
    finally:
        versions.A_DAY = day
    return counts


class Order(list):
    """Which thread goes on, operation by operation, and how many preemptions that
    takes.
    """

    def __init__(self, values, cost):
        super().__init__(values)
        self.cost = cost


@contextlib.contextmanager
def a_place(kind):
    """A folder for indexes on a disk, in a store in memory, or on an S3 server."""
    if kind == "disk":
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    elif kind == "s3":
        with s3.server() as options:
            yield object_path(s3.new_url(), options)
    else:
        store, plain = obstore.store.MemoryStore(), (stores._client, stores._users)
        # all clients use this store
        stores._client, stores._users = lambda base, options: store, [os.getpid()]
        try:
            yield ObjectPath("s3://memory", "index")
        finally:
            stores._client, stores._users = plain


def main(arguments=None):
    """Print how many orders were run, and what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="disk", choices=KINDS)
    parser.add_argument("--preemptions", type=int, default=1)
    parser.add_argument(
        "--commits", type=int, nargs="+", default=[1, 2], help="of each writer"
    )
    parser.add_argument("--vacuums", type=int, default=1)
    parser.add_argument("--readers", type=int, default=0)
    parser.add_argument(
        "--leftovers", action="store_true", help="vacuums count files of writers as old"
    )
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
    with a_place(asked.kind) as place:
        for listing in asked.listings:
            begun = time.perf_counter()
            found = explore(
                place,
                asked.preemptions,
                listing,
                asked.commits,
                asked.vacuums,
                asked.readers,
                asked.step,
                asked.leftovers,
            )
            operations = found.pop("operations")
            print(
                f"listing {listing}: {sum(found.values()):,} orders, {operations:,} "
                f"operations, {dict(found)}, {time.perf_counter() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
