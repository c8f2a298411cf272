"""Run writers, vacuums and a reader of an index on a store: `python -m
tests.checks.store_schedules`.

As index_schedules.py: one thread runs at a time, up to its next request.  A listing of
a store in pages is no snapshot, so it begins and ends apart.  The store is moto's S3
server, or one in memory, which is faster.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import uuid
from collections import Counter

from dask_simjoin.disk_index import stores, versions
from dask_simjoin.disk_index.manifests import is_tombstone, latest, manifest_path
from dask_simjoin.disk_index.publishing import transaction
from dask_simjoin.disk_index.stores import ObjectPath, object_path
from dask_simjoin.disk_index.types import Manifest, Options, RowFile
from dask_simjoin.disk_index.versions import chain, vacuumed
from tests.checks.index_schedules import (
    LISTINGS,
    NO_FILE,
    Order,
    Run,
    reader,
    version,
    writer,
)
from tests.support import s3

try:
    import obstore
except ImportError:  # machines with a GPU may lack it
    obstore = None

REQUESTS = ("put", "get", "head", "delete")


class StoreRun(Run):
    """Threads that run one at a time, up to the next request of one of them."""

    def _own(self, path):
        return hasattr(self.here, "number") and (
            "/_versions" in str(path) or "/deleted" in str(path)
        )

    @contextlib.contextmanager
    def gated(self):
        """Let requests wait for their turn."""
        plain = {
            name: getattr(obstore, name)
            for name in (*REQUESTS, "list", "list_with_delimiter")
        }

        def wrapped(name):
            def called(store, path, *args, **options):
                if self._own(path):
                    self.gate()
                if (
                    name != "put"
                    or options.get("mode") != "create"
                    or not path.endswith(".json")
                ):
                    return plain[name](store, path, *args, **options)
                try:
                    done = plain[name](store, path, *args, **options)
                except obstore.exceptions.AlreadyExistsError:
                    self.gone += 1
                    raise
                self.linked(args[0])
                return done

            return called

        def both(names, list_now):
            """What a listing gives: it begins at one turn and ends at another."""
            self.gate()
            before = {one["path"]: one for one in list_now()}
            self.gate()
            after = {one["path"]: one for one in list_now()}
            chosen = LISTINGS[self.listing](set(before), set(after))
            return [(before | after)[path] for path in sorted(chosen)]

        def listed(store, path, **options):
            if not self._own(path):
                return plain["list"](store, path, **options)

            def every():
                batches = plain["list"](store, path, **options)
                return [one for batch in batches for one in batch]

            return iter([both(path, every)])

        def with_delimiter(store, path):
            if not self._own(path):
                return plain["list_with_delimiter"](store, path)
            found = both(
                path, lambda: plain["list_with_delimiter"](store, path)["objects"]
            )
            return {"common_prefixes": [], "objects": found}

        for name in REQUESTS:
            setattr(obstore, name, wrapped(name))
        obstore.list, obstore.list_with_delimiter = listed, with_delimiter
        try:
            yield
        finally:
            for name, function in plain.items():
                setattr(obstore, name, function)


def template(root, versions):
    """An index of some versions, without rows."""
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
    # more rows than all writers delete
    files, rows = (RowFile(NO_FILE, 1000, NO_FILE),), 1000
    made = Manifest(
        0, None, "index", None, "", Options(*how), files, (), (), rows, rows
    )
    for number in range(versions):
        with transaction(root) as own:
            made = version(own, made, number, f"first {number}")[0]


def copied(source, target):
    for some in obstore.list(source.client, source.key):
        for one in some:
            obstore.copy(
                source.client,
                one["path"],
                target.key + one["path"].removeprefix(source.key),
            )


def tried(source, root, order, listing, commits, vacuums, readers):
    """Run an order; returns its trace, and what came of it."""
    copied(source, root)
    run, made = StoreRun(root, order, listing), []
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
    names = sorted(
        one.name for one in (root / "_versions").iterdir() if one.suffix == ".json"
    )
    assert names == [
        manifest_path(root, number).name for number in range(1, last.version + 1)
    ]
    there = [
        n
        for n in range(1, last.version + 1)
        if not is_tombstone(manifest_path(root, n).read_bytes())
    ]
    assert [one.version for one in chain(root, last)] == there[::-1]
    assert not any(one.suffix == ".lease" for one in (root / "_versions").iterdir())
    left = {one.name for one in (root / "deleted").iterdir()} - {
        one.name for one in last.deleted
    }
    assert not left, left
    fences = last.version - 2 - len(made)
    return run.trace, f"{len(made)} made" + f", {fences} fences" * (fences > 0)


def in_memory():
    """Let all clients use one store in memory; returns a folder in it."""
    store = obstore.store.MemoryStore()
    stores._client = lambda base, options: store
    stores._users[:] = [os.getpid()]
    return ObjectPath("s3://memory", "index")


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
            counts["requests"] += len(trace)
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


def main(arguments=None):
    """Print how many orders were run, and what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--memory", action="store_true", help="a store in memory, not an S3 server"
    )
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
    with contextlib.nullcontext() if asked.memory else s3.server() as options:
        place = in_memory() if asked.memory else object_path(s3.new_url(), options)
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
            requests = found.pop("requests")
            print(
                f"listing {listing}: {sum(found.values()):,} orders, {requests:,} "
                "requests, "
                f"{json.dumps(found)}, {time.perf_counter() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
