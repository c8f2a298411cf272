"""The CUDA C++ compiles for every kind of GPU that is served; no GPU is needed.

By default with every value of every constant for one architecture, and once for another
where that sees different sources, in haste; with `pytest --all` for all architectures, with
all combinations of the constants, and as they are shipped.
"""

import itertools
import operator
import re

import pytest

from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu.sources import OPTIONS, source
from tests.support.gpu_programs import names
from tests.support.nvrtc import HASTE, complaints, loaded

NAMES = names()

DIFFERENT = {"sm_75": 0, "sm_90": 1}
"""Architectures that see different sources; of how many constants they see every
combination by default.
"""

BASE = "sm_90"
"""Every source is compiled for this architecture by default."""

ALIKE = ["sm_80", "sm_100", "sm_120"]
"""Architectures that see the sources of one of those."""

AT_ONCE = 4
"""Programs that one test compiles: tests are shared among processes, one by one."""

REGISTERS = 16
"""Points of so many dimensions are held in registers, others in memory."""

DIMS = [1, 2, 3, 4, 6, 9, 16, 17, 64, 200, 2048]
PURPOSES = [{"COUNTING": 0}, {"COUNTING": 1}]
NORMS = [{"NORM": 0}, {"NORM": 1}, {"NORM": 5}]
STORED = [{"STORED": 1}, {"STORED": 2}]
"""Narrow points of both kinds."""
SINKS = [
    {"COUNTING": 0, "SINK": k, "NODES_64": wide} for k, wide in ((1, 0), (1, 1), (2, 0))
]


@pytest.fixture(scope="module")
def nvrtc():
    return loaded()


