"""The audit of the papers: one list, from which the audit, the overview of the papers and
the states of figures are.
"""

import json
import re

import pytest

from benchmarks.tables import audit
from tests.support.paths import ROOT

ITEMS = json.loads(
    (ROOT / "benchmarks" / "results" / "papers" / "audit.json").read_text()
)["items"]
PAGES = {
    "GPU-Join": "grid-joins",
    "Load imbalance": "grid-joins",
    "LSS": "list-joins",
    "K-means join": "list-joins",
    "Set joins": "set-joins",
}


def test_items_have_a_state_and_say_what_is_missing():
    assert {one["document"] for one in ITEMS} == set(audit.DOCUMENTS)
    assert {one["state"] for one in ITEMS} <= set(audit.STATES)
    assert [one for one in ITEMS if one["state"] != "works" and not one["remark"]] == []
    names = [(one["document"], one["item"]) for one in ITEMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "item",
    [one for one in ITEMS if "row" in one],
    ids=lambda one: f"{one['document']}-{one['row']}",
)
def test_tables_of_figures_agree_with_the_audit(item):
    page = ROOT / "docs" / "explanation" / f"{PAGES[item['document']]}.md"
    text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith(f"| {item['row']}") and line.count("|") >= 4
    ]
    states = [row[-1] for row in rows if row[-1].startswith(("yes", "in part", "no"))]
    assert len(states) == 1, rows
    assert states[0].startswith(audit.SHOWN[item["state"]]), states
