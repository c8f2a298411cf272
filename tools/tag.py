"""Whether a tag is that of a release: `python -m tools.tag v1.2.3`.

The version that the build backend reads from git must be the tag's, and the change log
must have its section.
"""

import subprocess
import sys

from packaging.version import Version

from tools import ROOT


def faults(tag, version, changes):
    """What is wrong with a tag, given the version of the build and the text of the
    change log.
    """
    found = []
    if not tag.startswith("v") or str(Version(tag[1:])) != tag[1:]:
        return [f"the tag {tag} is not v and a version"]
    if version != tag[1:]:
        found.append(f"the version is {version}, and the tag is {tag}")
    release = Version(tag[1:]).base_version
    lines = [
        line for line in changes.splitlines() if line.startswith(f"## {release} (")
    ]
    if not lines:
        found.append(f"CHANGELOG.md has no section {release}")
    elif "unreleased" in lines[0] and not Version(tag[1:]).is_prerelease:
        found.append(f"CHANGELOG.md calls {release} unreleased; write the date")
    return found


def main():
    """Print what is wrong; fail if anything is."""
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = (
        [ran.stderr]
        if ran.returncode
        else faults(
            sys.argv[1], ran.stdout.strip(), (ROOT / "CHANGELOG.md").read_text()
        )
    )
    print(ran.stdout.strip(), *found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
