"""Whether what would be released is complete: `python -m tools.packages [FOLDER]`.

FOLDER has a source distribution and a wheel, as `python -m build` leaves them in dist.
Default: build both. The wheel is installed in a fresh environment, where the first
command of README.md and the program must run.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from tools import ROOT

LARGEST = 1_000_000
"""Bytes of a source distribution."""

JOIN = """
import pandas, dask_simjoin
frame = pandas.DataFrame({"x": [0.0, 0.5, 9.0]})
print(dask_simjoin.__version__, dask_simjoin.__file__, len(frame.simjoin.self_join(1.0)))
"""


def run(*command, **options):
    """Run a command, and print its exit status and time; it stops the check where it
    fails.
    """
    start = time.perf_counter()
    ran = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, **options
    )
    print(
        f"{ran.returncode}  {time.perf_counter() - start:6.2f} s  "
        f"{' '.join(map(str, command))}",
        flush=True,
    )
    if ran.returncode:
        sys.exit(ran.stdout + ran.stderr)
    return ran.stdout


def first_command():
    """The first command of README.md."""
    return re.search(
        r"^```sh\n(.*?)\n```$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )[1]


def not_packed(names):
    """Files of the package that a distribution with these names lacks."""
    listed = subprocess.run(
        ["git", "ls-files", "dask_simjoin"], cwd=ROOT, capture_output=True, text=True
    )
    return sorted(set(listed.stdout.split()) - set(names))


def contents(source, wheel):
    """The folders of both distributions; exits if a file lacks, or one is too much."""
    with tarfile.open(source) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    packed = zipfile.ZipFile(wheel).namelist()
    for path, found in ((source, names), (wheel, packed)):
        if lacking := not_packed(found):
            sys.exit(f"{path.name} lacks {lacking}")
        tops = sorted({name.partition("/")[0] for name in found})
        print(
            f"{path.name}: {path.stat().st_size:,} bytes, {len(found)} files: "
            f"{' '.join(tops)}"
        )
    if {"benchmarks", "tests", "docs"} & {
        name.partition("/")[0] for name in names + packed
    }:
        sys.exit("results, tests or pages are packed")
    if source.stat().st_size > LARGEST:
        sys.exit(f"{source.name} has more than {LARGEST:,} bytes")


def version_of(path):
    """The version in a distribution's name."""
    return path.name.removesuffix(".tar.gz").split("-")[1]


def check_source(source, folder):
    """A wheel from the unpacked source, without git, has the same version."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, unpacked)
    (built,) = folder.glob("*.whl")
    assert version_of(built) == version_of(source), (built, source)


def check_wheel(wheel, folder):
    """The first command of README.md, the program, an import, and a join from the wheel
    as a zip file.
    """
    shutil.copytree(ROOT / "examples", folder / "examples")
    command = first_command().replace("-e '.[examples]'", f"'{wheel}[examples]'")
    print(
        run(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            command.replace("python3", sys.executable, 1),
            cwd=folder,
        )
    )
    python, program = (
        folder / ".venv" / "bin" / name for name in ("python", "dask-simjoin")
    )
    output = folder / "pairs.parquet"
    run(program, "--help", cwd=folder)
    places = folder / "examples/data/places.parquet"
    options = [
        "--eps",
        "500",
        "--metric",
        "haversine",
        "--on",
        "latitude,longitude",
        "--output",
        output,
    ]
    run(program, "self-join", places, *options, cwd=folder)
    assert output.exists()
    for _ in range(3):
        run(python, "-c", "import dask_simjoin", cwd=folder)
    print(run(python, "-c", JOIN, cwd=folder))
    run(python, "-m", "pip", "uninstall", "-q", "-y", "dask-simjoin", cwd=folder)
    print(run(python, "-c", JOIN, cwd=folder, env={"PYTHONPATH": str(wheel)}))


def main():
    """Check what is in the folder, or what is built."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        built = Path(sys.argv[1]).resolve() if sys.argv[1:] else folder / "dist"
        if not sys.argv[1:]:
            run(sys.executable, "-m", "build", "-o", built, ROOT)
        (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
        contents(source, wheel)
        for name, check, path in (
            ("source", check_source, source),
            ("wheel", check_wheel, wheel),
        ):
            (folder / name).mkdir()
            check(path, folder / name)


if __name__ == "__main__":
    main()
