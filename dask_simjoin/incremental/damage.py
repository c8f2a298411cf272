"""What is said of files of an index that are damaged or missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from dask_simjoin.errors import IndexFormatError, SimJoinError, VersionGoneError

REMEDY = (
    "`dask-simjoin index check` lists all damage. Copy the file back from a backup; or make the index anew, "
    "of the rows() of a version that does not need it: open_index(path, version=...)."
)


def damaged(path: Path, what: str, remedy: str = REMEDY) -> IndexFormatError:
    """Make the error of a file whose content is not what was written; `what`: why that is known."""
    return IndexFormatError(f"{str(path)!r} is damaged: {what}. {remedy}")


def missing(path: Path) -> IndexFormatError | VersionGoneError:
    """Make the error of a file that is not there: damage, if there is a version that has it."""
    for manifest in sorted(path.parent.parent.glob("_versions/*.json"), reverse=True):
        with contextlib.suppress(OSError):
            if path.name.encode() in manifest.read_bytes():
                version = int(manifest.stem) if manifest.stem.isascii() and manifest.stem.isdigit() else "?"
                return IndexFormatError(
                    f"{str(path)!r} is missing, and version {version} of the index needs it. {REMEDY}"
                )
    return VersionGoneError(
        f"{str(path)!r} is not there: vacuum(), or components() of newer versions, removed it, or this "
        "machine does not see the folder. Ask again, of a version that history() names; vacuum(keep=...) "
        "keeps more of them."
    )


@contextlib.contextmanager
def told_of(path: Path, checked: bool) -> Iterator[None]:
    """Refuse what cannot be read of a file by its name.

    `checked`: its bytes are known to be those that were written; others may be read as anything.
    """
    kinds = (OSError, pa.ArrowException) if checked else (OSError, pa.ArrowException, ValueError, LookupError)
    try:
        yield
    except (SimJoinError, MemoryError, pa.ArrowCancelled):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path) from None
    except kinds as error:
        raise damaged(path, f"it cannot be read ({' '.join(str(error).split())[:300]})") from error
