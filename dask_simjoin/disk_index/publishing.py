"""Publish a manifest under the next version number. No number is used twice.

An attempt is one try to make a version. The names of its files begin with the token of
the attempt, so files of lost tasks can be found, too. The lease is an empty file that
exists as long as the attempt lasts. After writing a file, each task checks whether the
lease still exists. If not, the attempt is over, and the task removes its file again.

The rules and a proof are in docs/explanation/versions.md. In short: making a version
fails if its number is taken, and a number stays taken after its version was removed. So
the next version is made once, from the last one.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.disk_index.checksums import ChecksumWriter
from dask_simjoin.disk_index.files import (
    FOLDERS,
    PAIRS,
    of_attempt,
    read_file,
    write_named,
    write_table,
)
from dask_simjoin.disk_index.folders import Folder, Unconfirmed, sync_folder, writing
from dask_simjoin.disk_index.manifests import (
    damage_of,
    encoded,
    manifest_name,
    manifests_of,
    versions,
    written_by,
)
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import BatchContent, Manifest
from dask_simjoin.errors import (
    IndexConflictError,
    IndexStoreError,
    IndexWriteError,
)

DIGITS, OWN_DIGITS = 16, 8
"""Numbers of hexadecimal digits: of a token, and of the part that makes a name unique
within the attempt.
"""


@dataclass(eq=False)
class Transaction:
    """One attempt to make a version."""

    root: AnyPath  # folder of the index
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:DIGITS])
    """The names of the attempt's files begin with this token."""
    # whether files stay after the attempt, because a version lists them, or may list
    # them
    kept: bool = False

    @property
    def lease(self) -> AnyPath:
        """The file that exists as long as the attempt lasts."""
        return self.root / FOLDERS[0] / f".{self.token}.lease"

    def write(
        self, folder: str, write: Callable[[ChecksumWriter], object]
    ) -> tuple[str, int]:
        """Write and sync a new file; return its name and its size in bytes."""
        first = f"{self.token}-{uuid.uuid4().hex[:OWN_DIGITS]}"
        try:
            with self.held():
                return write_named(self.root / folder, write, first)
        except IndexConflictError:
            for path in of_attempt(self.root / folder, first):
                path.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise an error if the lease is gone at the end of the block, so that the
        attempt is over. A vacuum may then have removed its files.
        """
        try:
            yield
        finally:
            if not self.lease.exists():
                raise IndexConflictError(
                    f"The update of the index at {str(self.root)!r} ended before this "
                    "task had written its file: it failed, or took longer than a day. "
                    "Nothing was changed. Repeat the update with fewer rows at a time."
                )

    def end(self) -> None:
        """Remove the lease, and also the files unless a version needs them."""
        # if the store cannot be reached, give up, because each request may wait for
        # minutes
        with contextlib.suppress(IndexStoreError):
            self._remove()

    def _remove(self) -> None:
        with _leftovers():
            self.lease.unlink(missing_ok=True)
        if self.kept:
            return
        for folder in (*FOLDERS, PAIRS):
            with _leftovers():
                for path in of_attempt(self.root / folder, self.token):
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _leftovers() -> Iterator[None]:
    """Ignore errors when files are removed from a disk, because a later vacuum removes
    these files.
    """
    try:
        yield
    except IndexStoreError:
        raise
    except OSError:
        pass


@contextlib.contextmanager
def transaction(root: AnyPath) -> Iterator[Transaction]:
    """Begin an attempt. When it ends, remove its files, unless a version lists them."""
    own = Transaction(root)
    with writing(own.lease):
        own.lease.touch(exist_ok=False)
    try:
        yield own
    finally:
        own.end()


MAX_BATCHES = 512
"""A manifest has at most this many batch names. If there are more, they move to a file
that later versions share.
"""

BATCH, MADE, CONTENT = "batch", "version", "content"


class Batches(NamedTuple):
    """The batches that a manifest lists."""

    last: dict[str, int]  # see `Manifest.batches`
    earlier: tuple[str, ...]  # see `Manifest.earlier`
    contents: dict[str, str]  # see `Manifest.contents`
    size: int  # number of bytes written to move batches to a file


class CommittedBatch(NamedTuple):
    """A batch that was committed."""

    version: int  # the version that the batch made
    # None if the version was made by a release of this package that did not record the
    # content
    content: BatchContent | None


def made_by(
    root: AnyPath, manifest: Manifest, batch: str | None
) -> CommittedBatch | None:
    """Return the committed batch with this name; None if there is none."""
    if batch is None:
        return None
    if batch in manifest.batches:
        return _committed(manifest.batches[batch], manifest.contents.get(batch))
    for name in reversed(manifest.earlier):
        table = read_file(root / FOLDERS[0] / name)
        row = pc.index(table[BATCH], batch).as_py()
        if row >= 0:
            content = (
                table[CONTENT][row].as_py() if CONTENT in table.column_names else None
            )
            return _committed(table[MADE][row].as_py(), content)
    return None


def _committed(version: int, content: str | None) -> CommittedBatch:
    return CommittedBatch(version, BatchContent.parse(content) if content else None)


def with_batch(
    own: Transaction,
    parent: Manifest,
    batch: str | None,
    version: int,
    content: BatchContent | None = None,
) -> Batches:
    """Add a batch to the batches of a manifest. If there are too many, they move to a
    file.
    """
    last, contents, earlier, size = (
        dict(parent.batches),
        dict(parent.contents),
        parent.earlier,
        0,
    )
    if batch is not None:
        if len(last) >= MAX_BATCHES:
            texts = pa.array([contents.get(name) for name in last], pa.string())
            table = pa.table(
                {BATCH: list(last), MADE: list(last.values()), CONTENT: texts}
            )
            name, size = own.write(FOLDERS[0], lambda file: write_table(table, file))
            sync_folder(own.root / FOLDERS[0])
            last, contents, earlier = {}, {}, (*earlier, name)
        last[batch] = version
        if content is not None:
            contents[batch] = str(content)
    return Batches(last, earlier, contents, size)


TEMPORARY_NAME = re.compile(
    r"\.(?:[0-9a-f]{16}\.lease|[0-9a-f]{32}\.manifest"
    r"|(?:(?:[0-9a-f]{16}-[0-9a-f]{8}|[0-9]{20})-)?[0-9a-f]{32}\.tmp)"
)
"""The names of the temporary files of an index: leases, and files that are being
written. Earlier versions of this package also made temporary manifests.
"""


def base_of(root: AnyPath, manifest: Manifest) -> int | None:
    """Return the largest version number in use. Return None if an intact version is
    newer than `manifest`.

    The number is above `manifest.version` if there are newer manifests, but all of them
    are damaged.
    """
    newer = versions(root, manifest.version)
    if not all(damage_of(root, number) for number in newer):
        return None
    return newer[-1] if newer else manifest.version


class Outcome(Enum):
    """The result of publishing a version."""

    PUBLISHED = "this attempt has made the version"
    OVERTAKEN = "another attempt has taken the number"


def publish(own: Transaction, base: int, manifest: Manifest) -> Outcome:
    """Publish a manifest as the version after `base`."""
    outcome = _created(own, manifest_name(base + 1), encoded(manifest, own.token))
    if outcome is Outcome.PUBLISHED:
        sync_folder(own.root / FOLDERS[0])
    return outcome


ATTEMPTS = 3
"""Number of attempts to publish a version: while other writers publish theirs, or if no
answer comes. The client of a store also repeats each request by itself.
"""


def _created(own: Transaction, name: str, content: bytes) -> Outcome:
    folder, unknown = manifests_of(own.root), None
    # from now on the files must stay, unless no version can list them
    own.kept = True
    for _ in range(ATTEMPTS):
        try:
            folder.create(name, content)
            return Outcome.PUBLISHED
        except FileExistsError:
            return _of_taken(own, folder, name)
        except Unconfirmed as error:
            unknown = error
        except IndexWriteError:
            own.kept = unknown is not None
            raise
    raise IndexStoreError(
        f"{str(own.root / FOLDERS[0] / name)!r} was not confirmed, so the version may "
        f"or may not exist: {unknown}"
    ) from unknown


def _of_taken(own: Transaction, folder: Folder, name: str) -> Outcome:
    """Return the outcome if the number is taken, perhaps by this attempt: an answer may
    be lost.
    """
    try:
        token = written_by(folder.read(name))
    except IndexStoreError:
        raise
    except OSError:
        token = ""
    # a manifest that is damaged or removed may have been this attempt's
    own.kept = token in ("", own.token)
    return Outcome.PUBLISHED if token == own.token else Outcome.OVERTAKEN
