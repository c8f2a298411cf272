"""Lead links that leave `docs/`, as they work where the repository is browsed, to pages
of the site.
"""

import os
import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]\[]*)\]\((\.\./[^)\s]*)\)")
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md", "README.md": "index.md"}
"""Files outside `docs/`, and the pages that include them."""


def setup(app):
    """Register."""
    app.connect("source-read", lead)
    return {"parallel_read_safe": True}


def lead(app, docname, source):
    """Rewrite the links of a page."""
    folder = DOCS / Path(docname).parent

    def led(match):
        text, link = match.groups()
        path = Path(os.path.normpath(folder / link.partition("#")[0]))
        if DOCS in (path, *path.parents):
            return match[0]
        outside = path.relative_to(DOCS.parent)
        if outside.parts[0] == "examples" and outside.suffix == ".py":
            page = f"gallery/{outside.stem}.rst"
        elif str(outside) in PAGES:
            page = PAGES[str(outside)]
        elif path.is_file():
            return match[0]  # copied to the site
        else:
            return text if "`" in text else f"`{outside}`"
        return f"[{text}]({os.path.relpath(DOCS / page, folder)})"

    source[0] = LINK.sub(led, source[0])
