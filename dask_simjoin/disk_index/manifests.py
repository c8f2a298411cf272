"""Manifests. There is one file per version, which lists the files of the version and
never changes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from dask_simjoin.disk_index.checksums import damaged
from dask_simjoin.disk_index.folders import (
    REMOVED,
    Folder,
    field_of,
    folder_of,
    is_tombstone,
)
from dask_simjoin.disk_index.manifest_checks import check_manifest
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import (
    DeletedFile,
    KeyFile,
    Manifest,
    MarkFile,
    Options,
    PairFile,
    RowFile,
    StoredPairs,
)
from dask_simjoin.errors import IndexFormatError, IndexStoreError, VersionGoneError
from dask_simjoin.sizes import TRIES

FILE_NAME = re.compile(
    r"(?:[0-9a-f]{32}|[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16})\.parquet"
)
"""The allowed names of files in manifests. No such name can lead out of the folders of
the index.
"""

TUPLES = ("on", "keep", "names", "cut")
"""Fields of `Options` that are tuples in memory and lists in JSON."""

HINTS: dict[Any, dict[str, Any]] = {
    kind: typing.get_type_hints(kind)
    for kind in (Manifest, Options, RowFile, DeletedFile, KeyFile, PairFile, MarkFile)
}
"""Class of an entry -> the types of its fields."""

Entry = TypeVar("Entry")


def to_json(manifest: Manifest) -> dict[str, Any]:
    body = dataclasses.asdict(manifest)
    body["options"]["p"] = (
        "inf" if manifest.options.p == math.inf else manifest.options.p
    )
    return body


def from_json(body: Any) -> Manifest:
    """Parse a manifest, and check its values.

    If it is invalid, raise `ValueError`, `TypeError`, `LookupError` or
    `AttributeError`.
    """
    own, pairs = dict(body["options"]), body.get("pairs", {})
    own |= {name: tuple(own[name]) for name in TUPLES}
    options = Options(**own | {"p": math.inf if own["p"] == "inf" else own["p"]})
    manifest = Manifest(
        **body
        | {
            "options": options,
            "files": _entries(RowFile, body["files"]),
            "deleted": _entries(DeletedFile, body["deleted"]),
            "keys": _entries(KeyFile, body["keys"]),
            "pairs": StoredPairs(
                _entries(PairFile, pairs.get("files", ())),
                _entries(MarkFile, pairs.get("marks", ())),
            ),
            "earlier": tuple(body.get("earlier", ())),
        }
    )
    for one in (options, manifest):
        for name, hint in HINTS[type(one)].items():
            if not _fits(getattr(one, name), hint):
                raise ValueError(f"its {name!r} has the wrong type")
    for name in (options.example, *manifest.earlier):
        _check_name(name)
    check_manifest(manifest)
    return manifest


def _entries(kind: type[Entry], entries: Any) -> tuple[Entry, ...]:
    hints = HINTS[kind]
    for one in entries:
        for name, hint in hints.items():
            if type(one[name]) is not hint:
                raise ValueError(f"the {name!r} of a file has the wrong type")
            if hint is str:
                _check_name(one[name])
    return tuple(kind(**one) for one in entries)


def _check_name(name: str) -> None:
    if not FILE_NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not the name of a file of an index")


def _fits(value: object, hint: Any) -> bool:
    of, parts = typing.get_origin(hint), typing.get_args(hint)
    if of in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in parts)
    if of is tuple:
        return isinstance(value, tuple) and all(_fits(one, parts[0]) for one in value)
    if of is Mapping:
        return isinstance(value, dict) and all(
            _fits(one, parts[1]) for one in value.values()
        )
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


FORMAT = 1
"""The format of index files that this version of the package writes.

Files of later formats raise an error.
"""

UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Format -> function that converts the body of a manifest to the next format.

Indexes in older formats are read by these functions. Their next version is written in
`FORMAT`.
"""

DIGITS = len(str(2**64))
"""Number of digits for versions in file names, so that the names sort by version."""

ENDING = ".json"

NAME = re.compile(rf"([0-9]{{{DIGITS}}})\{ENDING}")
"""Names of manifests. All other files in the folder are ignored."""


VERSIONS = "_versions"
"""Name of the folder of manifests."""


def manifest_name(version: int) -> str:
    return f"{version:0{DIGITS}d}{ENDING}"


def manifest_path(root: AnyPath, version: int) -> AnyPath:
    return root / VERSIONS / manifest_name(version)


def manifests_of(root: AnyPath) -> Folder:
    return folder_of(root / VERSIONS)


OLDEST = ".oldest"
"""Name of a file with the last version number that a vacuum has removed. Versions are
listed from that number on. Older names are only tombstones.
"""


def versions(root: AnyPath, above: int = 0) -> list[int]:
    """List the versions above `above` that have a manifest, ascending. The manifests
    may be damaged.
    """
    folder = manifests_of(root)
    first = above or _last_removed(folder)
    found = _numbers(folder.names(manifest_name(first)))
    if not found and first > above:  # that number is wrong, so list all names
        found = _numbers(folder.names(manifest_name(0)))
    return found


def _last_removed(folder: Folder) -> int:
    try:
        return int(folder.read(OLDEST))
    except IndexStoreError:
        raise
    except (OSError, ValueError):
        return 0


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(match[1]) for match in map(NAME.fullmatch, names) if match]


def bury(root: AnyPath, version: int) -> int:
    """Replace a manifest by a tombstone. Return the bytes of the manifest.

    Return 0 if it is gone already, or if it is not a regular file.
    """
    folder, name = manifests_of(root), manifest_name(version)
    try:
        content = folder.read(name)
    except IndexStoreError:
        raise
    except OSError:
        return 0
    if is_tombstone(content):
        return 0
    folder.bury(name)
    return len(content)


