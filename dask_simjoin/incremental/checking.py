"""Read all files of all versions of an index, and tell which of them are damaged."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pandas as pd

from dask_simjoin.errors import IndexFormatError, SimJoinError, VersionGoneError
from dask_simjoin.expressions.dask_private import Task
from dask_simjoin.expressions.source import gather
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.checked import CheckedFile, is_checked
from dask_simjoin.incremental.damage import REMEDY, told_of
from dask_simjoin.incremental.files import FOLDERS, parquet, read_groups
from dask_simjoin.incremental.groupings import grouping_files
from dask_simjoin.incremental.history import files_of
from dask_simjoin.incremental.manifests import damage_of, manifest_path, versions, whole
from dask_simjoin.incremental.report import Told


class Damage(NamedTuple):
    """A damaged or missing file: its path in the folder, what is wrong, and the versions that need it."""

    file: str
    damage: str
    versions: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Check(Told):
    """What reading all of an index found.

    Attributes
    ----------
    versions, files : int
        Versions that there are, and their files, with manifests.
    bytes_read : int
        Of these files.
    files_without_checksums : int
        Files that an older version of this package wrote.  They can be read, which does not prove that they
        are as they were written; `optimize("all")` writes them anew.
    damaged : int
        Files that are damaged or missing.
    damage : tuple of Damage
        What they are.
    """

    title: ClassVar[str] = "Check of an index"

    versions: int
    files: int
    bytes_read: int
    files_without_checksums: int
    damaged: int
    damage: tuple[Damage, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each damaged file: its path in the folder, its damage, and the versions that need it."""
        return pd.DataFrame(list(self.damage), columns=list(Damage._fields))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers, by name."""
        return {name: value for name, value in super().numbers.items() if name != "damage"}

    def _facts(self) -> list[tuple[str, str]]:
        named = [(one.file, f"{one.damage} ({_listed(one.versions)})") for one in self.damage]
        return [*super()._facts(), *named]


def check_index(root: Path) -> Check:
    """Read all files of all versions of the index in a folder; refuses a folder without one."""
    known = versions(root)
    if not known:
        raise IndexFormatError(f"path={str(root)!r} holds no index; name the folder of one.")
    needed: dict[tuple[str, str], list[int]] = {}
    broken = [(version, what) for version in known if (what := damage_of(root, version))]
    for one in whole(root, set(known) - {version for version, _ in broken}):
        for name in files_of([one]):
            needed.setdefault(name, []).append(one.version)
    for number, path in grouping_files(root):
        needed[path.parent.name, path.name] = [number]
    found = [Damage(f"{FOLDERS[0]}/{manifest_path(root, one).name}", what, (one,)) for one, what in broken]
    paths = [root.joinpath(*name) for name in needed]
    wrong = [what for some in _each(paths) for what in some]
    for (name, numbers), what in zip(needed.items(), wrong, strict=True):
        if what:
            found.append(Damage("/".join(name), what, tuple(sorted(numbers))))
    every = [*paths, *(manifest_path(root, version) for version in known)]
    plain = sum(not is_checked(path) for path in paths)
    return Check(len(known), len(every), sum(map(_size, every)), plain, len(found), tuple(found))


AT_ONCE = 64
"""Files of a task, at most: an index has many small ones."""


def _each(paths: list[Path]) -> list[list[str]]:
    """Check files, by tasks of some."""
    token = uuid.uuid4().hex
    graph: dict[Any, Any] = {}
    for start in range(0, len(paths), AT_ONCE):
        key = f"simjoin_check-{token}", start
        graph[key] = Task(key, on_worker, _damages, paths[start : start + AT_ONCE])
    return gather(graph, list(graph))


def _damages(paths: list[Path]) -> list[str]:
    return [_damage(path) for path in paths]


def _damage(path: Path) -> str:
    """Tell what is wrong with a file; nothing, if it is whole, or removed meanwhile with its versions."""
    try:
        if is_checked(path):
            with told_of(path, True), contextlib.closing(CheckedFile(path)) as file:
                file.verify()
        with parquet(path) as read:
            for group in () if is_checked(path) else range(read.num_row_groups):
                read_groups(read, [group])
    except VersionGoneError:
        return ""
    except SimJoinError as error:
        return _short(str(error), path)
    return ""


def _short(text: str, path: Path) -> str:
    """What an error says of a file, without its name and the remedy."""
    return text.removeprefix(f"{str(path)!r} is ").removeprefix("damaged: ").removesuffix(f". {REMEDY}")


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _listed(numbers: tuple[int, ...]) -> str:
    """Name versions, those that follow each other by the first and the last."""
    return f"version{'s' * (len(numbers) > 1)} {', '.join(_runs(numbers))}"


def _runs(numbers: tuple[int, ...]) -> Iterator[str]:
    first = last = numbers[0]
    for number in (*numbers[1:], None):
        if number != last + 1:
            yield f"{first}" if first == last else f"{first} to {last}"
            first = number or 0
        last = number or 0
