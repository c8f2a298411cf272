"""Change an index at random by two processes beside a vacuum: `python -m
tests.checks.index_operations`.

Each writer has ids of its own, and a dict of the rows that it was told are there.  In
the end the index has those rows and no others; and what is read of a version in between
has the pairs that brute force finds.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import dask
import pandas as pd

import dask_simjoin
from dask_simjoin.disk_index import versions
from dask_simjoin.errors import IndexConflictError, VersionGoneError
from tests.support import s3

MOST = 30
"""Rows of a writer."""

OPERATIONS = (
    "insert",
    "insert",
    "replace",
    "delete",
    "again",
    "read",
    "read",
    "changes",
    "optimize",
)

REPEATS = 100


def frame(rows):
    return pd.DataFrame({"key": list(rows), "x": list(rows.values())})


def pairs_of(rows):
    some = sorted(rows.items(), key=lambda one: one[1])
    found = set()
    for n, (left, x) in enumerate(some):
        for right, other in itertools.islice(some, n + 1, None):
            if other - x > 1:
                break
            found.add(frozenset((left, right)))
    return found


def checked(how, number, counts):
    """Read a version, which stays as it is; returns its pairs."""
    index = dask_simjoin.open_index(**how, version=number)
    rows = index.rows().compute()
    found = index.pairs().compute()
    listed = [
        frozenset(two)
        for two in zip(found["left"].tolist(), found["right"].tolist(), strict=True)
    ]
    assert len(rows) == len(index) and rows["key"].is_unique
    assert len(listed) == len(set(listed))
    assert set(listed) == pairs_of(dict(zip(rows["key"], rows["x"], strict=True))), (
        f"version {number}"
    )
    counts["versions read"] += 1
    return set(listed)


def signed(found):
    return [
        {
            frozenset(two)
            for two in zip(some["left"].tolist(), some["right"].tolist(), strict=True)
        }
        for some in (found[found["diff"] > 0], found[found["diff"] < 0])
    ]


def compared(how, since, counts):
    """Read two versions and the changes between them, which must be their difference."""
    index = dask_simjoin.open_index(**how)
    until = index.version
    added, removed = signed(index.changes(since, until).compute())
    old, new = checked(how, since, counts), checked(how, until, counts)
    # a pair of a row that was replaced may go and come
    assert (old - removed) | added == new, (since, until)
    counts["changes read"] += 1


def write(how, number, operations, seed):
    """Do operations; returns the rows that must be there, and what was done."""
    draw, rows, counts = random.Random(seed), {}, Counter()
    index = dask_simjoin.open_index(**how)
    since = index.version
    last = None

    def update(batch, **how):
        for _ in range(REPEATS):
            try:
                return index.update(batch=batch, **how)
            except IndexConflictError:
                counts["conflicts"] += 1
        raise AssertionError("overtaken again and again")

    for k in range(operations):
        kind, batch = draw.choice(OPERATIONS), f"{number} {k}"
        if len(rows) > MOST:
            kind = "delete"
        if not rows and kind in ("replace", "delete"):
            kind = "insert"
        some = draw.sample(sorted(rows), min(len(rows), draw.randint(1, 3)))
        x = draw.randrange(120) / 4
        if kind == "insert":
            new = {
                number * 10**7 + 10 * k + j: x + j / 4
                for j in range(draw.randint(1, 4))
            }
            again = {"new": frame(new)}
            last = batch, update(batch, **again).version, again
            rows |= new
        elif kind == "replace":
            new = dict.fromkeys(some, x)
            again = {"new": frame(new), "if_exists": "replace"}
            last = batch, update(batch, **again).version, again
            rows |= new
        elif kind == "delete":
            last = batch, update(batch, delete=some).version, {"delete": some}
            rows = {key: at for key, at in rows.items() if key not in some}
        elif kind == "again" and last is not None:
            done = update(last[0], **last[2])
            assert done.report.known and done.version == last[1]
        elif kind == "optimize":
            with contextlib.suppress(IndexConflictError):
                index.optimize(draw.choice(["small", "all"]))
        elif kind in ("read", "changes"):
            with contextlib.suppress(VersionGoneError):
                if kind == "read":
                    checked(how, index.version, counts)
                else:
                    compared(how, since, counts)
                counts["not gone"] += 1
            since = index.version
        counts[kind] += 1
    return rows, counts


def in_child(work, result):
    """Do something in a process of its own; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with dask.config.set(scheduler="sync"):
            result.write_text(json.dumps(work()))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def vacuums(how, until, keep, day):
    """Vacuum until a file is there; returns how often. Files that no version names are
    leftovers after `day` seconds.
    """
    done, versions.A_DAY = 0, day
    while not until.exists():
        dask_simjoin.open_index(**how).vacuum(keep=keep)
        done += 1
        time.sleep(0.1)
    return done


