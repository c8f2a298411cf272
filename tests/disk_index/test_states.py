"""An index that is updated at random is at every step what brute force says."""

import shutil
import tempfile

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import dask_simjoin
from dask_simjoin.disk_index import publishing
from dask_simjoin.disk_index.maintenance import HOW as OPTIMIZE
from dask_simjoin.errors import DuplicateIdError, OptionError, VersionGoneError
from tests.support.frames import lay
from tests.support.growing import Model
from tests.support.oracle import as_set, assert_same_pairs
from tests.support.profiles import examples

EPS, NEARER = 1.0, 0.5
IDS = st.integers(0, 25)
PLACES = st.integers(0, 6).map(lambda k: k / 2)
ROWS = st.dictionaries(IDS, st.tuples(PLACES, PLACES), max_size=8)
HOW = st.sampled_from(["pandas", "dask-1", "dask-3"])


def frame(rows):
    """Rows by id as a frame."""
    x = np.array(list(rows.values()), np.float64).reshape(-1, 2)
    return pd.DataFrame(
        {"key": np.array(list(rows), np.int64), "x": x[:, 0], "y": x[:, 1]}
    )


class Growing(RuleBasedStateMachine):
    """An index, what it should be, and a consumer that is told of changes now and then."""

    def __init__(self):
        super().__init__()
        self.config = dask.config.set(scheduler="sync")
        self.most, publishing.MAX_BATCHES = publishing.MAX_BATCHES, 2
        self.folder = tempfile.mkdtemp()

    @initialize(stored=st.booleans())
    def make(self, stored):
        self.stored = stored
        first = {0: (0.0, 0.0), 1: (0.0, 1.0), 2: (3.0, 3.0)}
        how = {"on": ["x", "y"], "id": "key", "row_group": 4, "store_pairs": stored}
        self.index = frame(first).simjoin.index(EPS, self.folder, **how)
        self.model = Model(EPS, first)
        self.told = self.index.version, self.model.pairs()
        self.batches = {}

    def teardown(self):
        shutil.rmtree(self.folder)
        publishing.MAX_BATCHES = self.most
        self.config.__exit__(None, None, None)

    def update(self, new, how, delete, if_exists, batch=None, index=None):
        """Update, by this index or by another writer, of whose changes this one tells."""
        known = set(new) & set(self.model.rows) - set(delete)
        unknown = set(delete) - set(self.model.rows)
        asked = {"delete": list(delete) or None, "if_exists": if_exists, "batch": batch}
        rows = lay(frame(new), how)
        before = self.index.version, self.model.pairs()
        if unknown or (known and if_exists == "fail"):
            with pytest.raises(OptionError if unknown else DuplicateIdError):
                self.index.update(rows, **asked)
            assert self.index.version == before[0]
            return
        changes = (index or self.index).update(rows, **asked)
        self.model.update(new, delete, if_exists)
        if index is None:
            added, removed = (
                as_set(side.compute()) for side in (changes.added, changes.removed)
            )
        else:
            found = self.index.changes(before[0], changes.version).compute()
            added, removed = (as_set(found[found["diff"] == sign]) for sign in (1, -1))
        assert_same_pairs(added, self.model.pairs() - before[1])
        assert_same_pairs(removed, before[1] - self.model.pairs())
        assert changes.since == before[0] < changes.version == self.model.version
        self.model.keep_up(self.index.version)
        if batch is not None:
            self.batches[batch] = changes.version, added, removed, new, delete

    @rule(
        new=ROWS,
        how=HOW,
        delete=st.sets(IDS, max_size=3),
        if_exists=st.sampled_from(["fail", "replace", "ignore"]),
    )
    def any_update(self, new, how, delete, if_exists):
        self.update(new, how, delete, if_exists)

    @rule(new=ROWS, how=HOW, gone=st.sets(st.integers(0, 25), max_size=4))
    def likely_update(self, new, how, gone):
        """One that is allowed, of rows that there are."""
        there = sorted(self.model.rows)
        self.update(
            new,
            how,
            {there[k] for k in gone if k < len(there)},
            "replace",
            f"{len(self.batches)}",
        )

    @rule(new=ROWS, gone=st.sets(st.integers(0, 25), max_size=4))
    def update_of_another_writer(self, new, gone):
        there = sorted(self.model.rows)
        other = dask_simjoin.open_index(self.folder)
        self.update(
            new,
            "pandas",
            {there[k] for k in gone if k < len(there)},
            "replace",
            index=other,
        )

    @rule()
    def persist(self):
        self.index.persist()
        assert self.index.memory.rows_on_disk == 0

    @rule()
    def release(self):
        self.index.release()

    @precondition(lambda self: len(self.model.rows) > 6)
    @rule()
    def drop_everything(self):
        self.update({}, "pandas", set(self.model.rows), "fail")

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), new=ROWS, how=HOW)
    def same_batch_again(self, data, new, how):
        batch = data.draw(st.sampled_from(sorted(self.batches)))
        version, added, removed, rows, gone = self.batches[batch]
        before = self.index.version
        if new and new != rows:
            with pytest.raises(OptionError, match="with other rows"):
                self.index.update(lay(frame(new), how), batch=batch)
        changes = self.index.update(
            lay(frame(rows), how), delete=list(gone) or None, batch=batch
        )
        assert changes.report.known
        assert (changes.version, self.index.version) == (version, before)
        if version > self.model.oldest:
            assert_same_pairs(as_set(changes.added.compute()), added)
            assert_same_pairs(as_set(changes.removed.compute()), removed)

    @rule(data=st.data())
    def restore(self, data):
        version = data.draw(st.sampled_from(sorted(self.model.versions)))
        changes, before = self.index.restore(version), self.model.pairs()
        self.model.restore(version)
        assert_same_pairs(as_set(changes.added.compute()), self.model.pairs() - before)
        assert_same_pairs(
            as_set(changes.removed.compute()), before - self.model.pairs()
        )

    @rule(keep=st.integers(1, 3))
    def vacuum(self, keep):
        self.index.vacuum(keep)
        self.model.forget(keep)

    @rule(how=st.sampled_from(OPTIMIZE))
    def optimize(self, how):
        done, before = self.index.optimize(how), self.index.version
        assert done.version == before
        self.model.keep_up(before)
        if how == "all":
            assert done.rows == len(self.model.rows)
            assert self.index.quality().deleted_share == 0

    @rule()
    def reopen(self):
        self.index = dask_simjoin.open_index(self.folder)

    @rule(anew=st.booleans())
    def tell_the_consumer(self, anew):
        version, pairs = (0, set()) if anew else self.told
        if 0 < version < self.model.oldest:
            with pytest.raises(VersionGoneError, match="vacuum"):
                self.index.changes(version)
        else:
            changes = self.index.changes(version).compute()
            removed, added = (
                as_set(changes[changes["diff"] == sign]) for sign in (-1, 1)
            )
            assert removed <= pairs and not added & pairs
            assert_same_pairs(pairs - removed | added, self.model.pairs())
        self.told = self.index.version, self.model.pairs()

    @invariant()
    def is_what_brute_force_says(self):
        assert_same_pairs(as_set(self.index.pairs().compute()), self.model.pairs())
        if self.stored:
            assert_same_pairs(
                as_set(self.index.pairs(NEARER).compute()), self.model.pairs(NEARER)
            )
        rows = self.index.rows().compute().set_index("key")
        assert {
            key: tuple(row)
            for key, row in zip(rows.index, rows.to_numpy().tolist(), strict=True)
        } == {key: place for key, (_, place) in self.model.rows.items()}
        assert len(self.index) == len(self.model.rows)


Growing.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=5, deadline=None
)
TestGrowing = Growing.TestCase
