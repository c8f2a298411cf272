"""Make an index from the rows of a frame."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence

from dask_simjoin.disk_index.commits import Change, commit, now
from dask_simjoin.disk_index.files import FOLDERS, PAIRS, check_creates, sync_folder, writing
from dask_simjoin.disk_index.files import listed as files_in
from dask_simjoin.disk_index.index import Index
from dask_simjoin.disk_index.manifests import versions
from dask_simjoin.disk_index.publishing import transaction
from dask_simjoin.disk_index.rows import write_example
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath
from dask_simjoin.disk_index.types import ID, Manifest, Options
from dask_simjoin.disk_index.updating import NO_IDS, NO_SEQ, lazy_frame
from dask_simjoin.disk_index.writing import Incoming, Numbering, collect_rows, schema_for, write_frame
from dask_simjoin.engine.index.kdtree import dims_to_cut
from dask_simjoin.errors import CoordinateError, IndexConflictError, OptionError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import listed
from dask_simjoin.request.spec import JoinSpec


def make_index(
    frame: Frame, spec: JoinSpec, root: AnyPath, policy: str | float, group: int, stored: bool
) -> Index:
    """Write an index to a folder; `group`: rows of a row group, `stored`: also write pairs."""
    _check_free(root)
    id, on, keep = (None if spec.id is None else str(spec.id)), named(spec.on), named(spec.keep)
    columns = list(dict.fromkeys([ID if id is None else id, *on, *keep]))
    incoming = collect_rows(lazy_frame(frame), spec, id, columns)
    schema = schema_for(incoming)
    with _folders(root, (*FOLDERS, *([PAIRS] if stored else ()))), transaction(root) as own:
        check_creates(root / FOLDERS[0])
        options = Options(
            spec.eps, on, id, spec.metric, spec.p, _dims(incoming), spec.lists, keep, spec.names, spec.dropna,
            spec.return_distance, _cut(incoming), group, policy, write_example(own, schema), stored,
            *(spec.unit or ()),
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


def named(columns: tuple[Hashable, ...]) -> tuple[str, ...]:
    """Return names of columns, all strings after `check_names`, with that type."""
    return tuple(str(name) for name in columns)


def _check_free(root: AnyPath) -> None:
    """Refuse a folder with other content; leftovers of a failed attempt to make an index are allowed."""
    if root.exists() and not root.is_dir():
        raise OptionError(f"path={str(root)!r} is a file; use a new or empty folder.")
    if versions(root):
        raise OptionError(
            f"path={str(root)!r} holds an index already; open it with dask_simjoin.open_index(path), or use "
            "another path."
        )
    others = [one.name for one in files_in(root) if one.name not in (*FOLDERS, PAIRS)]
    if others:
        raise OptionError(
            f"path={str(root)!r} has other files in it ({listed(others, 3)}); use a new or empty folder."
        )


@contextlib.contextmanager
def _folders(root: AnyPath, names: Sequence[str]) -> Iterator[None]:
    """Make the folders of an index, if it is on a disk; after a failure, empty folders are removed."""
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
            f"Column {spec.on[0]!r} holds lists, and without rows their length is unknown. Make the index "
            "from at least one row, which can be deleted later."
        )
    return len(incoming.table.every.lower)


def _cut(incoming: Incoming) -> tuple[int, ...]:
    """Return the dimensions of the boxes."""
    table = incoming.table
    return tuple(map(int, dims_to_cut(table.every.variance, table.points.x).dims))
