"""Whether what would be released is whole: `python -m tests.checks.sdist`.

Builds a source distribution, and a wheel from it, with uv; installs from the unpacked sources; collects all
tests there and runs some.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOME = ["tests/whole/test_layers.py", "tests/request/test_resolve.py", "tests/cluster/test_plots.py"]


def run(*command, **options):
    """Run a command; it stops the check where it fails."""
    print("+", *command, flush=True)
    subprocess.run([*map(str, command)], check=True, **options)


def not_packed(wheel):
    """Files of the package that the wheel lacks."""
    package = ROOT / "dask_simjoin"
    files = subprocess.run(["git", "ls-files", package], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(set(files.stdout.split()) - set(zipfile.ZipFile(wheel).namelist()))


def main():
    """Build, compare, install, test."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run("uv", "build", "--quiet", "--out-dir", folder, ROOT)
        (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
        if lacking := not_packed(wheel):
            sys.exit(f"{wheel.name} lacks {lacking}")
        for built in (source, wheel):
            print(f"{built.name}: {built.stat().st_size / 1e6:.2f} MB")
        with tarfile.open(source) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (unpacked,) = (folder / "unpacked").iterdir()
        run("uv", "venv", "--quiet", "--python", sys.executable, folder / "environment")
        python = folder / "environment" / "bin" / "python"
        run("uv", "pip", "install", "--quiet", "--python", python, f"{unpacked}[test]")
        run(
            python,
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "--no-header",
            cwd=unpacked,
            stdout=subprocess.DEVNULL,
        )
        run(python, "-m", "pytest", "-q", *SOME, cwd=unpacked)


if __name__ == "__main__":
    main()
