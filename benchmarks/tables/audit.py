"""Tables of the audit of the papers, all from one list: results/papers/audit.json.

An item has a document, a kind (figure or algorithm), a state, a remark, and if it is a
figure of a page "row": how its row in the table of figures begins.
"""

from __future__ import annotations

import functools
from typing import Any

Found = dict[str, Any]
Rows = list[list[str]]

DOCUMENTS = ("GPU-Join", "Load imbalance", "LSS", "K-means join", "Set joins")
STATES = ("works", "partly", "contrary", "absent")

SHOWN = {
    "works": ("yes",),
    "partly": ("in part",),
    "contrary": ("no",),
    "absent": ("no",),
}
"""State -> how the last cell of a figure's row begins."""


def of(document: str, found: Found) -> Rows:
    """Tabulate the items of a document."""
    return [
        ["item", "status", "remark"],
        *(
            [one["item"], one["state"], one["remark"]]
            for one in found["items"]
            if one["document"] == document
        ),
    ]


def tally(found: Found) -> Rows:
    """Count the items of each document by state."""
    table = [["document", *STATES]]
    for document in DOCUMENTS:
        states = [one["state"] for one in found["items"] if one["document"] == document]
        table.append([document, *(str(states.count(state)) for state in STATES)])
    return table


def reproduced(found: Found) -> Rows:
    """List the figures and tables of each document by state."""
    table = [["document", *STATES]]
    for document in DOCUMENTS:
        cells = []
        for state in STATES:
            names = [
                one["item"]
                for one in found["items"]
                if (one["document"], one["kind"], one["state"])
                == (document, "figure", state)
            ]
            cells.append("; ".join(names))
        table.append([document, *cells])
    return table


TABLES = {
    "audit": tally,
    "reproduced": reproduced,
    **{
        f"audit-{name.lower().replace(' ', '-')}": functools.partial(of, name)
        for name in DOCUMENTS
    },
}
