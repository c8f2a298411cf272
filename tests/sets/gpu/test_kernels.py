"""The CUDA C++ of set joins compiles for every kind of GPU that is served; no GPU is
needed.
"""

import pytest

from dask_simjoin.engine.gpu.sources import OPTIONS, source
from tests.support.gpu_programs import names
from tests.support.nvrtc import HASTE, complaints, loaded
from tests.support.profiles import chosen, every_nth

ARCHITECTURES = ["sm_75", "sm_90"]
"""The oldest, and that of what joins are measured on: no source asks for the
architecture.
"""

RULES = [
    {"KIND": kind, "EXACTLY": exactly} for kind in range(3) for exactly in range(2)
]


def variants(name):
    """The constants that a file is compiled with."""
    if name == "sets/verify":
        return [rule | {"SINK": k % 3} for k, rule in enumerate(RULES)]
    if name == "sets/bitmaps":
        every = [
            (rule, 4, rows)
            for rule, rows in zip(RULES, (32, 64, 96, 128, 192, 256), strict=True)
        ]
        every += [(RULES[0], words, 128) for words in (1, 2, 8, 16, 32)] + [
            (RULES[0], 32, 0)
        ]
        return [
            rule | {"WORDS": words, "ROWS": rows, "COLUMNS": 1024, "SINK": 0}
            for rule, words, rows in every
        ]
    filters = [
        {"WORDS": words, "POSITIONAL": asked} for words in (0, 4) for asked in (0, 1)
    ]
    return [
        rule | some | {"SINK": 0, "EACH_THREAD": 8}
        for rule, some in zip(RULES, 2 * filters, strict=False)
    ]


@pytest.fixture(scope="module")
def nvrtc():
    return loaded()


@pytest.mark.parametrize("architecture", chosen(ARCHITECTURES, ARCHITECTURES[:1]))
@pytest.mark.parametrize("name", names("sets"))
def test_every_variant_compiles(nvrtc, name, architecture):
    assert "__CUDA_ARCH__" not in source(name)
    for constants in every_nth(3, variants(name)):
        text = source(name, **constants)
        said = complaints(
            nvrtc, text, [f"--gpu-architecture={architecture}", *HASTE, *OPTIONS]
        )
        assert not said, f"{constants}: {said}"
