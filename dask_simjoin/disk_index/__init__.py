"""Joins that grow: an index on disk, new rows in, only new pairs out."""
