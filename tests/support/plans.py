"""Plans that tests of reports look at: of 900 rows, as many chunks of either kind, or
as one.
"""

EPS = 0.04
ROW = 24
"""Bytes of a row with two columns and its id."""

KINDS = {
    "entity": {"partitioning": "entity", "blocksize": 100 * ROW},
    "spatial": {"partitioning": "spatial", "blocksize": 100 * ROW},
    "one chunk": {},
}
"""Options of plans."""
