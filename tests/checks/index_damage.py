"""Damage files of an index at random, and see what its methods do: `python -m
tests.checks.index_damage`.

Each call must give the right result, or raise an `IndexFormatError`, or, if a manifest
was removed, a `VersionGoneError`; `check` must find each damage.  Anything else is
printed, with the number of its damage.  With `--store`, the damaged index is copied to
a store in memory.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import sys
import tempfile
import uuid
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import dask_simjoin
from dask_simjoin.disk_index import files, pair_files, publishing
from dask_simjoin.disk_index import rows as deletions
from dask_simjoin.disk_index.folders import is_tombstone
from dask_simjoin.disk_index.stores import object_path
from dask_simjoin.errors import IndexFormatError, VersionGoneError
from tests.checks.index_schedules import a_place
from tests.support.oracle import as_set

NEW = {200: 5.05, 3: 7.0}
"""Rows of the update that is tried: one that comes, and one that takes the place of
another.
"""

KINDS = (
    "bit",
    "bit",
    "bit",
    "bits",
    "cut",
    "zeros",
    "empty",
    "more",
    "text",
    "other table",
    "swap",
    "swap",
    "kind",
    "gone",
    "folder",
    "renamed",
    "strangers",
    "forged",
    "nested",
)

MANIFESTS = "_versions"


def frame(rows):
    """Rows by their ids, as they are put in."""
    return pd.DataFrame(
        {
            "key": pd.Series([f"k{n}" for n in rows], dtype="str"),
            "x": np.array(list(rows.values()), float),
            "name": pd.Series([f"n{n % 3}" for n in rows], dtype="str"),
        }
    )


def near(rows):
    """Pairs of rows, unordered, by brute force."""
    every = sorted(rows)
    return {
        frozenset((f"k{a}", f"k{b}"))
        for i, a in enumerate(every)
        for b in every[i + 1 :]
        if abs(rows[a] - rows[b]) <= 1
    }


class Template:
    """An index of some versions with files of every kind, and the rows of each version."""

    def __init__(self, path):
        self.path, most = path, publishing.MAX_BATCHES
        publishing.MAX_BATCHES = 2
        try:
            rows = {n: n / 4 for n in range(24)} | {99: 1.1}
            index = frame(rows).simjoin.index(
                1.0,
                path,
                on="x",
                id="key",
                keep="name",
                row_group=8,
                store_pairs=True,
                recluster="never",
            )
            self.rows = {1: rows}
            self.update(index, {n: n / 4 for n in range(24, 32)}, [99], "a")
            self.update(index, {n: n / 4 for n in range(32, 36)}, [1], "b")
            index.components()
            self.update(index, {1: 0.25}, [2, 30], "c")
            index.components()
            index.vacuum(keep=3)
        finally:
            publishing.MAX_BATCHES = most
        self.last, self.first = index.version, index.version - 2
        self.quality = index.quality().numbers
        self.files = sorted(
            str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()
        )
        self.removed = {f"{MANIFESTS}/{name}" for name in (".oldest", ".removed")}
        self.removed |= {
            f"{MANIFESTS}/{number:020d}.json" for number in range(1, self.first)
        }

    def update(self, index, new, gone, batch):
        """Update the index, and note its rows."""
        before = self.rows[index.version]
        index.update(frame(new), delete=[f"k{n}" for n in gone], batch=batch)
        self.rows[index.version] = {
            n: x for n, x in before.items() if n not in gone
        } | new


class Damage:
    """One damage of a copy of the template, made again from its seed."""

    def __init__(self, template, seed):
        self.template, self.random = template, random.Random(seed)
        self.kind = self.random.choice(KINDS)
        self.file = self.random.choice(template.files)
        if self.kind in ("forged", "nested", "renamed"):
            self.file = self.random.choice(
                [
                    name
                    for name in template.files
                    if name.endswith(".json") and name not in template.removed
                ]
            )
        self.folder = self.file.partition("/")[0]
        self.state = self.random.getstate()

    @property
    def harmless(self):
        """Whether no file that a version needs is touched."""
        return self.kind == "strangers" or self.file in self.template.removed

    def make(self, path):
        """Damage a copy; tells whether anything is another way than it was."""
        self.random.setstate(self.state)
        file, chosen = path / self.file, self.random
        data = file.read_bytes()
        own = bytearray(data)
        if self.kind in ("bit", "bits"):
            for _ in range(1 if self.kind == "bit" else 4):
                own[chosen.randrange(len(own))] ^= 1 << chosen.randrange(8)
        elif self.kind == "cut":
            own = own[: chosen.randrange(len(own))]
        elif self.kind == "zeros":
            first = chosen.randrange(len(own))
            last = min(len(own), first + chosen.randrange(1, 512))
            own[first:last] = bytes(last - first)
        elif self.kind in ("empty", "more", "text", "nested"):
            new = {
                "empty": b"",
                "more": bytes(own) + b"xx",
                "text": b"hello\n" * 30,
                "nested": b"[" * 40_000,
            }
            own = bytearray(new[self.kind])
        elif self.kind == "forged":
            own = bytearray(self.forged(json.loads(data)))
        elif self.kind in ("swap", "kind"):
            same = [
                name
                for name in self.template.files
                if name.startswith(self.folder + "/")
            ]
            others = same if self.kind == "swap" else self.template.files
            own = bytearray((self.template.path / chosen.choice(others)).read_bytes())
        file.unlink()
        if self.kind in ("gone", "renamed"):
            if self.kind == "renamed":
                number = int(file.stem) + chosen.choice([1, 7])
                file.with_name(f"{number:020d}.json").write_bytes(data)
            return True
        if self.kind == "folder":
            file.mkdir()
            return True
        if self.kind == "other table":
            pq.write_table(pa.table({"a": [1, 2]}), file)
            return True
        file.write_bytes(own)
        if self.kind == "strangers":
            self.strangers(path)
        return bytes(own) != data

    def forged(self, content):
        """A manifest with a right checksum that is none."""
        body = content["manifest"]
        how = self.random.randrange(5)
        if how == 0:
            body = {}
        elif how == 1:
            body["files"][0]["name"] = "../../secret/rows/" + body["files"][0]["name"]
        elif how == 2:
            body["options"]["example"] = "/etc/passwd"
        elif how == 3:
            body["files"] = "abc"
        else:
            body["rows"] = body["options"]["eps"] = "many"
        plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
        return json.dumps(
            {
                "format": 1,
                "checksum": hashlib.sha256(plain.encode()).hexdigest(),
                "manifest": body,
            }
        ).encode()

    def strangers(self, path):
        """Leave things in the folders that are none of the index's."""
        for name in ("²", "9" * 30, "notes", "-1"):
            (path / MANIFESTS / f"{name}.json").write_text("{}")
        for folder in ("rows", "components", "keys"):
            (path / folder / "old").mkdir()
            os.utime(path / folder / "old", (0, 0))


