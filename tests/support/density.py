"""DBSCAN by its definition, and points that are hard to cluster."""

import itertools

import numpy as np


def labels_of_neighbours(near, min_samples):
    """Return labels by the definition; `near` (n, n) marks rows that are near each
    other.
    """
    core = near.sum(1) >= min_samples
    labels = np.full(len(near), -1)
    number = 0
    for i in range(len(near)):
        if not core[i] or labels[i] >= 0:
            continue
        todo = [i]
        labels[i] = number
        while todo:
            for k in np.flatnonzero(near[todo.pop()] & (labels < 0)):
                labels[k] = number
                if core[k]:
                    todo.append(k)
        number += 1
    return labels.tolist()


def sets():
    """Return names, points, distances and numbers of samples."""
    rng = np.random.default_rng(0)
    turn = rng.uniform(0, np.pi, 1200)
    moons = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    moons[600:] = [1.0, 0.5] - moons[600:]
    centres = rng.uniform(-10, 10, (6, 4))
    lattice = np.array(list(itertools.product(range(12), range(12), range(8))), float)
    yield "moons", moons + rng.normal(0, 0.06, moons.shape), 0.1, 5
    yield (
        "blobs",
        centres[rng.integers(0, 6, 1200)] + rng.normal(size=(1200, 4)),
        0.9,
        6,
    )
    yield (
        "varied",
        np.concatenate([rng.normal(k * 3, 0.05 * 3**k, (400, 2)) for k in range(3)]),
        0.12,
        5,
    )
    yield (
        "wide",
        rng.normal(size=(900, 17)) * np.repeat([[1.0], [0.1], [3.0]], 300, axis=0),
        0.5,
        4,
    )
    yield "lattice", lattice, 1.0, 7
    yield "lattice, borders", lattice, 1.0, 6
    yield "chain", np.arange(1500.0)[:, None] * 0.5, 0.5, 3
    yield "identical points", np.zeros((900, 3)), 0.1, 5
    yield "all noise", rng.uniform(size=(500, 3)) * 1000, 0.01, 2
    yield "every row a cluster", rng.uniform(size=(500, 3)) * 1000, 0.01, 1
    yield "fewer rows than samples", rng.uniform(size=(4, 2)), 10.0, 5


SETS = {name: rest for name, *rest in sets()}
