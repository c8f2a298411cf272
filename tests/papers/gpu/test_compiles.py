"""The CUDA C++ of the methods of papers compiles for every kind of GPU that is served;
no GPU is needed.
"""

import itertools

import pytest

from tests.engine.gpu.test_sources import (
    DIFFERENT,
    DIMS,
    NORMS,
    PURPOSES,
    SINKS,
    check_compiles,
    check_few,
    programs,
)
from tests.support.gpu_programs import names
from tests.support.nvrtc import loaded
from tests.support.paths import ROOT

ONCE = dict.fromkeys(DIFFERENT, 0)
"""By default each source is compiled once for each architecture that sees it."""


@pytest.fixture(scope="module")
def nvrtc():
    return loaded()


def variants(name):
    """The constants that a file is compiled with."""
    if name == "papers/grid":
        shapes = [
            (1, 1),
            (2, 2),
            (3, 3),
            (6, 6),
            (16, 1),
            (16, 6),
            (17, 6),
            (64, 12),
            (2048, 2),
        ]
        every = [
            *itertools.product(shapes, (0, 1), PURPOSES),
            *itertools.product(((2, 2), (17, 6)), (0, 1), SINKS),
        ]
        every += [(shape, 1, PURPOSES[0] | {"TELLING": 1}) for shape in shapes]
        every += [((6, 6), 0, PURPOSES[0] | {"TELLING": 1})]
        every += [((2, 2), 1, norm | PURPOSES[0]) for norm in NORMS] + [
            ((17, 6), 1, NORMS[2] | PURPOSES[1])
        ]
        return [
            {"DIMS": d, "INDEXED": k, "EXACT": e} | rest for (d, k), e, rest in every
        ]
    if name == "papers/nested":
        ways = [
            {"BLOCK": 128, "ROTATION": 1},
            {"BLOCK": 32, "ROTATION": 0},
            {"BLOCK": 256, "ROTATION": 1},
        ]
        every = [*itertools.product(DIMS, (0, 1), ways, PURPOSES)]
        every += [*itertools.product((2, 17), (0, 1), ways[:2], SINKS)]
        every += [
            (d, 1, ways[0], norm | PURPOSES[0])
            for d, norm in itertools.product((2, 17), NORMS)
        ]
        return [{"DIMS": d, "EXACT": e} | way | rest for d, e, way, rest in every]
    if name == "papers/zorder":
        keys = [
            {"COLUMNS": 1, "WORDS": 1},
            {"COLUMNS": 64, "WORDS": 1},
            {"COLUMNS": 200, "WORDS": 4},
        ]
        every = [
            {"DIMS": d, "EXACT": e} | key | purpose
            for d, e, key, purpose in itertools.product(DIMS, (0, 1), keys, PURPOSES)
        ]
        every += [
            {"DIMS": d, "EXACT": e} | keys[0] | s
            for d, e, s in itertools.product((2, 17), (0, 1), SINKS)
        ]
        every += [
            {"DIMS": d, "EXACT": e, "COUNTING": 0, "BOUNDED": 1} | keys[0]
            for d, e in itertools.product((2, 17), (0, 1))
        ]
        return every + [
            {"DIMS": d, "EXACT": 1, "COUNTING": 0} | keys[0] | norm
            for d, norm in itertools.product((2, 17), NORMS)
        ]
    if name == "papers/zorder_nearest":
        shapes = [(1, 1, 1), (2, 2, 1), (17, 17, 4), (200, 64, 1), (2048, 256, 4)]
        every = [
            {"DIMS": d, "COLUMNS": c, "WORDS": w, "EXACT": 1} for d, c, w in shapes
        ]
        return every + [
            every[k] | norm for k, norm in zip((1, 2, 1), NORMS, strict=True)
        ]
    if name == "papers/clusters":
        return [
            {"DIMS": d, "EXACT": 1} | norm
            for d, norm in itertools.product((1, 9, 200, 2048), ({}, *NORMS))
        ]
    every = [*itertools.product(DIMS, (0, 1), (0, 1), PURPOSES)]
    every += [*itertools.product((2, 17), (0, 1), (0, 1), SINKS)]
    every += [
        (d, 1, 1, norm | PURPOSES[0]) for d, norm in itertools.product((2, 17), NORMS)
    ]
    return [{"DIMS": d, "EXACT": e, "BOXES": b} | rest for d, e, b, rest in every]


@pytest.mark.parametrize(
    ("name", "architecture", "some"), list(programs(names("papers"), variants, ONCE))
)
def test_every_variant_compiles(nvrtc, name, architecture, some):
    check_compiles(nvrtc, name, architecture, some)


@pytest.mark.parametrize("name", names("papers"))
def test_few_variants_have_every_value_of_every_constant(name):
    check_few(variants(name))


def test_no_own_file_asks_for_the_architecture():
    """So what the engine's test says of two architectures holds here, too."""
    for path in (ROOT / "dask_simjoin" / "papers" / "gpu" / "kernels").iterdir():
        assert "__CUDA_ARCH__" not in path.read_text()
