"""``python -m benchmarks.tables``: write the tables and charts of README.md and docs/,
and check numbers.

With ``--check`` nothing is written, and the exit status is 1 if a table, chart or
number is not its result's, or is not declared.  With ``--declare`` numbers without a
result are declared in benchmarks/numbers.json: read what it adds.
"""

import sys

from benchmarks.tables import PAGES, ROOT, declared, numbers, read, written
from benchmarks.tables.charts import charts

if __name__ == "__main__":
    check = "--check" in sys.argv[1:]
    declare = "--declare" in sys.argv[1:]
    texts: dict[str, str] = {}
    entries = {} if declare else declared.read()
    wrong = 0
    for page in PAGES:
        text = page.read_text()
        name = page.relative_to(ROOT)
        if (new := written(text)) != text:
            print(
                f"{name}: "
                f"{'its tables are not those of their results' if check else 'written'}"
            )
            wrong += check
            if not check:
                page.write_text(new)
        for path, picture in charts(text, read).items():
            if not path.exists() or path.read_text() != picture:
                print(
                    f"{path.relative_to(ROOT)}: "
                    f"{'differs from its results' if check else 'written'}"
                )
                wrong += check
                if not check:
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(picture)
        if declare:
            texts[str(name)] = page.read_text()
            continue
        for problem in (
            *numbers.problems(text),
            *declared.problems(str(name), text, entries.get(str(name), [])),
        ):
            print(f"{name}:{problem}")
            wrong += 1
    if declare:
        declared.write(texts)
    sys.exit(wrong > 0)
