"""Constants of kernels and of the predicate, without imports."""

SUM, PRODUCT, NONE = range(3)
"""Kinds of predicates on an overlap o of sizes a and b: o against a+b, o**2 against ab, or o alone."""

NEVER = (1 << 31) - 1
"""More tokens than two sets can have in common."""