def variants(name):
    """The constants that a file is compiled with."""
    if name == "tiles":
        every = [
            *itertools.product(DIMS, (0, 1), PURPOSES),
            *itertools.product((2, 17), (0, 1), SINKS),
        ]
        plain = [{"DIMS": d, "EXACT": e} | purpose for d, e, purpose in every]
        several = itertools.product(
            NORMS, ((2, PURPOSES[0]), (17, PURPOSES[1]), (3, SINKS[0]))
        )
        plain += [
            {"DIMS": d, "EXACT": 1} | purpose | norm for norm, (d, purpose) in several
        ]
        narrow = zip(
            (33, 2048, 64),
            (0, 1, 0),
            (*PURPOSES, SINKS[0]),
            (*STORED, STORED[1]),
            strict=True,
        )
        return plain + [
            {"DIMS": d, "EXACT": e} | purpose | some for d, e, purpose, some in narrow
        ]
    if name == "tensor":
        dims = [d for d in DIMS if d < 128]
        every = [*itertools.product(dims, PURPOSES), *itertools.product((16,), SINKS)]
        every += [(33, PURPOSES[0] | STORED[0]), (64, PURPOSES[1] | STORED[1])]
        return [
            {"DIMS": d, "WIDTH": half.width(d), "EXACT": 0} | purpose
            for d, purpose in every
        ]
    if name == "nearest":
        every = [
            *itertools.product((7, 16, 17, 2048), (0, 1), (1,)),
            (7, 1, 0),
            (17, 0, 0),
            (7, 0, 0),
        ]
        plain = [{"DIMS": d, "EXACT": e, "ROWS": 64, "LISTS": k} for d, e, k in every]
        several = zip((7, 17, 7), NORMS, strict=True)
        return plain + [
            {"DIMS": d, "EXACT": 1, "ROWS": 64, "LISTS": 1} | norm
            for d, norm in several
        ]
    if name == "nearest_tensor":
        dims = [d for d in DIMS if d <= half.MAX_DIMS]
        every = [*itertools.product(dims, (1,)), (16, 0)]
        return [
            {"DIMS": d, "WIDTH": half.width(d), "EXACT": 0, "ROWS": 32, "LISTS": k}
            for d, k in every
        ]
    if name == "tensor_wide":
        few, some, most = (
            {"DIMS": d, "EXACT": 0} | half.program(d, 2**20)[1]
            for d in (201, 384, 2048)
        )
        every = [
            (few, PURPOSES[1]),
            (some, PURPOSES[0]),
            (most, PURPOSES[0]),
            (some, SINKS[1]),
            (few, SINKS[2]),
        ]
        every += [
            (some | {"DEPTH": d, "STAGES": n}, PURPOSES[0])
            for d, n in half.SLICINGS[1:]
        ]
        every += [(few, PURPOSES[0] | STORED[0]), (most, PURPOSES[1] | STORED[1])]
        return [one | purpose for one, purpose in every]
    if name == "tensor_hopper":
        told = [
            {"DIMS": d, "EXACT": 0} | half.hopper_program(d, 227 * 1024)[1]
            for d in (16, 88, 384, 2048)
        ]
        plain = [
            one | use
            for one, use in zip(told, [*PURPOSES, SINKS[1], SINKS[2]], strict=True)
        ]
        return [
            *plain,
            told[0] | PURPOSES[0] | STORED[0],
            told[2] | PURPOSES[0] | STORED[1],
        ]
    if name == "narrow":
        return [{"DIMS": 1, "EXACT": 1} | some for some in STORED]
    if name == "finish":
        every = [*itertools.product((1, 200), (0, 1), ({}, *NORMS))]
        every += [(200, k, some) for k, some in enumerate(STORED)]
        return [{"DIMS": d, "EXACT": 1, "LABELS": k} | norm for d, k, norm in every]
    if name == "order":
        told = {"DIMS": 1, "EXACT": 1, "VALUE_BITS": 32, "SAMPLES": 33, "BLOCK": 2048}
        return [told, *(told | some for some in STORED)]
    if name == "boxes":
        plain = [{"DIMS": 1, "EXACT": k} for k in (0, 1)]
        return plain + [
            {"DIMS": 1, "EXACT": k} | some for k in (0, 1) for some in STORED
        ]
    if name == "moments":
        return [{"DIMS": 1, "EXACT": 1}]
    if name == "vectors":
        plain = [
            {"DIMS": 1, "EXACT": 1, "NEAREST": n, "SLICED": s}
            for n, s in ((0, 0), (0, 1), (1, 0))
        ]
        return plain + [plain[k] | some for k in (0, 1) for some in STORED]
    if name == "spanning":
        plain = [
            {"DIMS": d, "EXACT": e}
            for d, e in itertools.product((1, 2, 6, 16, 17, 2048), (0, 1))
        ]
        return plain + [
            {"DIMS": d, "EXACT": 1} | norm
            for d, norm in zip((2, 17, 2), NORMS, strict=True)
        ]
    if name == "spanning_rows":
        every = [
            *itertools.product((1, 2, 6), ({},)),
            *zip((2, 3, 2), NORMS, strict=True),
        ]
        return [{"DIMS": d, "EXACT": 1, "LEAF": 8} | norm for d, norm in every]
    if name == "nearest_rows":
        every = [
            *itertools.product((1, 2, 6), (8, 32), ({},)),
            *zip((2, 3), (16, 8), NORMS[:2], strict=True),
        ]
        return [
            {"DIMS": d, "EXACT": 1, "LEAF": 8, "K": k, "BLOCKS": 3} | norm
            for d, k, norm in every
        ]
    if name == "leaves":
        return [{"DIMS": d, "EXACT": 1, "LEAF": 8} for d in (1, 2, 6)]
    if name == "dense_boxes":
        every = [*itertools.product((1, 2, 3), (0, 1), ({},))]
        every += [(d, 1, norm) for d, norm in zip((1, 2, 3), NORMS, strict=True)]
        fixed = {"LEAF": 8, "SPAN": 8}
        return [{"DIMS": d, "EXACT": e} | fixed | norm for d, e, norm in every]
    if name in ("arrays", "boruvka", "dendrogram"):
        return [{"DIMS": 1, "EXACT": 1}]
    if name == "columns":
        return [{"DIMS": 1, "EXACT": 1, "THREADS": 256, "ROWS": 4096}]
    if name == "components":
        return [{"DIMS": 1, "EXACT": 1, "NODES_64": k} for k in (0, 1)]
    return [
        {"DIMS": d, "EXACT": 1, "DEPTH": 20} | norm
        for d in (1, 200)
        for norm in ({}, *NORMS)
    ]


def traits(constants, together):
    """What may decide how a program compiles: so many constants at a time, and where
    points are held.
    """
    known = (
        {"NORM": 2, "SINK": 0, "STORED": 0}
        | constants
        | {"DIMS": constants["DIMS"] > REGISTERS}
    )
    known.pop("WIDTH", None)  # follows from the dimensions
    return set(itertools.combinations(sorted(known.items()), together))


