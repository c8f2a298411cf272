"""Does here what the jobs of .github/workflows do: `python -m tools.jobs
[WORKFLOW[/JOB] ...]`.

Every job runs in a fresh clone of HEAD, with a fresh environment of its version of
Python first on the PATH. Steps with `uses:` are actions of GitHub, and are listed only.
A table shows exit codes and times. `--tests PATHS` runs some tests instead of all:
pytest adds the paths to its arguments.
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import yaml

from tools import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
EXPRESSION = re.compile(r"\$\{\{ *matrix\.([\w-]+) *\}\}")


class Job(NamedTuple):
    """A job of a workflow with one row of its matrix."""

    workflow: str
    name: str
    row: dict
    body: dict

    @property
    def title(self):
        """The names of workflow, job and row."""
        return "/".join(
            [self.workflow, self.name, *map(str, list(self.row.values())[:1])]
        )

    def filled(self, text):
        """A text with the values of the row."""
        return EXPRESSION.sub(lambda match: str(self.row[match[1]]), str(text))

    @property
    def python(self):
        """The version of Python that a step sets up."""
        for step in self.body["steps"]:
            if "setup-python" in step.get("uses", ""):
                return self.filled(step["with"]["python-version"])
        return f"{sys.version_info.major}.{sys.version_info.minor}"


def matrix(body):
    """The rows of a job's matrix."""
    axes = dict(body.get("strategy", {}).get("matrix", {}))
    rows = axes.pop("include", [])
    if axes:
        rows = [
            dict(zip(axes, one, strict=True))
            for one in itertools.product(*axes.values())
        ] + rows
    return rows or [{}]


def jobs():
    """All jobs that have steps, in the order of the files."""
    for path in sorted(WORKFLOWS.glob("*.yml")):
        for name, body in yaml.safe_load(path.read_text())["jobs"].items():
            if "steps" in body:
                yield from (Job(path.stem, name, row, body) for row in matrix(body))


def environment(job, folder, tests):
    """The variables of a job: its own Python comes first on the PATH."""
    python = shutil.which(f"python{job.python}")
    if python is None:
        raise LookupError(f"there is no Python {job.python} here")
    subprocess.run([python, "-m", "venv", folder / "python"], check=True)
    own = {
        "PATH": f"{folder / 'python' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CI": "true",
    }
    own["RUNNER_TEMP"] = str(folder / "temporary")
    tag = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    own["GITHUB_REF_NAME"] = tag.split("\n")[0] or "none"
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    return inherited | own | ({"PYTEST_ADDOPTS": " ".join(tests)} if tests else {})


def run(job, folder, tests):
    """Yield the exit code, the seconds and the command of each step."""
    try:
        variables = environment(job, folder, tests)
    except (LookupError, subprocess.CalledProcessError) as error:
        yield "-", 0.0, f"not run: {error}"
        return
    (folder / "temporary").mkdir()
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    for step in job.body["steps"]:
        if "uses" in step:
            yield "-", 0.0, f"uses {step['uses']}"
            continue
        command, start = job.filled(step["run"]), time.perf_counter()
        print(f"+ {command}", flush=True)
        code = subprocess.call(
            ["bash", "-eo", "pipefail", "-c", command], cwd=clone, env=variables
        )
        yield code, time.perf_counter() - start, command
        if code:
            return


def main():
    """Run jobs, and print the table; fail if a step failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.jobs", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="WORKFLOW or WORKFLOW/JOB; default: all"
    )
    parser.add_argument("--row", nargs="+", help="first values of rows of a matrix")
    parser.add_argument("--tests", nargs="+", help="paths of tests")
    parser.add_argument("--list", action="store_true", help="list the jobs only")
    asked = parser.parse_args()
    table, failed = [], False
    for job in jobs():
        first = next(iter(job.row.values()), None)
        if asked.names and not {job.workflow, f"{job.workflow}/{job.name}"} & set(
            asked.names
        ):
            continue
        if asked.row and first is not None and first not in asked.row:
            continue
        if asked.list:
            print(job.title)
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for code, seconds, command in run(job, Path(folder), asked.tests or []):
                table.append(f"| {job.title} | {code} | {seconds:.1f} | {command} |")
                failed = failed or code not in (0, "-")
    if not asked.list:
        print(
            "\n| job | exit code | seconds | command |",
            "|---|---|---|---|",
            *table,
            sep="\n",
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
