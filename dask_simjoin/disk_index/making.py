"""Make an index from the rows of a frame, and open one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import dask

from dask_simjoin.catalog.libraries import LIBRARIES
from dask_simjoin.disk_index.commits import Change, commit, now
from dask_simjoin.disk_index.files import FOLDERS, PAIRS, check_links, sync_folder, writing
from dask_simjoin.disk_index.index import Index
from dask_simjoin.disk_index.manifests import versions
from dask_simjoin.disk_index.publishing import transaction
from dask_simjoin.disk_index.requests import MakeIndex, PathLike, check_path, check_version, named
from dask_simjoin.disk_index.rows import write_example
from dask_simjoin.disk_index.types import ID, Manifest, Options
from dask_simjoin.disk_index.updating import NO_IDS, NO_SEQ, lazy_frame
from dask_simjoin.disk_index.writing import Incoming, Numbering, collect_rows, schema_for, write_frame
from dask_simjoin.engine.index.kdorder import dims_to_cut
from dask_simjoin.errors import CoordinateError, IndexConflictError, OptionError
from dask_simjoin.graph.inputs import example_ids
from dask_simjoin.graph.verb import verb
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.messages import listed, shown
from dask_simjoin.request.spec import JoinSpec


@verb(MakeIndex)
def index(frame: Frame, request: MakeIndex) -> Index:
    """Write the rows to disk as an index that can be updated: each update returns only changed pairs.

    The index is written at once, as `to_parquet` does.

    Parameters
    ----------
    eps : float or str
        Largest distance of the maintained pairs, finite and >= 0; as text with a unit, as in `self_join`.
    path : str or path
        A new or empty folder that all workers see.  Its file system must have hard links.
    on, id, metric, p, keep, suffixes, return_distance, dropna
        As for `self_join`.  Column names must be strings, and ids stay unique as the index grows.
    store_pairs : bool
        Also write pairs to the folder, with the version that adds them.  Then `pairs` and the changes of an
        update read them.  Each update finds its pairs before it commits.
    recluster : {"auto", "always", "never"} or float
        When to compact after updates.
    row_group : int
        Rows per read, a power of two: smaller row groups speed up updates of few scattered rows, and slow
        down other work.
    blocksize : int or str, optional
        Memory for the ids of one chunk while they are checked for duplicates.

    Returns
    -------
    Index
        See its methods: `update`, `delete`, `pairs`, `changes`, `join`, `rows`, `persist`, `history`,
        `restore`, `vacuum`, `check`.

    Raises
    ------
    OptionError
        There is something at `path` already, or it cannot hold an index.
    OptionTypeError, ColumnError, CoordinateError, DuplicateIdError
        As for `self_join`.
    IndexWriteError
        The disk is full, or writing fails for another reason.  No file is left: try again.

    Notes
    -----
    Finding only pairs of new rows, and keeping old pairs, is the RE-JOIN of Korkmaz (2012, MSc thesis,
    Bilkent University, section 4.4).  Here it also handles deletions, and works on disk.

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
    meta = example_of(frame)
    spec = request.spec(meta)
    example_ids(meta, spec)
    root, policy, group = request.root, request.policy, request.group
    stored = request.stored(spec.names)
    _check_free(root)
    id, on, keep = (None if spec.id is None else str(spec.id)), named(spec.on), named(spec.keep)
    columns = list(dict.fromkeys([ID if id is None else id, *on, *keep]))
    incoming = collect_rows(lazy_frame(frame), spec, id, columns)
    schema = schema_for(incoming)
    with _folders(root, (*FOLDERS, *([PAIRS] if stored else ()))), transaction(root) as own:
        check_links(root / FOLDERS[0])
        options = Options(
            spec.eps, on, id, spec.metric, spec.p, _dims(incoming), spec.lists, keep, spec.names, spec.dropna,
            spec.return_distance, _cut(incoming), group, policy, write_example(own, schema), stored,
        )  # fmt: skip
        first = Numbering(1, incoming.table.offsets[:-1], NO_SEQ, NO_IDS)
        written = write_frame(incoming, options, own, schema, first)
        nothing = Manifest(0, None, "index", None, now(), options, (), (), (), 0, 0)
        change = Change("index", written, taken=int(incoming.table.offsets[-1]))
        if commit(own, nothing, 0, change, spec.library) is None:
            raise IndexConflictError(
                f"Another process made an index at {str(root)!r} meanwhile; open it, or use another folder."
            )
    for folder in (root, root.parent):
        sync_folder(folder)
    return Index(root, spec.library)


def open_index(path: PathLike, *, version: int | None = None, backend: str | None = None) -> Index:
    """Open the index in a folder.

    Parameters
    ----------
    path : str or path
    version : int, optional
        A fixed version.  Default: always the last one, also while other processes update the index.
    backend : {"pandas", "cudf"}, optional
        Library of the frames that it returns.  Default: Dask's configuration ``dataframe.backend``.

    Returns
    -------
    Index

    Raises
    ------
    IndexFormatError
        There is no index in the folder, or its format is unknown, or the last version is damaged.  Then the
        message says how to continue from an older one.
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
        raise OptionError(f"backend={shown(backend)} is not allowed; use one of {allowed}.")
    return Index(check_path(path), library, None if version is None else check_version(version, "version"))


def _check_free(root: Path) -> None:
    """Refuse a folder with other content; leftovers of a failed attempt to make an index are allowed."""
    if root.exists() and not root.is_dir():
        raise OptionError(f"path={str(root)!r} is a file; use a folder that is not there yet, or is empty.")
    if versions(root):
        raise OptionError(
            f"path={str(root)!r} holds an index already; use dask_simjoin.open_index(path), or another."
        )
    others = (
        [one.name for one in root.iterdir() if one.name not in (*FOLDERS, PAIRS)] if root.exists() else []
    )
    if others:
        raise OptionError(
            f"path={str(root)!r} has something else in it ({listed(others, 3)}); use a new folder, or an "
            "empty one."
        )


@contextlib.contextmanager
def _folders(root: Path, names: Sequence[str]) -> Iterator[None]:
    """Make the folders of an index; after a failure empty ones are removed."""
    above = [path for path in (root, *root.parents) if not path.exists()]
    own = [root / name for name in names if not (root / name).exists()]
    try:
        for path in (*reversed(above), *own):
            with writing(path):
                path.mkdir(exist_ok=True)
        yield
    except BaseException:
        # the first folder has the manifests: if there are any, the index exists
        if root / names[0] in own:
            with contextlib.suppress(OSError):
                for path in (*own, *above):
                    path.rmdir()
        raise


def _dims(incoming: Incoming) -> int:
    """Return the dimensions of the rows; refuses lists of unknown length."""
    spec: JoinSpec = incoming.table.spec
    if spec.lists and not incoming.table.rows:
        raise CoordinateError(
            f"Column {spec.on[0]!r} holds lists, and without rows their length is unknown; make the index "
            "from some rows, which can be deleted later."
        )
    return len(incoming.table.every.lower)


def _cut(incoming: Incoming) -> tuple[int, ...]:
    """Return the dimensions of the boxes."""
    table = incoming.table
    return tuple(map(int, dims_to_cut(table.every.variance, table.points.x).dims))
