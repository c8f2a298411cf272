"""Write everything anew that is made from the package's tables: `python -m
tools.generate`.
"""

from tools import (
    compatibility,
    error_table,
    names,
    program_help,
    stubs,
    verb_tables,
)

MAKERS = (stubs, verb_tables, error_table, compatibility, names, program_help)
"""Each has a function `files`: path -> text of what it makes."""


def stale():
    """Path -> text of files that are not as they should be."""
    made = {path: text for maker in MAKERS for path, text in maker.files().items()}
    return {
        path: text
        for path, text in made.items()
        if not path.exists() or path.read_text() != text
    }


if __name__ == "__main__":
    for path, text in stale().items():
        path.write_text(text)
        print(f"wrote {path}")
