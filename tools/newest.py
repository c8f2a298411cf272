"""Whether the newest releases are among those that were tested: `python -m
tools.newest`.

pip looks up the newest release of each package with an upper bound in pyproject.toml.
It needs a network.
"""

import re
import subprocess
import sys
import tomllib

from packaging.requirements import Requirement

from tools import ROOT, compatibility


def bounded():
    """Names of the dependencies with an upper bound; distributed has Dask's versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = map(Requirement, project["dependencies"])
    names = {
        one.name
        for one in wanted
        if any(part.operator == "<" for part in one.specifier)
    }
    return sorted(names - {"distributed"})


def newest(name):
    """The newest release of a package that pip can find."""
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=300
    )
    return re.match(rf"{re.escape(name)} \((.+)\)", ran.stdout)[1]


def untested(found, results):
    """Name -> newest version, of packages whose newest version no row passed with."""
    return {
        name: version
        for name, version in found.items()
        if version not in compatibility.versions_that_passed(name, results)
    }


def main():
    """Print the newest versions; fail if one is not tested."""
    found = {name: newest(name) for name in bounded()}
    missing = untested(found, compatibility.results())
    for name, version in found.items():
        print(f"{name} {version}: {'not tested' if name in missing else 'tested'}")
    sys.exit("run nox, and raise the upper bounds in pyproject.toml" if missing else 0)


if __name__ == "__main__":
    main()
