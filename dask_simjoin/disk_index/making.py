"""Make an index of the rows of a frame, and open one."""

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
from dask_simjoin.disk_index.writing import Incoming, Numbering, look_at, schema_for, write_frame
from dask_simjoin.engine.index.kdorder import dims_to_cut
from dask_simjoin.errors import CoordinateError, IndexConflictError, OptionError
from dask_simjoin.graph.inputs import example_ids
from dask_simjoin.graph.verb import verb
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.messages import listed, shown
from dask_simjoin.request.spec import JoinSpec


@verb(MakeIndex)
def index(frame: Frame, asked: MakeIndex) -> Index:
    """Write the rows to disk as an index that grows: new rows in, only new pairs out.

    It is written at once, as `to_parquet` does.

    Parameters
    ----------
    eps : float or str
        The largest distance of the pairs whose changes are told, finite and >= 0; as text with a unit, as in
        `self_join`.
    path : str or path
        A folder that is not there yet, or is empty, and that all workers see.  Its file system must have
        hard links.
    on, id, metric, p, keep, suffixes, return_distance, dropna
        As of `self_join`.  Columns must be named by strings, and ids stay unique as the index grows.
    store_pairs : bool
        Write pairs to the folder too, with the version that they come with: `pairs` and the changes of an
        update read them then, and each update finds its pairs before it makes its version.
    recluster : {"auto", "always", "never"} or float
        When rows are put in order anew after updates.
    row_group : int
        Rows that are read at a time, a power of two: fewer make updates of few scattered rows cheaper, and
        all else dearer.
    blocksize : int or str, optional
        Memory of the ids of one chunk while they are compared.

    Returns
    -------
    Index
        See its methods: `update`, `delete`, `pairs`, `changes`, `join`, `rows`, `persist`, `history`,
        `restore`, `vacuum`, `check`.

    Raises
    ------
    OptionError
        There is something at `path`, or it can hold no index.
    OptionTypeError, ColumnError, CoordinateError, DuplicateIdError
        As `self_join` does.
    IndexWriteError
        The disk is full, or cannot be written for another reason.  Nothing is left: try again.

    Notes
    -----
    That only pairs of new rows are found, and old pairs kept, is the RE-JOIN of Korkmaz (2012, MSc thesis,
    Bilkent University, section 4.4); here with deletions, on disk, and by what is near.

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
    spec = asked.spec(meta)
    example_ids(meta, spec)
    root, policy, group = asked.root, asked.policy, asked.group
    stored = asked.stored(spec.names)
    _check_free(root)
    id, on, keep = (None if spec.id is None else str(spec.id)), named(spec.on), named(spec.keep)
    columns = list(dict.fromkeys([ID if id is None else id, *on, *keep]))
    incoming = look_at(lazy_frame(frame), spec, id, columns)
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
        One that never changes.  Default: always the last one, also as other processes update the index.
    backend : {"pandas", "cudf"}, optional
        Of the frames that it gives.  Default: that of Dask's configuration ``dataframe.backend``.

    Returns
    -------
    Index

    Raises
    ------
    IndexFormatError
        There is no index in the folder, or it is of another format, or the last version is damaged: the
        message says how to go on from the one before.
    VersionGoneError
        There is no such version.

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
    """Refuse a folder in which there is something, unless a making of an index that broke off left it."""
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
            f"path={str(root)!r} has something else in it ({listed(others, 3)}); use a folder that is not "
            "there yet, or is empty."
        )


@contextlib.contextmanager
def _folders(root: Path, names: Sequence[str]) -> Iterator[None]:
    """Make the folders of an index; those that are empty after a failure are removed."""
    above = [path for path in (root, *root.parents) if not path.exists()]
    own = [root / name for name in names if not (root / name).exists()]
    try:
        for path in (*reversed(above), *own):
            with writing(path):
                path.mkdir(exist_ok=True)
        yield
    except BaseException:
        # manifests are in the first one: if there are some the index is made, by us or another process
        if root / names[0] in own:
            with contextlib.suppress(OSError):
                for path in (*own, *above):
                    path.rmdir()
        raise


def _dims(incoming: Incoming) -> int:
    """Dimensions of the rows; refuses lists whose length no row tells."""
    spec: JoinSpec = incoming.table.spec
    if spec.lists and not incoming.table.rows:
        raise CoordinateError(
            f"Column {spec.on[0]!r} holds lists, and there is no row that tells how long they are; make the "
            "index of some rows, which can be deleted later."
        )
    return len(incoming.table.every.lower)


def _cut(incoming: Incoming) -> tuple[int, ...]:
    """The dimensions that boxes tell of."""
    table = incoming.table
    return tuple(map(int, dims_to_cut(table.every.variance, table.points.x).dims))
