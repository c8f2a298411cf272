"""Make an index from a frame, and find and write the rows that an update or a restore
changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import dask
import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.calls.inputs import is_geo
from dask_simjoin.calls.tables import table_of
from dask_simjoin.catalog import library
from dask_simjoin.disk_index.disks import check_folders
from dask_simjoin.disk_index.files import (
    EVERY_FOLDER,
    FOLDERS,
    PAIRS,
)
from dask_simjoin.disk_index.files import listed as files_in
from dask_simjoin.disk_index.folders import check_creates, sync_folder, writing
from dask_simjoin.disk_index.graph import parts_of
from dask_simjoin.disk_index.manifests import versions
from dask_simjoin.disk_index.publishing import CommittedBatch, Transaction, transaction
from dask_simjoin.disk_index.reports import UpdateReport
from dask_simjoin.disk_index.rows import (
    Written,
    example_table,
    read_part,
    read_tables,
    write_example,
    write_rows,
)
from dask_simjoin.disk_index.schema import FILE, POSITION, Finder, as_frame, ids_as_read
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath
from dask_simjoin.disk_index.types import (
    ID,
    SEQ,
    VERSION,
    BatchContent,
    Content,
    Manifest,
    Options,
    Part,
)
from dask_simjoin.disk_index.versions import Change, commit, now
from dask_simjoin.disk_index.writing import (
    Incoming,
    Numbering,
    collect_rows,
    content_of,
    digested,
    existing_rows,
    schema_for,
    write_frame,
)
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.index.kdtree import dims_to_cut
from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    DuplicateIdError,
    IndexConflictError,
    OptionError,
    OptionTypeError,
    Remedy,
)
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.coordinate_checks import without_dropna
from dask_simjoin.planning.data_warnings import raise_warnings, warnings_of_index
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.messages import NO_UNICODE, counted, is_unicode, listed, shown
from dask_simjoin.request.options import check_whole
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.request.spec import JoinSpec

NO_ROWS = pd.DataFrame(
    {FILE: [], POSITION: np.zeros(0, np.int64), SEQ: np.zeros(0, np.int64), "id": []}
)

NO_SEQ, NO_IDS = pd.Series([], dtype=np.int64), pd.Index([])


IfExists = Literal["fail", "replace", "ignore"]
IF_EXISTS = get_args(IfExists)


@dataclass(frozen=True)
class Update:
    """The changes that an update asks for."""

    new: Frame | None  # rows to add; None: no rows
    delete: Any  # ids of rows to delete; None: no rows
    # what happens to new rows whose ids are in the index: "fail", "replace" or "ignore"
    if_exists: str
    batch: str | None  # name of the update, if it has one


def check_version(version: Any, name: str) -> int:
    return check_whole(name, version, 1)


def check_batch(batch: object) -> str | None:
    if batch is not None and not isinstance(batch, str):
        raise OptionTypeError(
            f"batch={shown(batch)} is not a string; use one, such as '2026-01-31'."
        )
    if batch is not None and not is_unicode(batch):
        raise OptionError(f"batch={shown(batch)} is a string, {NO_UNICODE}.")
    return batch


def lazy_frame(frame: Frame) -> Frame:
    return table_of(frame).lazy(library(example_of(frame)))


def changed_by(
    own: Transaction, request: Update, now: Version, version: int
) -> tuple[Change, UpdateReport]:
    """Find the rows that an update changes. Write the new rows for the next version."""
    options, schema = (
        now.manifest.options,
        example_table(now.root, now.manifest.options).schema,
    )
    wanted = _to_delete(request.delete, schema, options)
    gone = NO_ROWS if wanted is None else _found(*wanted, now.finder)
    incoming = None if request.new is None else incoming_rows(request.new, options)
    existing, content = NO_ROWS, Content()
    if incoming is not None:
        existing, content = existing_rows(
            incoming, now.finder, schema, request.batch is not None
        )
    again = existing[~_among(existing, gone)]
    if request.if_exists == "fail" and len(again):
        raise DuplicateIdError(
            f"The index already contains {len(again):,} of the new ids: "
            f"{listed(again['id'], 5)}. Use if_exists='replace' to replace them, "
            "or if_exists='ignore' to keep the old rows."
        )
    taking = existing.iloc[:0] if request.if_exists == "ignore" else again
    replaced, leaving = (
        _both(existing[_among(existing, gone)], taking),
        _both(gone, taking),
    )
    left_out = again["id"] if request.if_exists == "ignore" else again["id"].iloc[:0]
    written, taken = [], 0
    if incoming is not None:
        rows = incoming.table.offsets
        seq = pd.Series(replaced[SEQ].to_numpy(), pd.Index(replaced["id"]))
        numbering = Numbering(
            version, now.manifest.next_seq + rows[:-1], seq, pd.Index(left_out)
        )
        written = write_frame(incoming, options, own, schema, numbering)
        taken = int(rows[-1])
    places = {
        name: np.sort(some[POSITION].to_numpy())
        for name, some in leaving.groupby(FILE, sort=False)
    }
    change = Change(
        "update",
        written,
        places,
        batch=request.batch,
        content=BatchContent(content, _content_of(wanted)),
        taken=taken,
        gone=leaving[SEQ].to_numpy(np.int64),
        again=len(replaced) > 0,
    )
    came = sum(one.rows for one in written)
    size = sum(one.size + one.keys_size for one in written)
    report = UpdateReport(
        came - len(replaced),
        len(replaced),
        len(left_out),
        len(gone),
        len(written),
        size,
        rows_left_out=0 if incoming is None else incoming.table.left_out.rows,
    )
    return change, report


def check_content(
    request: Update, root: AnyPath, options: Options, committed: CommittedBatch
) -> None:
    """Raise an error if a batch with this name was committed with other rows, because
    this update would then be lost.

    There is no error if the content of that batch is unknown, or if the request has no
    rows.
    """
    if committed.content is None:
        return
    schema = example_table(root, options).schema
    if request.new is not None:
        found = content_of(incoming_rows(request.new, options), schema, options.row_id)
        _check_same(request, committed, "new", found, committed.content.new)
    deleted = _content_of(_to_delete(request.delete, schema, options))
    _check_same(request, committed, "deleted", deleted, committed.content.deleted)


def _check_same(
    request: Update,
    committed: CommittedBatch,
    kind: str,
    found: Content,
    before: Content,
) -> None:
    if not found.rows or found == before:
        return
    difference = (
        "as many, but other ids or coordinates"
        if found.rows == before.rows
        else f"{found.rows:,}"
    )
    raise OptionError(
        f"batch={shown(request.batch)} was committed as version {committed.version} "
        "with other rows: it "
        f"had {counted(before.rows, f'{kind} row')}, and this call has {difference}. "
        "Nothing was changed. "
        "Use another batch name for these rows, or leave out batch=.",
        remedies=[Remedy({"batch": None})],
    )


def incoming_rows(new: Frame, options: Options) -> Incoming:
    """Check rows before they are added to an index. Raise an error if columns or
    dimensions differ.
    """
    new = table_of(new).native()
    meta = example_of(new)
    _check_columns(meta, options, options.columns, "on=, id= and keep=")
    return _collected(new, meta, options, options.keep)


def foreign_rows(frame: Frame, options: Options) -> Incoming:
    """Check rows before they are joined with an index. Raise an error for invalid
    coordinates or ids.
    """
    frame = table_of(frame).native()
    meta = example_of(frame)
    needed = [name for name in (*options.on, options.id) if name is not None]
    _check_columns(meta, options, needed, "on= and id=")
    return _collected(frame, meta, options, ())


def _check_columns(
    meta: Frame, options: Options, needed: Sequence[str], called: str
) -> None:
    """Raise an error if new rows lack some of the needed columns. `called`: the options
    that name these columns.
    """
    made = options.row_id if options.id is None else None  # a column of the index alone
    missing = [name for name in needed if name not in meta.columns and name != made]
    if missing:
        points = (
            " Add the coordinates of points as columns, such as "
            "frame.assign(**{'geometry.x': frame.geometry.x})."
            if is_geo(meta)
            else ""
        )
        raise ColumnError(
            f"The new rows lack columns {listed(missing)} of the index; they have "
            f"{listed(meta.columns) or 'none of its columns'}. "
            f"All rows need the columns of {called} of the index.{points}"
        )


def _collected(
    frame: Frame, meta: Frame, options: Options, keep: tuple[str, ...]
) -> Incoming:
    own: dict[str, Any] = {
        name: getattr(options, name) for name in ("eps", "id", "metric", "p", "dropna")
    }
    request = SelfJoinRequest(**own, on=list(options.on), keep=list(keep) or None)
    spec = request.spec(meta)
    # it is an option of the index, not of its methods
    with without_dropna(
        "Fill or drop those rows first, or make the index with dropna=True."
    ):
        incoming = collect_rows(lazy_frame(frame), spec, options.id, options.columns)
    dims = incoming.table.spec.coordinates.dims
    if incoming.table.rows and (
        dims != options.dims or spec.coordinates.lists != options.lists
    ):
        raise CoordinateError(
            f"The index has points of {options.dims} dimensions, "
            f"{_storage_of(options.lists)}, but the new "
            f"rows have {dims} dimensions, {_storage_of(spec.coordinates.lists)}. Both must be the "
            "same."
        )
    return incoming


def _storage_of(lists: bool) -> str:
    return "stored as lists" if lists else "stored in a column each"


def _among(existing: pd.DataFrame, gone: pd.DataFrame) -> np.ndarray:
    """Return a mask of those rows of `existing` that are also in `gone`. Rows are
    compared by file and position.
    """
    if not len(gone) or not len(existing):
        return np.zeros(len(existing), bool)
    places = pd.MultiIndex.from_frame(gone[[FILE, POSITION]])
    return np.asarray(pd.MultiIndex.from_frame(existing[[FILE, POSITION]]).isin(places))


def _both(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Concatenate two frames. A frame without rows is left out, because its ids may
    have another dtype.
    """
    some = [rows for rows in (first, second) if len(rows)]
    return pd.concat(some or [first], ignore_index=True)