def begin(how, store_pairs):
    """Make an index of two versions."""
    options = {"on": "x", "id": "key", "row_group": 4, "store_pairs": store_pairs}
    index = frame({1: 0.0, 2: 0.5}).simjoin.index(1.0, **how, **options)
    index.update(frame({3: 1.0}), delete=[1], batch="warm")
    checked(how, index.version, Counter())


def end(how, want):
    """Compare the rows with those that must be there; returns the last version."""
    index = dask_simjoin.open_index(**how)
    found = index.rows().compute()
    assert dict(zip(found["key"].tolist(), found["x"].tolist(), strict=True)) == want
    checked(how, index.version, Counter())
    assert index.check().damaged == 0
    version = index.version
    index.vacuum(keep=1)
    return version


def waited(child):
    code = os.waitpid(child, 0)[1]
    assert code == 0, code


def run(
    operations,
    seed,
    store_pairs=False,
    keep=2,
    storage_options=None,
    day=versions.A_DAY,
):
    """Let two writers do so many operations in all beside a vacuum; returns what was
    done.

    `storage_options`: of an S3 server, for an index there.  This process itself must
    not use it, as it forks.
    """
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="sync"):
        path, stop = Path(folder) / "index", Path(folder) / "stop"
        how = {"path": path}
        begin(how, store_pairs)  # kernels are compiled before anything is forked
        results = [Path(folder) / f"result {n}" for n in range(4)]
        if storage_options is not None:
            how = {"path": s3.new_url(), "storage_options": storage_options}
            waited(in_child(lambda: begin(how, store_pairs), results[3]))
        children = [
            in_child(
                lambda n=n: write(how, n + 1, operations // 2, seed * 10 + n),
                results[n],
            )
            for n in range(2)
        ]
        cleaner = in_child(lambda: vacuums(how, stop, keep, day), results[2])
        codes = [os.waitpid(child, 0)[1] for child in children]
        stop.touch()
        codes.append(os.waitpid(cleaner, 0)[1])
        assert codes == [0, 0, 0], codes
        want = {2: 0.5, 3: 1.0}
        for one in results[:2]:
            rows, told = json.loads(one.read_text())
            want |= {int(key): x for key, x in rows.items()}
            counts.update(told)
        counts["vacuums"] = json.loads(results[2].read_text())
        waited(in_child(lambda: end(how, want), results[3]))
        counts["versions"] = json.loads(results[3].read_text())
        left = {one.name for one in path.glob("_versions/.*")}
        assert left <= {".oldest", ".removed"}, left
    return counts


def main(arguments=None):
    """Print what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=500, help="operations of an index")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--s3", action="store_true", help="on an S3 server, not on a disk"
    )
    parser.add_argument(
        "--day",
        type=float,
        default=versions.A_DAY,
        help="seconds after which a vacuum removes files that no version names",
    )
    asked = parser.parse_args(arguments)
    total, begun = Counter(), time.perf_counter()
    with s3.server() if asked.s3 else contextlib.nullcontext() as options:
        for k in range(-(-asked.operations // asked.each)):
            keep = (1, 4, 12)[k % 3]
            total.update(
                run(asked.each, asked.seed + k, k % 2 == 1, keep, options, asked.day)
            )
            print(
                f"{(k + 1) * asked.each:,} operations, "
                f"{time.perf_counter() - begun:.0f} s: {dict(total)}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
