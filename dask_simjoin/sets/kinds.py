"""Numbers that kernels and the rest know: nothing is imported here."""

SUM, PRODUCT, NONE = range(3)
"""What overlaps are compared with: o with a+b, o**2 with ab, or o with nothing."""

NEVER = (1 << 31) - 1
"""More tokens than two sets can have in common."""
