"""The audit of the papers: its summary counts its rows, and rows say why something is
missing.
"""

import collections

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "explanation" / "papers-audit.md").read_text()
STATUSES = ("works", "partly", "absent")


def cells_of(text):
    """The cells of the rows of tables."""
    found = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if "| " in line
    ]
    return [cells for cells in found if cells[0] not in ("item", "document")]


SUMMARY = {
    name: numbers for name, *numbers in cells_of(PAGE.partition("## GPU-Join")[0])
}


@pytest.mark.parametrize("name", SUMMARY)
def test_the_summary_counts_the_rows(name):
    rows = cells_of(PAGE.partition(f"## {name}\n")[2].partition("\n## ")[0])
    counted = collections.Counter(status for _, status, _ in rows)
    assert set(counted) <= set(STATUSES)
    assert [int(one) for one in SUMMARY[name]] == [
        counted[status] for status in STATUSES
    ]
    assert [item for item, status, why in rows if status != "works" and not why] == []
    assert len({item for item, _, _ in rows}) == len(rows)


def test_all_papers_are_there():
    assert list(SUMMARY) == [
        "GPU-Join",
        "Load imbalance",
        "LSS",
        "K-means join",
        "Set joins",
    ]
