"""What an index that grows should be, by brute force."""

import numpy as np

from tests.support.oracle import brute_force


class Model:
    """Rows by id, as `(number, place)`, and those of all versions that are kept."""

    def __init__(self, eps, rows, metric="euclidean", p=2):
        self.eps, self.metric, self.p = eps, metric, p
        self.rows, self.next, self.version, self.versions = {}, 0, 0, {}
        self.update(rows)

    def update(self, new, delete=(), if_exists="fail"):
        """Do as `Index.update`."""
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
        """Do as `Index.restore`."""
        self.rows = self.versions[version]
        self._made()

    def keep_up(self, version):
        """Do as what puts rows in order, which makes versions of the same rows."""
        while self.version < version:
            self._made()

    def forget(self, keep):
        """Do as `Index.vacuum`."""
        self.versions = {v: rows for v, rows in self.versions.items() if v > self.version - keep}

    @property
    def oldest(self):
        """The oldest version that is kept."""
        return min(self.versions)

    def pairs(self):
        """Pairs of ids, the row with the smaller number first."""
        order = sorted(self.rows, key=lambda id: self.rows[id][0])
        if not order:
            return set()
        x = np.array([self.rows[id][1] for id in order], np.float64)
        return {(order[i], order[j]) for i, j in brute_force(x, self.eps, self.metric, self.p)}

    def _made(self):
        self.version += 1
        self.versions[self.version] = self.rows
