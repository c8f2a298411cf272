"""Compare estimates with the truth."""

from __future__ import annotations

import math
from typing import Any


def judged(estimate: Any, true: int) -> dict[str, Any]:
    """Compare an estimate with the truth."""
    return {
        "true": true,
        "estimate": estimate.total,
        "low": estimate.total_low,
        "high": estimate.total_high,
        "sampled": estimate.sampled,
        "factor": estimate.total / true if true else None,
        # round outwards to whole pairs: an interval that ends at the truth may miss it
        # by rounding
        "holds": bool(
            math.floor(estimate.total_low) <= true <= math.ceil(estimate.total_high)
        ),
    }
