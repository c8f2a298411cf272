"""What asv measures at commits: the verbs on plain frames, CPU seconds of one core and peak memory."""

import sys
from pathlib import Path

# the harness is that of the working tree, last on the path: the package is that of the commit
sys.path.append(str(Path(__file__).parents[2]))