def forget():
    """Let this process forget what it read."""
    for kept in (files._kept, pair_files.deleted_rows, deletions.read_deleted):
        kept.cache_clear()


def on_store(path):
    """Copy an index to a store; returns its URL."""
    url = f"s3://memory/{uuid.uuid4().hex}"
    root = object_path(url, None)
    for one in path.glob("*/*"):
        if one.is_file():
            (root / one.parent.name / one.name).put(one.read_bytes())
    return url


class Calls:
    """What is asked of an index, and whether it is right; `path`: where it was
    damaged; `where`: where it is.
    """

    def __init__(self, path, where, template):
        self.path, self.where, self.template = path, where, template

    def index(self):
        """Open it; refuses to be an older version than the last one that there is a
        file of.
        """
        index = dask_simjoin.open_index(self.where)
        names = [one.stem for one in (self.path / MANIFESTS).glob("0*.json")]
        assert index.version == max(map(int, names))
        return index, self.template.rows[index.version]

    def open(self):
        """The number of rows."""
        index, rows = self.index()
        assert len(index) == len(rows)

    def rows(self):
        """All rows."""
        index, rows = self.index()
        found = index.rows().compute()
        assert dict(zip(found["key"], found["x"], strict=True)) == {
            f"k{n}": x for n, x in rows.items()
        }
        assert all(
            name == f"n{int(key[1:]) % 3}"
            for key, name in zip(found["key"], found["name"], strict=True)
        )

    def pairs(self):
        """Pairs as they are stored."""
        index, rows = self.index()
        assert unordered(index.pairs().compute()) == near(rows)

    def found(self):
        """Pairs as they are found."""
        index, rows = self.index()
        assert unordered(index.pairs(math.nextafter(1, 2)).compute()) == near(rows)

    def changes(self):
        """What changed since each version."""
        index, rows = self.index()
        for since in range(self.template.first, index.version):
            found = index.changes(since).compute()
            gone = {
                pair
                for pair, diff in zip(pairs_of(found), found["diff"], strict=True)
                if diff < 0
            }
            came = {
                pair
                for pair, diff in zip(pairs_of(found), found["diff"], strict=True)
                if diff > 0
            }
            assert (near(self.template.rows[since]) - gone) | came == near(rows)

    def history(self):
        """The versions."""
        index, _ = self.index()
        told = index.history()
        assert {n: self.template.rows[n] for n in told.index}.keys() == set(told.index)
        assert told["rows"].tolist() == [len(self.template.rows[n]) for n in told.index]

    def quality(self):
        """How rows lie."""
        index, _ = self.index()
        if index.version == self.template.last:
            assert index.quality().numbers == self.template.quality

    def update(self):
        """An update, and all pairs then."""
        index, rows = self.index()
        index.update(frame(NEW), delete=["k20"], if_exists="replace", batch="new")
        after = {n: x for n, x in rows.items() if n != 20} | NEW
        assert unordered(
            dask_simjoin.open_index(self.where).pairs(math.nextafter(1, 2)).compute()
        ) == near(after)

    def again(self):
        """A batch that was taken in."""
        index, _ = self.index()
        if index.version > 1:
            assert index.update(batch="a").report.known

    def components(self):
        """Groups of rows."""
        index, rows = self.index()
        found = index.components().compute()
        assert set(found["id"]) == {f"k{n}" for n in rows}
        assert found["component"].nunique() == 1 + int(
            (np.diff(sorted(rows.values())) > 1).sum()
        )

    def vacuum(self):
        """Removing old versions, and all pairs then."""
        index, rows = self.index()
        index.vacuum(keep=1)
        assert unordered(dask_simjoin.open_index(self.where).pairs().compute()) == near(
            rows
        )

    def optimize(self):
        """Putting rows in order, and all pairs then."""
        index, rows = self.index()
        index.optimize("all")
        assert unordered(dask_simjoin.open_index(self.where).pairs().compute()) == near(
            rows
        )