def _to_delete(
    ids: Any, schema: pa.Schema, options: Options
) -> tuple[pd.Index, pd.Index] | None:
    """Return the ids to delete, without repetitions, in two arrays.

    The ids have the dtype of the index in the first, and the dtype of row files in the
    second.
    """
    if ids is None:
        return None
    wanted = _as_ids(ids, schema, options)
    return wanted, ids_as_read(wanted, schema, options.row_id, "in delete=")


def _content_of(wanted: tuple[pd.Index, pd.Index] | None) -> Content:
    return (
        Content()
        if wanted is None
        else digested(wanted[1], np.zeros((len(wanted[1]), 0)))
    )


def _found(wanted: pd.Index, read: pd.Index, finder: Finder) -> pd.DataFrame:
    """Find the rows to delete. Raise an error for unknown ids.

    `wanted`, `read`: the result of `_to_delete`.
    """
    found = finder.find(read)
    rows = found.pop("row").to_numpy()
    if len(rows) < len(wanted):
        unknown = wanted.delete(rows)
        raise OptionError(
            f"delete= names {counted(len(unknown), 'id')} that no row of the index "
            f"has: {listed(unknown, 5)}."
            " Leave them out: rows() has all ids of the index."
        )
    found["id"] = wanted.take(rows).to_numpy()
    return found


