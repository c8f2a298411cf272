"""The kernels of the tensor cores fit in the memory of a block."""

import itertools
import random

import pytest

from dask_simjoin.engine.filters import float16 as half
from tests.support.profiles import in_turns


def test_kernels_of_the_tensor_cores_fit():
    assert half.program(127, 227 * 1024)[0] == "tensor"
    for shared, dims in itertools.product(
        (64, 99, 163, 227), (128, 201, 384, 768, 1024, 2048)
    ):
        found = half.program(dims, shared * 1024)
        assert (found is None) == (shared == 64)
        if found:
            name, told, most = found
            assert name == "tensor_wide" and most + 9216 + 8 * dims <= shared * 1024
            assert (
                told["WIDTH"] >= dims + 8
                and -(-told["WIDTH"] // 16 // told["DEPTH"]) >= 2
            )
            assert half.program(dims, shared * 1024, counting=True)[2] < most
    assert half.program(384, 227 * 1024)[1] == {"WIDTH": 400, "DEPTH": 4, "STAGES": 3}


def test_the_kernel_of_warpgroups_fits():
    for counting, dims in itertools.product(
        (False, True), (9, 32, 200, 250, 768, 2048, 4096)
    ):
        name, told, size = half.hopper_program(dims, 227 * 1024, counting=counting)
        lists, box = 64 * 8 + 64 * 64 * 2 + 65 * 4, 8 * dims
        barriers, rows = 16 * told["STAGES"] + 64, 1024 if counting else 0
        assert (
            name == "tensor_hopper"
            and size + lists + box + barriers + rows <= 227 * 1024
        )
        assert told["WIDTH"] == half.width(dims)
    assert half.hopper_program(768, 227 * 1024)[1] == {
        "WIDTH": 784,
        "STAGES": 4,
        "LATER": 1,
        "SHARE": 1,
        "RESIDENT": 0,
        "WARPS": 8,
        "BUFFER": 512,
    }
    assert half.hopper_program(768, 99 * 1024) is None


@pytest.mark.parametrize(
    ("dims", "resident"), [(9, 1), (64, 1), (250, 1), (300, 0), (768, 0)]
)
def test_short_vectors_of_queries_stay_in_shared_memory(dims, resident):
    _, told, size = half.hopper_program(dims, 227 * 1024)
    assert told["RESIDENT"] == resident and told["WARPS"] == (16 if resident else 8)
    queries = 2 * half.TILE * half.sliced_width(half.width(dims)) * 2
    staged = told["WARPS"] * told["BUFFER"] * 4
    assert size >= queries * resident + staged + half.ALIGNED


@pytest.mark.parametrize(
    ("width", "sliced"), [(16, 16), (32, 32), (48, 64), (64, 64), (80, 80), (784, 784)]
)
def test_slices_have_64_numbers_and_the_last_one_fewer(width, sliced):
    assert half.sliced_width(width) == sliced


@pytest.mark.parametrize(
    ("dims", "share"), [(32, 1), (768, 1), (1024, 2), (1536, 2), (2048, 1)]
)
def test_clusters_share_queries_of_some_widths(dims, share):
    width = half.width(dims)
    assert half.clusters_of_queries(width) == share
    assert half.hopper_program(dims, 227 * 1024)[1]["SHARE"] == share


WARPS = 4


def stops(slices, stages, later, rng, tiles=30):
    """Run warps in a random order until the output is full; return the tiles that each
    of them wrote.

    A model of tensor_hopper.cu: a slice is copied once all warps have released the one
    in its place, and a warp writes a tile after it has released the tile's last slice.
    It ends when no warp has a tile left to write, because later ones change nothing.
    """
    released, writes, stop = [0] * WARPS, [[] for _ in range(WARPS)], tiles
    pending = [None] * WARPS  # the tile that a warp is about to write
    pace = list(itertools.accumulate(rng.expovariate(1) + 0.05 for _ in range(WARPS)))
    while min(released) < stop * slices or any(
        tile is not None and tile < stop for tile in pending
    ):
        (warp,) = rng.choices(range(WARPS), cum_weights=pace)
        if pending[warp] is not None:
            tile, pending[warp] = pending[warp], None
            if tile < stop:
                writes[warp].append(tile)
                if rng.random() < 0.2:
                    stop = min(stop, tile + later)
        elif (
            released[warp] < tiles * slices and released[warp] < min(released) + stages
        ):
            released[warp] += 1
            if released[warp] % slices == 0:
                pending[warp] = released[warp] // slices - 1
    return writes, stop


@in_turns(1, slices=[1, 2, 3, 4, 5, 13], stages=[2, 3, 4])
def test_warps_stop_at_the_same_tile(slices, stages):
    rng, later = random.Random(slices), half.steps_later(slices, stages)
    for _ in range(60):
        writes, stop = stops(slices, stages, later, rng)
        assert all(tiles == list(range(stop)) for tiles in writes)


def test_one_tile_less_is_not_enough():
    rng, later = random.Random(0), half.steps_later(1, 4)
    found = (stops(1, 4, later - 1, rng) for _ in range(200))
    assert any(tiles != list(range(stop)) for writes, stop in found for tiles in writes)