def written_by(content: bytes) -> str:
    """Return the token of the attempt that wrote a manifest; "" if the manifest is
    damaged or removed.
    """
    token = field_of(content, "written_by")
    return token if isinstance(token, str) else ""


def latest(root: AnyPath) -> Manifest:
    """Read the manifest of the last version. Raise an error if it is damaged.

    The result is at least as new as the last version at the time of the call. While
    versions are listed, others may be added or removed. So if the last version in the
    list is gone, list again.
    """
    for _ in range(TRIES):
        known = versions(root)
        found = _read(root, known[-1]) if known else None
        if isinstance(found, Manifest):
            return found
        if found is not None:
            raise _damaged_last(root, known, found)
    if known:
        raise _damaged_last(root, known, "it is listed, but missing")
    raise IndexFormatError(
        f"{str(root)!r} holds no index, as it has no version. Make an index with "
        "frame.simjoin.index(eps, path), or name the folder of an index."
    )


def read_manifest(root: AnyPath, version: int) -> Manifest:
    """Read the manifest of a version. Raise an error if it is damaged or missing."""
    found = _read(root, version)
    if isinstance(found, Manifest):
        return found
    if found is not None:
        raise damaged(manifest_path(root, version), found)
    there = versions(root)
    some = "none remains"
    if there:
        several = f"versions {there[0]} to {there[-1]} remain"
        some = several if len(there) > 1 else f"version {there[0]} remains"
    raise VersionGoneError(
        f"Version {version} of the index at {str(root)!r} does not exist; {some}. To "
        "get all "
        "current pairs instead, use pairs(). To keep more versions, use "
        "vacuum(keep=...)."
    )


def intact(root: AnyPath, some: Iterable[int]) -> list[Manifest]:
    """Read the manifests of some versions, and skip those that are missing or damaged."""
    found = (_read(root, version) for version in some)
    return [one for one in found if isinstance(one, Manifest)]


def damage_of(root: AnyPath, version: int) -> str:
    """Return why the manifest of a version is damaged or cannot be read; "" if it is
    intact or does not exist.
    """
    try:
        found = _read(root, version)
    except IndexFormatError as error:
        return str(error)
    return found if isinstance(found, str) else ""


def _damaged_last(root: AnyPath, known: list[int], what: str) -> IndexFormatError:
    """Return the error for a damaged manifest of the last version. It says how to
    continue.
    """
    older = next((one for one in reversed(known[:-1]) if intact(root, [one])), None)
    remedy = (
        "No older version is intact: copy the file back from a backup, or make a new "
        "index."
        if older is None
        else f"Copy it back from a backup. Or continue from version {older}, the newest intact one, without "
        f"later changes: open_index(path, version={older}).restore({older}) makes a "
        "new version."
    )
    return damaged(
        manifest_path(root, known[-1]),
        f"{what}, and it belongs to the last version",
        remedy,
    )


def back_to(root: AnyPath, manifest: Manifest, since: int) -> Iterator[Manifest]:
    """Yield a version and its ancestors that are newer than `since`, the newest first.

    Raise an error if one of them is missing.
    """
    while manifest.version > since:
        yield manifest
        if manifest.parent is None:
            break
        manifest = read_manifest(root, manifest.parent)
    if manifest.version != since:
        raise VersionGoneError(
            f"Version {since} is not an ancestor of version {manifest.version} of the "
            "index at "
            f"{str(root)!r}; use one that history() lists."
        )


def encoded(manifest: Manifest, token: str) -> bytes:
    """Return the content of a manifest file. The token of the attempt makes it unique."""
    body = to_json(manifest)
    content = {
        "format": FORMAT,
        "checksum": _checksum(body),
        "written_by": token,
        "manifest": body,
    }
    return json.dumps(content, indent=1).encode()


def _checksum(body: Any) -> str:
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def _read(root: AnyPath, version: int) -> Manifest | str | None:
    """Read the manifest of a version. Return the reason as text if it is damaged, None
    if it is missing or removed.
    """
    found = _parsed(root, version)
    is_removed = isinstance(found, str) and version <= _last_removed(manifests_of(root))
    return None if is_removed else found  # a damaged tombstone does no harm


def _parsed(root: AnyPath, version: int) -> Manifest | str | None:
    path = manifest_path(root, version)
    try:
        content = json.loads(manifests_of(root).read(path.name))
        if isinstance(content, dict) and content.get(REMOVED) is True:
            return None
        body, checksum, number = (
            content["manifest"],
            content["checksum"],
            content["format"],
        )
        is_intact = checksum == _checksum(body)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IndexStoreError:
        raise
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    except (ValueError, TypeError, LookupError, RecursionError):
        return "it is not the JSON of a manifest"
    oldest = min(UPGRADES, default=FORMAT)
    readable = f"{FORMAT}" if oldest == FORMAT else f"{oldest} to {FORMAT}"
    if type(number) is not int or not oldest <= number <= FORMAT:
        raise IndexFormatError(
            f"{str(path)!r} is of format {repr(number)[:80]}, and this version of "
            "dask_simjoin reads "
            f"{readable}; install a newer version, or make a new index."
        )
    if not is_intact:
        return "its checksum does not match its content"
    try:
        for older in range(number, FORMAT):
            body = UPGRADES[older](body)
        found = from_json(body)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return f"it is not a manifest ({error})"
    return (
        found
        if found.version == version
        else f"it is the manifest of version {found.version}"
    )
