"""The verb that makes an index on disk, and the function that opens one.

Their work is imported at the first call, since frames in memory do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dask

from dask_simjoin.catalog.libraries import LIBRARIES
from dask_simjoin.disk_index.requests import MakeIndex, PathLike, check_path, check_version
from dask_simjoin.errors import OptionError
from dask_simjoin.graph.verb import verb
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import shown

if TYPE_CHECKING:
    from dask_simjoin.disk_index.index import Index


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
    from dask_simjoin.disk_index.making import make_index

    return make_index(frame, asked)


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
    from dask_simjoin.disk_index.index import Index

    return Index(check_path(path), library, None if version is None else check_version(version, "version"))
