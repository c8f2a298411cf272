"""The tests with the oldest versions that pyproject.toml allows: `python -m
tools.oldest`.

uv makes the environment, with the oldest Python, in .oldest or in --folder; the rest
are arguments of pytest.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tools import ROOT

PYTHON = "3.11"
EXTRAS = "test,examples,graph,plot"
# the CUDA sources are the same whatever is installed
COMPILED = ("tests/engine/gpu/test_sources.py", "tests/sets/gpu/test_kernels.py")
ARGUMENTS = [
    "-q",
    "-n",
    "2",
    "--dist",
    "loadfile",
    *(f"--ignore={path}" for path in COMPILED),
]


def environment(folder):
    """The Python of an environment that has the lowest version of each direct
    dependency.
    """
    if not folder.exists():
        subprocess.run(
            ["uv", "venv", "--quiet", "--python", PYTHON, folder], check=True
        )
    python = folder / "bin" / "python"
    install = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--resolution",
        "lowest-direct",
    ]
    subprocess.run([*install, "--editable", f"{ROOT}[{EXTRAS}]"], check=True)
    subprocess.run(["uv", "pip", "list", "--python", python], check=True)
    return python


def main():
    """Make the environment and run the tests there; pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.oldest", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".oldest")
    asked, arguments = parser.parse_known_args()
    python = environment(asked.folder.resolve())
    sys.exit(
        subprocess.call([python, "-m", "pytest", *(arguments or ARGUMENTS)], cwd=ROOT)
    )


if __name__ == "__main__":
    main()
