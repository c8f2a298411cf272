"""Kernels run as plain Python, and find what they find when they are compiled."""

import os
import subprocess
import sys

import pytest

from tests.support.profiles import every_nth


@pytest.mark.slow
@pytest.mark.parametrize("dims", every_nth(2, [3, 16]))
def test_kernels_without_numba(dims):
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.plain_kernels", str(dims)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.count(" pairs") == (8 if dims == 3 else 4)
