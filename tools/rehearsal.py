"""Rehearse releases in a scratch clone: `python -m tools.rehearsal`.

1. Version 0.9.0 is tagged and built, also from an archive of git and from a clone
  without tags.
2. Version 0.10.0 deprecates a function and writes format 2 of the index. It upgrades an
  index of version
   0.9.0, which then refuses it.
3. Version 0.12.0 still has the function: a test fails.

It needs hatchling and hatch-vcs in this environment.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from tools import ROOT

DEPRECATION = """
from dask_simjoin.errors import deprecated

_warning = deprecated(since="0.10", removed_in="0.12", use="count_pairs()")
number_of_pairs = _warning(VERBS["count_pairs"].function)
"""

FORMATS = '''

def _upgrade_1(body: dict[str, Any]) -> dict[str, Any]:
    """Format 2 names the distance `radius`."""
    options = dict(body["options"])
    return body | {"options": options | {"radius": options.pop("eps")}}


FORMAT = 2
UPGRADES[1] = _upgrade_1
_to_json_1, _from_json_1 = to_json, from_json


def to_json(manifest: Manifest) -> dict[str, Any]:  # noqa: F811
    return _upgrade_1(_to_json_1(manifest))


def from_json(body: Any) -> Manifest:  # noqa: F811
    options = dict(body["options"])
    return _from_json_1(body | {"options": options | {"eps": options.pop("radius")}})
'''

MAKE = """
import pandas as pd, dask_simjoin
made = pd.DataFrame({"key": [1, 2, 5], "x": [1.0, 2.0, 5.0]}).simjoin.index(1.0, "index", on="x", id="key")
print(dask_simjoin.__version__, "made version", made.version)
"""

UPDATE = """
import pandas as pd, dask_simjoin
index = dask_simjoin.open_index("index")
added = index.update(pd.DataFrame({"key": [4], "x": [4.0]})).added.compute()
print(dask_simjoin.__version__, "read version 1",
      "and added", added[["left", "right"]].values.tolist(), "in version", index.version)
frame = pd.DataFrame({"x": [0.0, 0.5]})
print("pairs:", dask_simjoin.number_of_pairs(frame, 1.0))
"""

OPEN = """
import dask_simjoin
from dask_simjoin.errors import IndexFormatError
try:
    dask_simjoin.open_index("index")
except IndexFormatError as error:
    print(dask_simjoin.__version__, "refused:", error)
else:
    raise SystemExit("an index of a newer format was read")
"""


def run(*command, expected=0, **options):
    """Run a command, and print its exit code and time; an unexpected code ends the
    rehearsal.
    """
    start = time.perf_counter()
    ran = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, **options
    )
    name = " ".join(str(word) for word in command if "\n" not in str(word))
    print(f"{ran.returncode}  {time.perf_counter() - start:5.1f} s  {name}", flush=True)
    if ran.returncode != expected:
        sys.exit(ran.stdout + ran.stderr)
    return ran.stdout + ran.stderr


def release(clone, version):
    """Commit what was changed with a section of the change log, tag it, check the tag,
    and build a wheel.
    """
    log = clone / "CHANGELOG.md"
    log.write_text(
        log.read_text().replace(
            "# Changes\n", f"# Changes\n\n## {version} (2027-01-01)\n", 1
        )
    )
    run("git", *IDENTITY, "commit", "-qam", f"Release {version}", cwd=clone)
    run("git", "tag", f"v{version}", cwd=clone)
    run(sys.executable, "-m", "tools.tag", f"v{version}", cwd=clone)
    return build(clone, version)


def build(source, version=None):
    """Build a wheel; its version must be the one given."""
    folder = Path(tempfile.mkdtemp(dir=source.parent))
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source)
    (wheel,) = folder.glob("*.whl")
    print(f"   {wheel.name}")
    assert version is None or wheel.name.startswith(f"dask_simjoin-{version}-"), (
        wheel.name,
        version,
    )
    return wheel


IDENTITY = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost")


def main():
    """Rehearse, in a temporary folder."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        clone = folder / "clone"
        run("git", "clone", "-q", ROOT, clone)
        old = release(clone, "0.9.0")
        (clone / "archive.tar").write_bytes(
            subprocess.run(
                ["git", "archive", "HEAD"], cwd=clone, check=True, capture_output=True
            ).stdout
        )
        with tarfile.open(clone / "archive.tar") as archive:
            archive.extractall(folder / "archive", filter="data")
        (clone / "archive.tar").unlink()
        build(folder / "archive", "0.9.0")
        run(
            "git",
            "clone",
            "-q",
            "--depth=1",
            "--no-tags",
            f"file://{clone}",
            folder / "shallow",
        )
        build(folder / "shallow")

        package = clone / "dask_simjoin"
        for path, text in (
            (package / "__init__.py", DEPRECATION),
            (package / "disk_index/manifests.py", FORMATS),
        ):
            path.write_text(path.read_text() + text)
        new = release(clone, "0.10.0")
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        }
        for wheel, program in ((old, MAKE), (new, UPDATE), (old, OPEN)):
            # the wheel is put before what is installed, with the dependencies of this
            # Python
            print(
                run(
                    sys.executable,
                    "-c",
                    program,
                    cwd=folder,
                    env=environment | {"PYTHONPATH": str(wheel)},
                )
            )

        wheel = release(clone, "0.12.0")
        overdue = "tests/test_errors.py::test_nothing_of_the_package_is_overdue"
        paths = environment | {"PYTHONPATH": f"{clone}{os.pathsep}{wheel}"}
        said = run(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            overdue,
            cwd=clone,
            env=paths,
            expected=1,
        )
        print(
            "\n".join(line for line in said.splitlines() if line.startswith("E  "))[
                :500
            ]
        )


if __name__ == "__main__":
    main()
