"""Benchmarks: this package and the other exact or nearly exact range joins on the same data."""
