"""Manifests as files: one a version, with a checksum, none of which is ever changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dask_simjoin.errors import IndexFormatError, VersionGoneError
from dask_simjoin.incremental.entries import DeletedFile, KeyFile, MarkFile, PairFile, RowFile, StoredPairs
from dask_simjoin.incremental.types import Manifest, Options

FORMAT = 1
"""Of the files; readers refuse those of larger numbers."""

DIGITS = 20
"""Of versions in names of files, so that names are in order."""

ENDING = ".json"

LISTINGS = 100
"""How often versions are listed to read the last one: each time more a vacuum has removed it meanwhile."""


def manifest_path(root: Path, version: int) -> Path:
    """Where the manifest of a version is."""
    return root / "_versions" / f"{version:0{DIGITS}d}{ENDING}"


def versions(root: Path) -> list[int]:
    """Numbers of the versions of which there are files, ascending; some may be damaged."""
    try:
        names = [path.name for path in (root / "_versions").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    stems = [name.removesuffix(ENDING) for name in names if name.endswith(ENDING)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def latest(root: Path) -> Manifest:
    """Read the manifest of the last version that is whole.

    It is no older than the last version at the call, though a listing may miss files that come or go while it
    is made: where one of those is missed, all before it are gone, and the versions are listed again.
    """
    for _ in range(LISTINGS):
        known = versions(root)
        if not known:
            continue
        try:
            for version in reversed(known):
                manifest = _read(root, version)
                if manifest is not None:
                    return manifest
        except FileNotFoundError:
            continue
        break
    what = f"{len(known)} versions, all damaged" if known else "no version of one"
    raise IndexFormatError(
        f"path={str(root)!r} holds no index: it has {what}. Make one with frame.simjoin.index(eps, path), or "
        "name the folder of one."
    )


def is_damaged(root: Path, version: int) -> bool:
    """Whether there is a manifest of a version that cannot be read."""
    try:
        return _read(root, version) is None
    except FileNotFoundError:
        return False


def read_manifest(root: Path, version: int) -> Manifest:
    """Read the manifest of a version; refuses one that is not there."""
    try:
        manifest = _read(root, version)
    except (FileNotFoundError, NotADirectoryError):
        manifest = None
    if manifest is None:
        there = versions(root)
        some = f"those from {there[0]} to {there[-1]} are" if there else "none is"
        raise VersionGoneError(
            f"Version {version} of the index at {str(root)!r} is not there; {some}. vacuum(keep=...) "
            "keeps more of them; a consumer that comes too late starts from pairs()."
        )
    return manifest


def back_to(root: Path, manifest: Manifest, since: int) -> Iterator[Manifest]:
    """Go from a version back to the first one after `since`, by parents; refuses to where one is gone."""
    while manifest.version > since:
        yield manifest
        if manifest.parent is None:
            break
        manifest = read_manifest(root, manifest.parent)
    if manifest.version != since:
        raise VersionGoneError(
            f"Version {since} is none that version {manifest.version} of the index at {str(root)!r} was made "
            "of; use one that history() names."
        )


def encoded(manifest: Manifest, token: str) -> bytes:
    """A manifest as a file has it; `token`: of the attempt, so that no two have the same content."""
    body = dataclasses.asdict(manifest)
    body["options"]["p"] = "inf" if manifest.options.p == math.inf else manifest.options.p
    whole = {"format": FORMAT, "checksum": _checksum(body), "written_by": token, "manifest": body}
    return json.dumps(whole, indent=1).encode()


def _checksum(body: dict[str, Any]) -> str:
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def _read(root: Path, version: int) -> Manifest | None:
    """The manifest of a version; None: it is damaged."""
    path = manifest_path(root, version)
    try:
        content = json.loads(path.read_bytes())
        body, checksum, number = content["manifest"], content["checksum"], content["format"]
    except (ValueError, TypeError, KeyError):
        return None
    if number != FORMAT:
        raise IndexFormatError(
            f"{str(path)!r} is of format {number!r}, and this version of dask_simjoin reads {FORMAT}; use "
            "a newer one, or make the index anew."
        )
    if checksum != _checksum(body):
        return None
    own = body["options"]
    lists = {name: tuple(own[name]) for name in ("on", "keep", "names", "cut")}
    options = Options(**own | lists | {"p": math.inf if own["p"] == "inf" else own["p"]})
    files = {
        "files": tuple(RowFile(**one) for one in body["files"]),
        "deleted": tuple(DeletedFile(**one) for one in body["deleted"]),
        "keys": tuple(KeyFile(**one) for one in body["keys"]),
        "pairs": _stored(body.get("pairs", {})),
    }
    return Manifest(**body | files | {"options": options, "earlier": tuple(body.get("earlier", ()))})


def _stored(body: dict[str, Any]) -> StoredPairs:
    files, marks = body.get("files", ()), body.get("marks", ())
    return StoredPairs(tuple(PairFile(**one) for one in files), tuple(MarkFile(**one) for one in marks))
