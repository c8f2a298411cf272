"""The verb that makes an index on disk, its request, and the function that opens an
index.

The other modules of the index are imported at the first call, because joins in memory
do not need them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import dask
from fsspec.core import url_to_fs

from dask_simjoin.calls.decorators import verb
from dask_simjoin.calls.inputs import example_ids
from dask_simjoin.catalog import LIBRARIES
from dask_simjoin.disk_index.manifest_checks import LARGEST_GROUP
from dask_simjoin.disk_index.stores import AnyPath, object_path
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.messages import listed, shown
from dask_simjoin.request.options import (
    Coordinates,
    Distance,
    Kept,
    Size,
    WithUnit,
    about,
    check_whole,
)
from dask_simjoin.request.requests import DISTANCE, SelfJoinRequest
from dask_simjoin.request.resolve import check_flag
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import (
    as_number,
    check_choice,
    check_eps,
    check_is_norm,
    check_metric,
    is_number,
    parsed,
)

if TYPE_CHECKING:
    from dask_simjoin.disk_index.index import Index

Policy = Literal["auto", "always", "never"]
POLICIES = get_args(Policy)

ROW_GROUP = 16_384
PathLike = str | os.PathLike[str]
StorageOptions = Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class MakeIndex(Coordinates, Kept, WithUnit):
    """The options of a new index."""

    eps: Distance = field(kw_only=False, metadata=DISTANCE)
    path: PathLike = field(kw_only=False, metadata=about("folder of the index"))
    return_distance: bool = field(
        default=False, metadata=about("add the distance of each pair")
    )
    store_pairs: bool = field(
        default=False, metadata=about("store the pairs on disk as well")
    )
    recluster: Policy | float = field(
        default="auto",
        metadata=about(
            "when to compact: auto, always, never, or a scan ratio that must be "
            "exceeded"
        ),
    )
    row_group: int = field(
        default=ROW_GROUP, metadata=about("number of rows per row group")
    )
    blocksize: Size = field(
        default=None, metadata=about("largest size of a chunk", unit="bytes")
    )
    storage_options: StorageOptions = field(
        default=None,
        repr=False,
        metadata=about("how to reach an object store, as for read_parquet"),
    )

    def spec(self, meta: Frame) -> JoinSpec:
        """Check the options, and return them as a `JoinSpec` for frames like `meta`."""
        if parsed(self.eps) is None:
            # this raises an error for a column of radii, because an index has a single
            # distance
            check_eps(self.eps, "eps")
        check_is_norm(check_metric(self.metric, self.p)[0])
        if isinstance(self.keep, Mapping):
            raise OptionTypeError(
                f"keep={shown(self.keep)} is a dict. An index keeps columns of both "
                "rows: use a column, or a list of columns."
            )
        own = {option.name: getattr(self, option.name) for option in fields(self)}
        spec = SelfJoinRequest(
            **{name: own[name] for name in own if name in SHARED}
        ).spec(meta)
        from dask_simjoin.disk_index.schema import check_names

        check_names([*spec.on, *([] if spec.id is None else [spec.id]), *spec.keep])
        return spec

    @property
    def root(self) -> AnyPath:
        return check_path(self.path, self.storage_options)

    def stored(self, names: tuple[str, ...]) -> bool:
        """Return whether pairs are stored. Raise an error if kept columns have names
        that results reserve.
        """
        from dask_simjoin.disk_index.index import DIFF
        from dask_simjoin.disk_index.pair_files import STORED

        stored = check_flag("store_pairs", self.store_pairs)
        if DIFF in names:
            raise OptionError(
                f"changes() marks added and removed pairs in a column {DIFF!r}, but "
                "keep= adds a column with "
                "this name, too. Use other suffixes=, such as ('_left', '_right'), or "
                "rename the column."
            )
        taken = [name for name in names if name in STORED]
        if stored and taken:
            raise OptionError(
                f"store_pairs=True writes columns {listed(STORED)}, and keep= adds "
                "columns with the names "
                f"{listed(taken)}; use other suffixes=, such as ('_left', '_right'), "
                "or rename the column."
            )
        return stored

    @property
    def policy(self) -> str | float:
        """When to compact: the name of a policy, or a number that the scan ratio must
        exceed.
        """
        if is_number(self.recluster):
            if not as_number(self.recluster) >= 1:
                raise OptionError(
                    f"recluster={shown(self.recluster)} is not allowed; use "
                    f"{', '.join(map(repr, POLICIES))}, or a number >= 1: rows are put "
                    "in order "
                    "once the scan ratio exceeds it."
                )
            return as_number(self.recluster)
        check_choice("recluster", self.recluster, POLICIES)
        return str(self.recluster)

    @property
    def group(self) -> int:
        """Number of rows per row group."""
        rows = check_whole("row_group", self.row_group, 1)
        if rows > LARGEST_GROUP or rows & (rows - 1):
            raise OptionError(
                f"row_group={shown(self.row_group)} is not allowed; use a power of two "
                "up to "
                f"{LARGEST_GROUP:,}, such as {ROW_GROUP:,}: the rows of a row group."
            )
        return rows


SHARED = {option.name for option in fields(SelfJoinRequest)} & {
    option.name for option in fields(MakeIndex)
}


@verb(MakeIndex)
def index(frame: Frame, request: MakeIndex) -> Index:
    """Write the rows to disk as an index that can be updated: each update returns only
    changed pairs.

    The index is written at once, as `to_parquet` does.

    Parameters
    ----------
    eps : float or str
        Largest distance of the maintained pairs, finite and >= 0, or a text with a
        unit; see `self_join`.
    path : str or path
        A new or empty folder that all workers share, on a file system with hard links.
        Or a URL of an object store: ``s3://``, ``gs://``, ``az://`` or ``abfs://``.
    on, metric, id, return_distance, distance_unit, keep, suffixes, dropna, p
        As for `self_join`. All distances of the index have the unit in `eps`, or
        `distance_unit`. Column names must be strings. Ids must stay unique as the index
        grows.
    blocksize : int or str, optional
        Memory of a chunk. It limits how many ids the check for duplicate ids compares
        at once, and how many rows a file has.
    storage_options : dict, optional
        How to reach an object store: options of obstore, or key, secret, token,
        endpoint_url and anon of s3fs.  By default each process reads its environment
        variables.
    store_pairs : bool, default False
        You rarely need it. Also write pairs to the folder. Then `pairs` and `changes`
        read pairs instead of computing them. Each update computes the pairs that it
        adds before it commits.
    recluster : {"auto", "always", "never"} or float, default "auto"
        You need not change it. When to compact the index: "auto" compacts once needless
        reads have cost as much as a compaction, "always" after each update, "never" not
        at all. A number compacts once the scan ratio exceeds it: see `quality`.
    row_group : int, default 16384
        You need not change it. Rows per row group: a power of two. A row group is
        always read as a whole. Smaller row groups speed up updates of few scattered
        rows, and slow down other work.

    Returns
    -------
    Index
        See its methods: `update`, `delete`, `pairs`, `changes`, `join`, `rows`,
        `persist`, `history`, `restore`, `vacuum`, `check`.

    Raises
    ------
    OptionError
        `path` is not a new or empty folder, or it cannot hold an index.
    OptionTypeError, ColumnError, CoordinateError, DuplicateIdError
        As for `self_join`.
    IndexWriteError
        The disk is full, or writing fails for another reason.  No file is left: try
        again.
    IndexStoreError
        An object store cannot be reached, or refuses a request.

    Notes
    -----
    RE-JOIN (Korkmaz 2012, MSc thesis, Bilkent University, section 4.4) keeps old pairs
    and finds only pairs of new rows.  The index extends it to deletions and to rows on
    disk.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> day1 = pd.DataFrame({"key": [1, 2, 3], "x": [0.0, 1.0, 9.0]})
    >>> idx = day1.simjoin.index(1.0, tempfile.mkdtemp(), on="x", id="key")
    >>> idx.pairs().compute()
       left  right
    0     1      2
    >>> day2 = pd.DataFrame({"key": [4], "x": [8.5]})
    >>> changes = idx.update(day2, delete=[1], batch="day 2")
    >>> changes.added.compute()
       left  right
    0     3      4
    >>> changes.removed.compute()
       left  right
    0     1      2
    """
    from dask_simjoin.disk_index.index import Index
    from dask_simjoin.disk_index.updates import make_index

    meta = example_of(frame)
    spec = request.spec(meta)
    example_ids(meta, spec)
    root, policy, group = request.root, request.policy, request.group
    stored = request.stored(spec.names)
    make_index(frame, spec, root, policy, group, stored)
    return Index(root, spec.library)


def open_index(
    path: PathLike,
    *,
    version: int | None = None,
    backend: str | None = None,
    storage_options: StorageOptions = None,
) -> Index:
    """Open the index in a folder.

    Parameters
    ----------
    path : str or path
        A folder, or a URL of an object store.
    version : int, optional
        The version to open.  Default: always the last version, also while other
        processes update the index.
    backend : {"pandas", "cudf"}, optional
        Library of the frames that methods return.  Default: Dask's configuration
        ``dataframe.backend``.
    storage_options : dict, optional
        How to reach an object store, as for `index`.

    Returns
    -------
    Index

    Raises
    ------
    IndexFormatError
        There is no index in the folder, its format is unknown, or its last version is
        damaged.  In the last case, the message says how to continue from an older
        version.
    VersionGoneError
        The version does not exist.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> folder = tempfile.mkdtemp()
    >>> made = pd.DataFrame({"x": [0.0, 1.0]}).simjoin.index(1.0, folder)
    >>> len(dask_simjoin.open_index(folder))
    2
    """
    library = backend or dask.config.get("dataframe.backend", "pandas")
    if library not in LIBRARIES:
        allowed = ", ".join(map(repr, LIBRARIES))
        raise OptionError(
            f"backend={shown(backend)} is not allowed; use one of {allowed}."
        )
    from dask_simjoin.disk_index.index import Index
    from dask_simjoin.disk_index.updates import check_version

    root = check_path(path, storage_options)
    return Index(
        root, library, None if version is None else check_version(version, "version")
    )


def check_path(path: Any, storage_options: StorageOptions = None) -> AnyPath:
    """Return a folder as a `Path`, or a URL as an `ObjectPath`.

    Raise an error if the value names no folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise OptionTypeError(
            f"path={shown(path)} is not a path; name a folder, as a string."
        )
    text = os.fspath(path)
    if not isinstance(text, str):
        raise OptionTypeError(
            f"path={shown(path)} is a path of bytes; use os.fsdecode(path)."
        )
    if not text or "\0" in text:
        raise OptionError(
            f"path={text!r} names no folder; use a path that is not empty and has no "
            "null character."
        )
    if text.startswith("file://"):
        text = str(url_to_fs(text)[1])
    if "://" in text:
        return object_path(text, storage_options)
    if storage_options:
        raise OptionError(
            f"storage_options are for object stores, and path={text!r} is a local "
            "folder; omit them, or use "
            "a URL such as s3://BUCKET/NAME."
        )
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise OptionError(
            f"path={text!r} is in the home of an unknown user; use a path from '/' on, "
            "or './~name'."
        ) from None
