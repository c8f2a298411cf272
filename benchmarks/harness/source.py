"""Which state of the package was measured."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

RUNNING = ("dask_simjoin", "benchmarks", ":!benchmarks/results", ":!benchmarks/tables")
"""Files that are part of a measurement; pages and tables are not."""

COMMIT = "SIMJOIN_COMMIT"
"""The environment variable with the commit, on a machine whose copy of the source has
no history.
"""


KINDS = (".py", ".cu", ".cuh")
"""Files of the package that make the digest of its source."""


def commit() -> str:
    """Return the commit of the source, with "-dirty" behind it if what runs was changed
    since.
    """
    if os.environ.get(COMMIT):
        return os.environ[COMMIT]
    try:
        found = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", *RUNNING)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{found}-dirty" if changed else found


def _git(*command: str) -> str:
    done = subprocess.run(
        ["git", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.strip()


def source_digest() -> str:
    """Return a digest of the package's source, which identifies it between commits."""
    found = importlib.util.find_spec("dask_simjoin")
    assert found is not None and found.origin is not None
    digest = hashlib.sha256()
    for path in sorted(Path(found.origin).parent.rglob("*.*")):
        if path.suffix in KINDS:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_of(commit: str, kinds: tuple[str, ...] = KINDS) -> str:
    """Return the digest of the package's source at a commit, from the git history."""
    tar = subprocess.check_output(["git", "archive", commit, "dask_simjoin"], cwd=ROOT)
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(tar)) as files:
        for name in sorted(files.getnames(), key=PurePosixPath):
            if name.endswith(kinds):
                found = files.extractfile(name)
                assert found is not None
                digest.update(found.read())
    return digest.hexdigest()[:16]