def _as_ids(ids: Any, schema: pa.Schema, options: Options) -> pd.Index:
    """Convert ids to a pandas index with the dtype of the ids in the index on disk,
    without repetitions.
    """
    plain = table_of(ids).computed()
    plain = plain.to_pandas() if hasattr(plain, "to_pandas") else plain
    if (
        isinstance(plain, (str, bytes))
        or getattr(plain, "ndim", 1) != 1
        or not hasattr(plain, "__iter__")
    ):
        raise OptionTypeError(
            f"delete={shown(ids)} is not a list of ids; use a list, an array, an Index "
            "or a Series of them."
        )
    own: Hashable = as_frame(schema.empty_table().select([options.row_id]), "pandas")[
        options.row_id
    ].dtype
    # before pandas 3, `pd.Index` may choose another dtype unless it is given
    dtype = plain.dtype if isinstance(plain, pd.Series | pd.Index) else None
    given = pd.Index(plain if hasattr(plain, "dtype") else list(plain), dtype=dtype)
    if not len(given):
        return pd.Index([], dtype=own)
    try:
        cast = given.astype(own)
        # before pandas 3, Arrow timestamps never equal NumPy timestamps, so compare
        # them as the given dtype
        comparable = cast.astype(given.dtype) if given.dtype.kind == "M" else cast
        # booleans are a mask rather than ids, so do not let True and False stand for
        # ids 1 and 0
        is_exact = bool((comparable == given).all()) and (given.dtype.kind == "b") == (
            cast.dtype.kind == "b"
        )
    except (TypeError, ValueError, OverflowError):
        is_exact = False
    if not is_exact:
        raise OptionTypeError(
            f"delete= has ids of dtype {given.dtype}, such as {shown(given[0])}, but "
            "ids of the index are "
            f"of dtype {own}; convert the ids of delete=."
        )
    return cast.unique()


