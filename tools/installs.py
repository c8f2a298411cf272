"""What installers choose for each Python and extra: `python -m tools.installs`.

pip as it comes with Python, the newest pip, and uv only resolve; no package is
installed or downloaded whole. A pre-release, a source distribution (placeholders on
package indexes are either) or no solution is a failure.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import ROOT

EXTRAS = ("", "test", "cuda12", "cuda13")
PYTHONS = ("3.11", "3.12", "3.13")
TOOLS = ("pip", "newest pip", "uv")
SHOWN = (
    "dask",
    "pandas",
    "numpy",
    "numba",
    "pyarrow",
    "scipy",
    "cudf",
    "dask-cudf",
    "dask-cuda",
    "cupy",
)

PIP = """
import sys
from pip._internal.cli.main import main
from pip._internal.operations.prepare import RequirementPreparer
from pip._internal.utils.direct_url_helpers import direct_url_from_link

from tools import ROOT

def downloads_nothing(self, requirements, *args, **kwargs):
    for one in requirements:
        one.download_info = one.download_info or direct_url_from_link(one.link)

# older pips would download every wheel that they report
RequirementPreparer.prepare_linked_requirements_more = downloads_nothing
sys.exit(main(["install", "--dry-run", "--quiet", "--ignore-installed", *sys.argv[1:]]))
"""


class Chosen(NamedTuple):
    """A distribution that an installer chose; `file` is its name on the index."""

    name: str
    version: str
    file: str

    @property
    def fault(self):
        """Why nobody should get it, or ""."""
        if not self.file.endswith(".whl"):
            return f"{self.name} {self.version} is a source distribution"
        return (
            f"{self.name} {self.version} is a pre-release"
            if Version(self.version).is_prerelease
            else ""
        )


def run(*command, **options):
    """What a command prints; raises with what it said last."""
    ran = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=600, **options
    )
    if ran.returncode:
        raise RuntimeError(
            " ".join((ran.stderr.strip() or ran.stdout.strip()).split())[-300:]
        )
    return ran.stdout


def chosen_by_pip(python, wheel, extra, folder):
    """What the pip of an environment chooses."""
    report = folder / "report.json"
    run(python, "-c", PIP, "--report", report, f"{wheel}[{extra}]" if extra else wheel)
    return [
        Chosen(
            one["metadata"]["name"],
            one["metadata"]["version"],
            one["download_info"]["url"],
        )
        for one in json.loads(report.read_text())["install"]
    ]


def chosen_by_uv(python, wheel, extra):
    """What uv chooses for a version of Python."""
    wanted = f"dask-simjoin[{extra}] @ {wheel.as_uri()}"
    lock = run(
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--format",
        "pylock.toml",
        "--python",
        python,
        "-",
        input=wanted,
    )
    return [
        Chosen(
            one["name"],
            one["version"],
            (one.get("wheels") or [one["sdist"]])[0].get("url", ""),
        )
        for one in tomllib.loads(lock)["packages"]
        if "version" in one and "archive" not in one
    ]


def row(python, extra, tool, chosen, fault):
    """A row of the table."""
    versions = {
        re.sub(r"-cu(da)?\d+x?$", "", canonicalize_name(one.name)): one.version
        for one in chosen
    }
    return [
        python,
        extra,
        tool,
        str(len(chosen)),
        *(versions.get(name, "") for name in SHOWN),
        fault or "ok",
    ]


def check(folder, number, extras, tools):
    """Rows of one version of Python."""
    run(f"python{number}", "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        ROOT,
    )
    (wheel,) = folder.glob("*.whl")
    for tool in tools:
        if tool == "newest pip":
            run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip")
        called = run(*(["uv"] if tool == "uv" else [python, "-m", "pip"]), "--version")
        version = " ".join(called.split()[:2])
        for extra in extras:
            chosen, fault = [], ""
            try:
                chosen = (
                    chosen_by_uv(python, wheel, extra)
                    if tool == "uv"
                    else chosen_by_pip(python, wheel, extra, folder)
                )
                fault = "; ".join(filter(None, (one.fault for one in chosen)))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                fault = f"no solution: {error}"
            yield row(number, extra, version, chosen, fault)


def main():
    """Print the table; the number of faults is the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.installs", description=__doc__
    )
    parser.add_argument("--python", nargs="+", default=PYTHONS)
    parser.add_argument("--extra", nargs="+", default=EXTRAS)
    parser.add_argument("--tool", nargs="+", default=TOOLS, choices=TOOLS)
    asked = parser.parse_args()
    faults = 0
    heads = ["Python", "extra", "tool", "packages", *SHOWN, ""]
    print(
        "|".join(["", *heads, ""]),
        "|".join(["", *["---"] * len(heads), ""]),
        sep="\n",
        flush=True,
    )
    for number in asked.python:
        with tempfile.TemporaryDirectory() as folder:
            for cells in check(Path(folder), number, asked.extra, asked.tool):
                print("|".join(["", *cells, ""]), flush=True)
                faults += cells[-1] != "ok"
    sys.exit(f"{faults} failed" if faults else 0)


if __name__ == "__main__":
    main()
