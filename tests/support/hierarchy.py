"""HDBSCAN by its definition: the hierarchy from all pairs of rows, and the clusters, in
plain Python.
"""

import math

import numpy as np

from dask_simjoin.metrics import make_metric
from tests.support.oracle import totals


def reachability(x, min_samples, metric="euclidean"):
    """Return the mutual reachability of all pairs of rows (n, n), as totals."""
    away = totals(x, x, metric)
    core = np.sort(away, axis=1)[:, min(min_samples, len(x)) - 1]
    return np.maximum(away, np.maximum(core[:, None], core[None, :]))


def tree_by_definition(x, min_samples, metric="euclidean", shown=True):
    """Return edges (i, j) and their distances, by Kruskal's algorithm on all pairs by
    (weight, i, j).

    The result is in the order of (distance, i, j) if it is shown, else of (weight, i,
    j).
    """
    weight = reachability(x, min_samples, metric)
    i, j = np.triu_indices(len(x), 1)
    parent = list(range(len(x)))

    def root(a):
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    edges, far = [], []
    for e in np.lexsort((j, i, weight[i, j])).tolist():
        a, b = root(int(i[e])), root(int(j[e]))
        if a != b:
            parent[a] = b
            edges.append((int(i[e]), int(j[e])))
            far.append(weight[i[e], j[e]])
    found = make_metric(metric).distance(np.array(far), np)
    if not shown:
        return edges, found
    order = sorted(range(len(edges)), key=lambda e: (found[e], edges[e]))
    return [edges[e] for e in order], found[order]


def parts_below(rows, near):
    """Return the connected sets of rows among `rows`; `near` (n, n) marks ties between
    rows.
    """
    left, parts = set(rows), []
    while left:
        part, todo = set(), [left.pop()]
        while todo:
            a = todo.pop()
            part.add(a)
            more = [b for b in left if near[a, b]]
            left.difference_update(more)
            todo += more
        parts.append(part)
    return parts


def merges(far, least=2):
    """Return all sets of at least `least` rows that are connected at some distance;
    `far` is (n, n).
    """
    heights = np.unique(far[np.triu_indices(len(far), 1)])
    return {
        frozenset(part)
        for h in heights.tolist()
        for part in parts_below(range(len(far)), far <= h)
        if len(part) >= least
    }


class Cluster:
    """A cluster: its rows, the rows that fall out of it with their 1 / distance, and
    its child clusters.
    """

    def __init__(self, rows, birth, parent):
        self.rows, self.birth, self.parent, self.fallen, self.children = (
            rows,
            birth,
            parent,
            {},
            [],
        )

    def grow(self, far, least):
        """Find how the cluster shrinks and splits."""
        rows = self.rows
        while rows:
            own = sorted(rows)
            top = bottleneck(far[np.ix_(own, own)])
            density = math.inf if top == 0 else 1 / top
            parts = parts_below(rows, far < top)
            large = [part for part in parts if len(part) >= least]
            keep = large if len(large) > 1 else []
            for part in parts:
                if part not in large:
                    self.fallen |= dict.fromkeys(part, density)
            self.children = [Cluster(part, density, self) for part in keep]
            rows = large[0] if len(large) == 1 else set()
        for child in self.children:
            child.grow(far, least)

    def below(self):
        """Return the cluster and all its descendants."""
        return [self, *(other for child in self.children for other in child.below())]

    @property
    def stability(self):
        """Return the excess of mass."""
        lost = [d - self.birth for d in self.fallen.values()]
        return math.fsum(
            lost + [(c.birth - self.birth) * len(c.rows) for c in self.children]
        )

    @property
    def death(self):
        """Return the 1 / distance of the last row that leaves the cluster."""
        return max(
            [*self.fallen.values(), *(c.birth for c in self.children)], default=0.0
        )


def bottleneck(far):
    """Return the least distance that connects rows; for one row 0."""
    heights = np.unique(far[np.triu_indices(len(far), 1)]).tolist() or [0.0]
    return next(h for h in heights if len(parts_below(range(len(far)), far <= h)) == 1)


class Doubtful(Exception):
    """Raised if rounding would decide the result."""


def by_stability(cluster, most, single):
    """Return the chosen clusters among a cluster and its descendants, and their
    stability.
    """
    parts = [by_stability(child, most, single) for child in cluster.children]
    below = math.fsum(total for _, total in parts)
    if cluster.parent is None and not single:
        return [one for some, _ in parts for one in some], below
    own = cluster.stability
    if below != own and math.isfinite(own) and math.isclose(below, own, rel_tol=1e-9):
        raise Doubtful
    if below > own or len(cluster.rows) > most:
        return [one for some, _ in parts for one in some], below
    return [cluster], own


def far_of(cluster):
    """Return the distance where a cluster splits off."""
    return 1 / cluster.birth if cluster.birth else math.inf


def widened(chosen, eps, single):
    """Replace clusters that split off within `eps`, starting with the clusters nearest
    the root.
    """
    found, passed = [], []
    for cluster in chosen:
        if far_of(cluster) >= eps:
            found.append(cluster)
            continue
        if any(cluster is other for other in passed):
            continue
        while cluster.parent is not None and (
            cluster.parent.parent is not None or single
        ):
            cluster = cluster.parent
            if far_of(cluster) > eps:
                break
        found.append(cluster)
        passed += cluster.below()
    return found


def clusters_by_definition(
    x,
    least,
    min_samples,
    method="eom",
    eps=0.0,
    most=math.inf,
    single=False,
    metric="euclidean",
):
    """Return the labels, probabilities and outlier scores of rows."""
    n = len(x)
    weight = reachability(x, min_samples, metric)
    far = make_metric(metric).distance(weight.ravel().copy(), np).reshape(n, n)
    root = Cluster(set(range(n)), 0.0, None)
    root.grow(far, least)
    if method == "eom":
        chosen, _ = by_stability(root, most, single)
    else:
        chosen = [c for c in root.below() if not c.children and c is not root]
    if eps > 0 and root.children and root not in chosen:
        chosen = widened(chosen, eps, single)
    if len(chosen) > 1:
        chosen = [c for c in chosen if c is not root]
    label, probability, score = np.full(n, -1), np.zeros(n), np.zeros(n)
    for cluster in root.below():
        deepest = max(c.death for c in cluster.below())
        owner = cluster
        while owner is not None and not any(owner is c for c in chosen):
            owner = owner.parent
        for row, density in cluster.fallen.items():
            if deepest > 0 and density < math.inf:
                score[row] = (
                    (deepest - density) / deepest if deepest < math.inf else 1.0
                )
            if owner is root and density < (1 / eps if eps > 0 else root.death):
                continue
            if owner is not None:
                label[row] = next(k for k, c in enumerate(chosen) if c is owner)
                alone = owner.death == 0 or density == math.inf
                probability[row] = (
                    1.0 if alone else min(density, owner.death) / owner.death
                )
    return numbered(label), probability, score


def numbered(labels):
    """Number labels by their first rows."""
    known = {-1: -1}
    for one in np.asarray(labels).tolist():
        known.setdefault(one, len(known) - 1)
    return [known[one] for one in np.asarray(labels).tolist()]
