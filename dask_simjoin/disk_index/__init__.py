"""Joins that grow: an index on disk takes new rows, and returns only the pairs that
they change.
"""
