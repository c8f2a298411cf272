"""Names that do not exist yet: change them here, then run `python -m tools.generate`."""

import re

from tools import ROOT

OWNER = "OWNER"
"""Owner of the repository: the one line to change once it exists."""

FILES = (
    ".github/ISSUE_TEMPLATE/config.yml",
    "CITATION.cff",
    "SECURITY.md",
    "conda/recipe.yaml",
    "pyproject.toml",
)
"""Files that name the repository by its address."""

ADDRESS = re.compile(r"(github\.com/)[\w.-]+(/dask-simjoin)")
MAINTAINERS = re.compile(r"(recipe-maintainers:\n    - )\S+")


def written(text):
    """A text with the owner's name in all addresses."""
    text = ADDRESS.sub(rf"\g<1>{OWNER}\g<2>", text)
    return MAINTAINERS.sub(rf"\g<1>{OWNER}", text)


def files():
    """Path -> text of the files."""
    return {path: written(path.read_text()) for path in (ROOT / name for name in FILES)}
