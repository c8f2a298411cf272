"""``python -m benchmarks.tables``: write the tables of README.md and docs/ anew."""

from benchmarks.tables import PAGES, written

if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text()
        if (new := written(text)) != text:
            page.write_text(new)
            print(page)
