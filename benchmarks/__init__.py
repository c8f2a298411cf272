"""Benchmarks of this package and of other exact or nearly exact range joins, on the
same data.
"""
