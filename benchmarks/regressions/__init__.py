"""Benchmarks that asv runs at commits: verbs on plain frames, CPU seconds of one core
and peak memory.
"""

import sys
from pathlib import Path

# the working tree's harness comes last on the path, so that the package is the commit's
# own
sys.path.append(str(Path(__file__).parents[2]))
