"""Requests of an index on disk."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from fsspec.core import url_to_fs

from dask_simjoin.disk_index.types import SEQ
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import NO_UNICODE, is_unicode, listed, shown
from dask_simjoin.request.options import Coordinates, Distance, Kept, Size, about
from dask_simjoin.request.requests import DISTANCE, SelfJoinRequest
from dask_simjoin.request.resolve import check_flag
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import as_number, check_choice, check_eps, check_whole, is_number, parsed

Policy = Literal["auto", "always", "never"]
IfExists = Literal["fail", "replace", "ignore"]

POLICIES = get_args(Policy)
IF_EXISTS = get_args(IfExists)

STORED = (f"{SEQ}_left", f"{SEQ}_right")
"""Columns of files of pairs, besides those that pairs have: the rows' numbers."""

DIFF = "diff"
"""The column of changes that tells which pairs came and which went."""

ROW_GROUP = 16_384
LARGEST_GROUP = 65_536

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class MakeIndex(Coordinates, Kept):
    """Ask for an index on disk of the rows of a table."""

    eps: Distance = field(kw_only=False, metadata=DISTANCE)
    path: PathLike = field(kw_only=False, metadata=about("folder of the index"))
    return_distance: bool = field(default=False, metadata=about("add the distance of each pair"))
    store_pairs: bool = field(default=False, metadata=about("also write pairs to the folder"))
    recluster: Policy | float = field(
        default="auto", metadata=about("when to compact: a policy, or a scan ratio")
    )
    row_group: int = field(default=ROW_GROUP, metadata=about("rows of a row group"))
    blocksize: Size = field(default=None, metadata=about("size of a chunk", unit="bytes"))

    def spec(self, meta: Frame) -> JoinSpec:
        """Resolve it for frames like `meta`."""
        if parsed(self.eps) is None:
            check_eps(self.eps, "eps")  # no column: pairs of an index are of one distance
        own = {option.name: getattr(self, option.name) for option in fields(self)}
        spec = SelfJoinRequest(**{name: own[name] for name in own if name in SHARED}).spec(meta)
        from dask_simjoin.disk_index.schema import check_names

        check_names([*spec.on, *([] if spec.id is None else [spec.id]), *spec.keep])
        return spec

    @property
    def root(self) -> Path:
        """The folder."""
        return check_path(self.path)

    def stored(self, names: tuple[str, ...]) -> bool:
        """Whether pairs are stored; refuses `names` of kept columns that results have of their own."""
        stored = check_flag("store_pairs", self.store_pairs)
        if DIFF in names:
            raise OptionError(
                f"changes() tells by a column {DIFF!r} which pairs came and which went, and keep= makes one "
                "called so, too; use other suffixes=, such as ('_left', '_right'), or rename the column."
            )
        taken = [name for name in names if name in STORED]
        if stored and taken:
            raise OptionError(
                f"store_pairs=True writes columns {listed(STORED)} of its own, and keep= makes others called "
                f"{listed(taken)}; use other suffixes=, such as ('_left', '_right'), or rename the column."
            )
        return stored

    @property
    def policy(self) -> str | float:
        """When rows are put in order anew."""
        if is_number(self.recluster):
            if not as_number(self.recluster) >= 1:
                raise OptionError(
                    f"recluster={shown(self.recluster)} is not allowed; as a number it is the scan ratio "
                    "from which on rows are put in order anew: use one >= 1, or a policy."
                )
            return as_number(self.recluster)
        check_choice("recluster", self.recluster, POLICIES)
        return str(self.recluster)

    @property
    def group(self) -> int:
        """Rows of a row group."""
        rows = check_whole("row_group", self.row_group, 1)
        if rows > LARGEST_GROUP or rows & (rows - 1):
            raise OptionError(
                f"row_group={shown(self.row_group)} is not allowed; use a power of two up to "
                f"{LARGEST_GROUP:,}, such as {ROW_GROUP:,}: the rows of a row group."
            )
        return rows


SHARED = {option.name for option in fields(SelfJoinRequest)} & {option.name for option in fields(MakeIndex)}


def check_path(path: Any) -> Path:
    """A folder as a `Path`; refuses what names none."""
    if not isinstance(path, (str, os.PathLike)):
        raise OptionTypeError(f"path={shown(path)} is not a path; use that of a folder, as a string.")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise OptionTypeError(f"path={shown(path)} is a path of bytes; use os.fsdecode(path).")
    if not text or "\0" in text:
        raise OptionError(
            f"path={text!r} names no folder; use a path that is not empty and has no null character."
        )
    if text.startswith("file://"):
        text = str(url_to_fs(text)[1])
    if "://" in text:
        raise OptionError(
            f"path={text!r} is on an object store, and an index needs a file system with links, so that of "
            "two writers one wins; use a folder that all workers share."
        )
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise OptionError(
            f"path={text!r} is in the home of a user who is not known; use a path from '/' on, or './~name'."
        ) from None


def check_version(version: Any, name: str) -> int:
    """A version's number."""
    return check_whole(name, version, 1)


def check_batch(batch: object) -> str | None:
    """The name of a batch."""
    if batch is not None and not isinstance(batch, str):
        raise OptionTypeError(f"batch={shown(batch)} is not a string; use such as '2026-01-31'.")
    if batch is not None and not is_unicode(batch):
        raise OptionError(f"batch={shown(batch)} is no name, {NO_UNICODE}.")
    return batch


def named(columns: tuple[Hashable, ...]) -> tuple[str, ...]:
    """Names of columns, which `check_names` found to be strings."""
    return tuple(str(name) for name in columns)