def few(every, together):
    """Variants that have all the traits of all: every combination of so many constants."""
    missing, found = (
        set().union(*(traits(constants, together) for constants in every)),
        [],
    )
    while missing:
        best = max(
            every, key=lambda constants: len(traits(constants, together) & missing)
        )
        missing -= traits(best, together)
        found.append(best)
    return found


def programs(names, variants, different=DIFFERENT):
    """Tests: a file, an architecture and some of the file's variants each."""
    for name, architecture in itertools.product(names, [*DIFFERENT, *ALIKE]):
        every = variants(name)
        first = (
            few(every, different[architecture])
            if architecture == BASE
            or (architecture in DIFFERENT and "__CUDA_ARCH" in source(name))
            else []
        )
        rest = [constants for constants in every if constants not in first]
        if architecture in ALIKE:
            rest = rest[:: max(1, len(rest) // 4)]
        for kind, some, marks in (
            ("few", first, ()),
            ("rest", rest, (pytest.mark.slow,)),
        ):
            for start in range(0, len(some), AT_ONCE):
                part = f"{kind}{start // AT_ONCE}"
                yield pytest.param(
                    name,
                    architecture,
                    some[start : start + AT_ONCE],
                    marks=marks,
                    id=f"{name}-{architecture}-{part}",
                )


ONLY = "tensor_hopper"
"""What compiles for one architecture only."""


@pytest.mark.parametrize(
    ("name", "architecture", "some"),
    list(programs([n for n in NAMES if n != ONLY], variants)),
)
def test_every_variant_compiles(nvrtc, name, architecture, some):
    check_compiles(nvrtc, name, architecture, some)


def check_compiles(nvrtc, name, architecture, some, haste=HASTE):
    for constants in some:
        said = complaints(
            nvrtc,
            source(name, **constants),
            [f"--gpu-architecture={architecture}", *haste, *OPTIONS],
        )
        assert not said, f"{constants}: {said}"


def all_or_few(every):
    """Tests of all variants; those that `few` leaves out are slow."""
    first = few(every, 0)
    return [
        pytest.param(one, marks=() if one in first else pytest.mark.slow)
        for one in every
    ]


@pytest.mark.parametrize(
    "some", all_or_few(variants(ONLY)), ids=lambda some: f"{some['DIMS']}"
)
def test_products_of_warpgroups_compile(nvrtc, some):
    """As they are shipped: what is made in haste waits for each product."""
    check_compiles(nvrtc, ONLY, "sm_90a", [some], [])


COMPARISONS = {">=": operator.ge, "<": operator.lt}


def seen_by(architecture):
    """What all conditions on the architecture say: which branches of the sources it
    sees.
    """
    number = 10 * int(architecture.removeprefix("sm_"))
    text = "\n".join(map(source, NAMES))
    assert "#include" not in text, "an included file may have branches of its own"
    conditions = re.findall(
        r"^#(?:el)?if __CUDA_ARCH__ (\S+) (\d+)$", text, re.MULTILINE
    )
    assert len(conditions) == text.count("__CUDA_ARCH"), (
        "write conditions as `#if __CUDA_ARCH__ >= 800`"
    )
    return [COMPARISONS[how](number, int(bound)) for how, bound in conditions]


def test_two_architectures_see_every_branch_that_others_see():
    """So by default the sources are compiled for these two."""
    different = [seen_by(architecture) for architecture in DIFFERENT]
    assert different[0] and different[0] != different[1]
    assert all(seen_by(architecture) in different for architecture in ALIKE)


@pytest.mark.parametrize("name", NAMES)
def test_few_variants_have_every_value_of_every_constant(name):
    check_few(variants(name))


def check_few(every):
    some = few(every, 1)
    assert len(some) < len(every) or len(every) <= AT_ONCE
    for key in set().union(*every) - {"DIMS", "WIDTH"}:
        assert {one.get(key) for one in some} == {one.get(key) for one in every}
    assert {one["DIMS"] > REGISTERS for one in some} == {
        one["DIMS"] > REGISTERS for one in every
    }


def test_errors_are_seen(nvrtc):
    assert "DIMS" in complaints(
        nvrtc, source("finish", EXACT=1, LABELS=0), ["--gpu-architecture=sm_90"]
    )


def test_filters_serve_one_norm(nvrtc):
    text = source("tiles", DIMS=2, EXACT=0, COUNTING=0, NORM=1)
    assert "norm 2 only" in complaints(nvrtc, text, ["--gpu-architecture=sm_90"])
