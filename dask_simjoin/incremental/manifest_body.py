"""A manifest as JSON and back: what does not look like one is refused, also where its checksum is right."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from dask_simjoin.incremental.entries import DeletedFile, KeyFile, MarkFile, PairFile, RowFile, StoredPairs
from dask_simjoin.incremental.types import Manifest, Options

FILE_NAME = re.compile(r"(?:[0-9a-f]{32}|[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16})\.parquet")
"""What files that a manifest names are called: no path leads out of the index's folders."""

TUPLES = ("on", "keep", "names", "cut")
"""What of options is a tuple, and in JSON a list."""

HINTS: dict[Any, dict[str, Any]] = {
    kind: typing.get_type_hints(kind)
    for kind in (Manifest, Options, RowFile, DeletedFile, KeyFile, PairFile, MarkFile)
}
"""The types of all fields."""

Entry = TypeVar("Entry")


def to_json(manifest: Manifest) -> dict[str, Any]:
    """Make what JSON can have of a manifest."""
    body = dataclasses.asdict(manifest)
    body["options"]["p"] = "inf" if manifest.options.p == math.inf else manifest.options.p
    return body


def from_json(body: Any) -> Manifest:
    """Make the manifest; raises `ValueError`, `TypeError`, `LookupError` or `AttributeError` otherwise."""
    own, pairs = dict(body["options"]), body.get("pairs", {})
    own |= {name: tuple(own[name]) for name in TUPLES}
    options = Options(**own | {"p": math.inf if own["p"] == "inf" else own["p"]})
    manifest = Manifest(**body | {
        "options": options,
        "files": _entries(RowFile, body["files"]),
        "deleted": _entries(DeletedFile, body["deleted"]),
        "keys": _entries(KeyFile, body["keys"]),
        "pairs": StoredPairs(
            _entries(PairFile, pairs.get("files", ())), _entries(MarkFile, pairs.get("marks", ()))
        ),
        "earlier": tuple(body.get("earlier", ())),
    })  # fmt: skip
    for one in (options, manifest):
        for name, hint in HINTS[type(one)].items():
            if not _fits(getattr(one, name), hint):
                raise ValueError(f"{name} is none")
    for name in (options.example, *manifest.earlier):
        _check_name(name)
    return manifest


def _entries(kind: type[Entry], told: Any) -> tuple[Entry, ...]:
    """Make entries of files."""
    hints = HINTS[kind]
    for one in told:
        for name, hint in hints.items():
            if type(one[name]) is not hint:
                raise ValueError(f"{name} of a file is none")
            if hint is str:
                _check_name(one[name])
    return tuple(kind(**one) for one in told)


def _check_name(name: str) -> None:
    if not FILE_NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not the name of a file of an index")


def _fits(value: object, hint: Any) -> bool:
    """Tell whether a value is of the type that a field has."""
    of, parts = typing.get_origin(hint), typing.get_args(hint)
    if of in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in parts)
    if of is tuple:
        return isinstance(value, tuple) and all(_fits(one, parts[0]) for one in value)
    if of is Mapping:
        return isinstance(value, dict) and all(_fits(one, parts[1]) for one in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint
