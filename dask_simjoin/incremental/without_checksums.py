"""Write files of older versions of this package, which have no checksums, anew with all rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dask_simjoin.incremental.checked import SummedFile, is_checked
from dask_simjoin.incremental.entries import StoredPairs
from dask_simjoin.incremental.files import (
    FOLDERS,
    PAIRS,
    encoded,
    parquet,
    read_groups,
    sync_folder,
    write_tables,
)
from dask_simjoin.incremental.transactions import Transaction
from dask_simjoin.incremental.types import Manifest


def with_checksums(own: Transaction, manifest: Manifest) -> tuple[Manifest, int]:
    """Write those files anew that rewriting rows leaves as they are, if they have none; tells the bytes."""
    total = 0

    def renewed(folder: str, name: str) -> str:
        nonlocal total
        if is_checked(Path(name)):
            return name
        made, size = _copied(own, folder, name)
        total += size
        return made

    files = tuple(replace(one, name=renewed(PAIRS, one.name)) for one in manifest.pairs.files)
    marks = tuple(replace(one, name=renewed(PAIRS, one.name)) for one in manifest.pairs.marks)
    earlier = tuple(renewed(FOLDERS[0], name) for name in manifest.earlier)
    options = replace(manifest.options, example=renewed("rows", manifest.options.example))
    if earlier != manifest.earlier:
        sync_folder(own.root / FOLDERS[0])
    return replace(manifest, pairs=StoredPairs(files, marks), earlier=earlier, options=options), total


def _copied(own: Transaction, folder: str, name: str) -> tuple[str, int]:
    with parquet(own.root / folder / name) as old:
        schema, groups = old.schema_arrow, range(old.num_row_groups)

        def write(file: SummedFile) -> None:
            tables = (read_groups(old, [group]) for group in groups)
            write_tables(tables, file, schema, encoded(schema))

        return own.write(folder, write)
