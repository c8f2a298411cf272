"""What all reports share: a table of facts, shown as text and as HTML."""

import pickle
from dataclasses import dataclass
from xml.etree import ElementTree

import dask.dataframe as dd
import numpy as np
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.api import introspect
from dask_simjoin.disk_index import reports as index_reports
from dask_simjoin.reports.facts import FieldsReport, Report, size
from dask_simjoin.sets import verbs as set_verbs
from tests.support.points import frame_of

# all reports are known once these are imported
assert introspect and index_reports and set_verbs


def kinds(kind=Report):
    """All kinds of reports."""
    return [
        one
        for own in kind.__subclasses__()
        if "test" not in own.__module__
        for one in (own, *kinds(own))
    ]


class Fruit(Report):
    title = "Fruit"
    _facts = (
        ("apples", lambda r: f"{r.apples:,} (<b>)"),
        ("", lambda r: f"{size(r.bytes)} each"),
        ("pears", lambda r: None),
    )
    _exported = ("title", "apples")

    apples, bytes = 1000, 2048.4

    def _further_facts(self):
        return [("further", "1")]


def test_text_is_made_of_the_facts():
    assert repr(Fruit()).splitlines() == [
        "Fruit",
        "  apples   1,000 (<b>)",
        "           2.00 kiB each",
        "  further  1",
    ]
    assert Fruit().to_dict() == {"title": "Fruit", "apples": 1000}


def test_html_is_made_of_the_same_facts():
    root = ElementTree.fromstring(Fruit()._repr_html_())
    cells = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert cells == [["apples", "1,000 (<b>)"], ["", "2.00 kiB each"], ["further", "1"]]
    assert "".join(root.find("p").itertext()) == "Fruit"


@pytest.mark.parametrize("kind", kinds())
def test_labels_are_unique(kind):
    labels = [label for label, _ in kind._facts if label]
    assert len(labels) == len(set(labels))


def test_reports_of_fields():
    @dataclass(frozen=True, repr=False)
    class Boxes(FieldsReport):
        title = "Boxes"

        rows_read: int
        bytes_read: int
        share: float
        known: bool

    found = Boxes(12_000, 4096, 1 / 3, True)
    assert (
        repr(found)
        == "Boxes\n  rows read   12,000\n  bytes read  4.00 kiB\n  share       0.3333\n  known       yes"
    )
    assert (
        found.numbers
        == found.to_dict()
        == {
            "rows_read": 12_000,
            "bytes_read": 4096,
            "share": 1 / 3,
            "known": True,
        }
    )


def test_reports_of_damage():
    damage = (index_reports.Damage("rows/a", "missing", (1, 2, 4)),)
    found = index_reports.CheckReport(3, 4, 1024, 0, 1, damage)
    assert (
        repr(found).splitlines()[-1]
        == "  rows/a                   missing (versions 1 to 2, 4)"
    )
    assert "damage" not in found.numbers and found.frame["file"].tolist() == ["rows/a"]


@pytest.mark.parametrize("options", [{"eps": 0.001}, {"k": 2}])
def test_reports_of_plans_are_small_and_hold_no_rows(options):
    frame = frame_of(np.random.default_rng(3).uniform(size=(20_000, 2)))
    report = dd.from_pandas(frame, npartitions=4).simjoin.plan(**options)
    size = len(pickle.dumps(report))
    assert size < frame.memory_usage().sum() / 20
    text = repr(report), report._repr_html_()
    assert len(pickle.dumps(report)) < size + 100  # nothing that was shown is kept
    again = pickle.loads(pickle.dumps(report))
    assert (repr(again), again._repr_html_()) == text