def restored(
    own: Transaction, now: Version, wanted: int, version: int
) -> tuple[Change, UpdateReport]:
    """Find the changes that restore version `wanted`. Write again the rows that were
    deleted after it.
    """
    delta = now.since(wanted)
    schema = example_table(now.root, now.manifest.options).schema
    back = [
        dask.delayed(_again)(part, own, version, schema)
        for part in parts_of(delta.deleted)
    ]
    away = [dask.delayed(_places)(part) for part in parts_of(delta.inserted)]
    done, found = dask.compute(back, away)
    written: list[Written] = [one for one in done if one is not None]
    places: dict[str, list[np.ndarray]] = {}
    numbers = [np.zeros(0, np.int64)]
    for name, at, seq in (one for some in found for one in some):
        places.setdefault(name, []).append(at)
        numbers.append(seq)
    gone = {name: np.sort(np.concatenate(parts)) for name, parts in places.items()}
    came, went = sum(one.rows for one in written), sum(map(len, gone.values()))
    size = sum(one.size + one.keys_size for one in written)
    deleted = {name: at for name, at in gone.items() if len(at)}
    change = Change("restore", written, deleted, gone=np.concatenate(numbers))
    return change, UpdateReport(came, 0, 0, went, len(written), size)


def _again(
    part: Part, own: Transaction, version: int, schema: object
) -> Written | None:
    """Write rows again in a new version. They keep their row numbers."""
    rows = read_part(part)
    rows[VERSION] = frames_for(rows).xp.full(len(rows), version, np.int64)
    return write_rows(rows, part.options, own, schema, part.library)