READING = ("open", "rows", "pairs", "found", "changes", "history", "quality", "again")
CHANGING = ("update", "components", "vacuum", "optimize")


def pairs_of(found):
    """Pairs of a frame, unordered, in its order."""
    return [frozenset(pair) for pair in zip(found["left"], found["right"], strict=True)]


def unordered(found):
    """Pairs of a frame, which are not to repeat."""
    assert len(as_set(found)) == len(found)
    return set(pairs_of(found))


def outcome(call, damage):
    """What a call gave, in a word; what begins with "FAULT" must not be."""
    forget()
    try:
        call()
    except IndexFormatError as error:
        return (
            "refused"
            if not damage.harmless and str(error).startswith("'")
            else f"FAULT refused: {error}"
        )
    except VersionGoneError as error:
        kinds = "gone", "renamed", "swap", "kind"
        gone = damage.file.endswith(".json") and damage.kind in kinds
        return "version gone" if gone else f"FAULT gone: {error}"
    except AssertionError:
        return "FAULT wrong result"
    except Exception as error:
        return f"FAULT {type(error).__name__}: {str(error)[:200]}"
    return "right"


def found_by_check(path, where, damage):
    """Whether `check` names the damaged file, and no other."""
    forget()
    known = sorted((path / MANIFESTS).glob("0*.json"))
    for one in known:
        try:
            index = dask_simjoin.open_index(where, version=int(one.stem))
        except (IndexFormatError, VersionGoneError):
            continue
        told = {one.file for one in index.check().damage}
        file = path / damage.file
        first = f"{damage.template.first:020d}.json"
        if (
            file.name == first and file.is_file() and is_tombstone(file.read_bytes())
        ):  # as if a vacuum had removed it
            return not told
        needless = damage.file.endswith(".json") or damage.folder == "components"
        if damage.harmless or (damage.kind == "gone" and needless):
            return not told
        if damage.kind == "renamed":
            return len(told) == 1
        return told == {damage.file}
    return True


def damages(count, seed=0, calls=(*READING, *CHANGING), store=False):
    """Try so many damages; tells how often each outcome was, by the call, and lists
    what must not be.
    """
    told, faults = collections.Counter(), []
    with (
        tempfile.TemporaryDirectory() as folder,
        a_place("memory") if store else contextlib.nullcontext(),
        dask.config.set(scheduler="sync"),
    ):
        template = Template(Path(folder) / "template")
        for number in range(seed, seed + count):
            damage = Damage(template, number)
            if store and damage.kind == "folder":
                continue
            for name in (*calls, "check"):
                path = Path(folder) / "copy"
                if name not in READING or not path.exists():
                    shutil.rmtree(path, ignore_errors=True)
                    shutil.copytree(template.path, path)
                    changed = damage.make(path)
                    where = on_store(path) if store else path
                if name == "check":
                    known = not (changed or damage.harmless) or found_by_check(
                        path, where, damage
                    )
                    word = "right" if known else "FAULT not found"
                else:
                    word = outcome(getattr(Calls(path, where, template), name), damage)
                told[name, word if not word.startswith("FAULT") else "FAULT"] += 1
                if word.startswith("FAULT"):
                    faults.append((number, damage.kind, damage.file, name, word))
            shutil.rmtree(Path(folder) / "copy", ignore_errors=True)
    return told, faults


def main():
    """Print the counts; exits with 1 if something must not be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    told, faults = damages(asked.damages, asked.seed, store=asked.store)
    print(pd.Series(told).unstack(fill_value=0).to_string())
    print(collections.Counter(word for (_, word), n in told.items() for _ in range(n)))
    for fault in faults:
        print(*fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
