"""Expected contents of an index that grows, by brute force, and indexes of all kinds of
rows.
"""

import numpy as np
import pandas as pd

from tests.support.frames import lay
from tests.support.oracle import brute_force

CASES = {
    "2-D": (2, 1.0, {"return_distance": True}),
    "20-D": (20, 7.0, {"keep": "name"}),
    "cosine": (3, 0.01, {"metric": "cosine", "return_distance": True, "keep": "name"}),
    "constant": (2, 0.0, {}),
    "lists of texts": (5, 2.0, {"keep": "name"}),
}
FEW = ["2-D", "cosine", "lists of texts"]


class Model:
    """The rows of a growing index by id, as `(number, place)`, and the rows of all kept
    versions.
    """

    def __init__(self, eps, rows, metric="euclidean", p=2):
        self.eps, self.metric, self.p = eps, metric, p
        self.rows, self.next, self.version, self.versions = {}, 0, 0, {}
        self.update(rows)

    def update(self, new, delete=(), if_exists="fail"):
        """Change the rows like `Index.update`."""
        before = self.rows
        self.rows = {id: row for id, row in before.items() if id not in delete}
        for number, (id, place) in enumerate(new.items(), self.next):
            if id not in before:
                self.rows[id] = number, place
            elif id in delete or if_exists == "replace":
                self.rows[id] = before[id][0], place
        self.next += len(new)
        self._made()

    def restore(self, version):
        """Change the rows like `Index.restore`."""
        self.rows = self.versions[version]
        self._made()

    def keep_up(self, version):
        """Add versions with the same rows, as methods that only reorder rows do."""
        while self.version < version:
            self._made()

    def forget(self, keep):
        """Drop versions like `Index.vacuum`."""
        self.versions = {
            v: rows for v, rows in self.versions.items() if v > self.version - keep
        }

    @property
    def oldest(self):
        """The oldest kept version."""
        return min(self.versions)

    def pairs(self, eps=None):
        """Return pairs of ids, the row with the smaller number first; `eps` is another
        distance.
        """
        order = sorted(self.rows, key=lambda id: self.rows[id][0])
        if not order:
            return set()
        x = np.array([self.rows[id][1] for id in order], np.float64)
        return {
            (order[i], order[j])
            for i, j in brute_force(
                x, self.eps if eps is None else eps, self.metric, self.p
            )
        }

    def _made(self):
        self.version += 1
        self.versions[self.version] = self.rows


def table(case, first, number, scale=1.0):
    """Draw rows named from `first` on, on a lattice, so that many distances are ties."""
    dims = CASES[case][0]
    x = np.random.default_rng([dims, first]).integers(1, 12, (number, dims)) / 2 * scale
    columns = {f"c{k}": x[:, k] for k in range(dims)}
    if case == "constant":
        columns["c1"] = np.full(number, 3.0)
    if case == "lists of texts":
        columns = {"v": list(x)}
    keys = np.arange(first, first + number)
    named = [f"row {key}" for key in keys] if case == "lists of texts" else keys
    return pd.DataFrame(
        {"key": named} | columns | {"name": [f"name {k % 7}" for k in keys]}
    )


def made(case, folder, **more):
    """Return an index of 500 such rows."""
    frame = table(case, 0, 500)
    on = [name for name in frame.columns if name not in ("key", "name")]
    eps, how = CASES[case][1:]
    return lay(frame, "dask-3").simjoin.index(
        eps, folder, on=on, id="key", row_group=32, **how, **more
    )