def _places(part: Part) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For each file of a part, return its name, and the positions and row numbers of
    its rows.
    """
    found = zip(part.pieces, read_tables(part, [SEQ]), strict=True)
    return [
        (name, places, table[SEQ].to_numpy()) for (name, _), (table, places) in found
    ]


def make_index(
    frame: Frame,
    spec: JoinSpec,
    root: AnyPath,
    policy: str | float,
    group: int,
    stored: bool,
) -> None:
    """Write an index to a folder.

    `group`: rows per row group. `stored`: whether the index also stores pairs.
    """
    _check_free(root)
    id = None if spec.id is None else str(spec.id)
    # all names are strings already, so this only changes their types for mypy
    on, keep = (tuple(map(str, names)) for names in (spec.on, spec.keep))
    columns = list(dict.fromkeys([ID if id is None else id, *on, *keep]))
    incoming = collect_rows(lazy_frame(frame), spec, id, columns)
    raise_warnings(warnings_of_index(incoming.table))
    schema = schema_for(incoming)
    with (
        _folders(root, (*FOLDERS, *([PAIRS] if stored else ()))),
        transaction(root) as own,
    ):
        check_creates(root / FOLDERS[0])
        cut = tuple(
            map(
                int,
                dims_to_cut(
                    incoming.table.every.variance, incoming.table.points.x
                ).dims,
            )
        )
        options = Options(
            spec.eps,
            on,
            id,
            *spec.metric,
            _dims(incoming),
            spec.coordinates.lists,
            keep,
            spec.names,
            spec.coordinates.dropna,
            spec.result.distance,
            cut,
            group,
            policy,
            write_example(own, schema),
            stored,
            *(spec.result.unit or ()),
        )
        first = Numbering(1, incoming.table.offsets[:-1], NO_SEQ, NO_IDS)
        written = write_frame(incoming, options, own, schema, first)
        nothing = Manifest(0, None, "index", None, now(), options, (), (), (), 0, 0)
        change = Change("index", written, taken=int(incoming.table.offsets[-1]))
        if commit(own, nothing, 0, change, spec.library) is None:
            raise IndexConflictError(
                f"Another process made an index at {str(root)!r} meanwhile; open it, "
                "or use another folder."
            )
    for folder in (root, root.parent):
        sync_folder(folder)


def _check_free(root: AnyPath) -> None:
    """Raise an error for a folder with other content. Leftovers of a failed attempt to
    make an index may stay.
    """
    if root.exists() and not root.is_dir():
        raise OptionError(f"path={str(root)!r} is a file; use a new or empty folder.")
    if isinstance(root, Path):
        check_folders(root, EVERY_FOLDER)
    if versions(root):
        raise OptionError(
            f"path={str(root)!r} holds an index already; open it with "
            "dask_simjoin.open_index(path), or use "
            "another path."
        )
    others = [one.name for one in files_in(root) if one.name not in (*FOLDERS, PAIRS)]
    if others:
        raise OptionError(
            f"path={str(root)!r} has other files in it ({listed(others, 3)}); use a "
            "new or empty folder."
        )


@contextlib.contextmanager
def _folders(root: AnyPath, names: Sequence[str]) -> Iterator[None]:
    """On a disk, make the folders of an index. If the block fails, remove the folders
    that stay empty.
    """
    if isinstance(root, ObjectPath):
        yield
        return
    above = [path for path in (root, *root.parents) if not path.exists()]
    own = [root / name for name in names if not (root / name).exists()]
    try:
        for path in (*reversed(above), *own):
            with writing(path):
                path.mkdir(exist_ok=True)
        yield
    except BaseException:
        # if the first folder existed before, it may have manifests of an index, so
        # remove nothing
        if root / names[0] in own:
            with contextlib.suppress(OSError):
                for path in (*own, *above):
                    path.rmdir()
        raise


def _dims(incoming: Incoming) -> int:
    """Return the number of dimensions. Raise an error if it is unknown, because lists
    have no rows.
    """
    spec: JoinSpec = incoming.table.spec
    if spec.coordinates.lists and not incoming.table.rows:
        raise CoordinateError(
            f"Column {spec.on[0]!r} holds lists. Their length is unknown, because the "
            "frame has no rows. "
            "Make the index from at least one row, which can be deleted later."
        )
    return len(incoming.table.every.lower)
