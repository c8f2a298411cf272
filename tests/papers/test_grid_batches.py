"""Batches of queries of the grid joins on a GPU."""

from dask_simjoin.papers.grid import Grid
from dask_simjoin.papers.grid_batches import Batch, batches, sample


def test_batches_are_the_papers():
    """P2, figure 1: 12 points in 3 strided batches of 4; at least 3, and as many as fit
    the buffers.
    """
    made, room = batches(Grid(order="given"), 12, 9.0, 10**8)
    assert [list(range(12)[b.first :: b.step]) for b in made] == [
        [0, 3, 6, 9],
        [1, 4, 7, 10],
        [2, 5, 8, 11],
    ]
    assert room == 1024
    made, room = batches(Grid(), 10**6, 9e8, 10**8)
    assert len(made) == 10 and room == 10**8
    assert sum(batch.number for batch in made) == 10**6 and {
        batch.step for batch in made
    } == {1}
    made, room = batches(Grid(order="workload"), 10**6, 1e8, 10**8)
    assert len(made) == 3 and room == 38_333_334
    assert sample(Grid(order="given"), 1000) == Batch(0, 100, 10)
    assert sample(Grid(order="queue"), 1000) == Batch(0, 1, 10)
    for batch in (Batch(3, 7, 5), Batch(4, 1, 5)):
        places = [batch.first + n * batch.step for n in range(batch.number)]
        halves = [
            [b.first + n * b.step for n in range(b.number)] for b in batch.halves()
        ]
        assert sorted([*halves[0], *halves[1]]) == places and len(halves[0]) == 3
