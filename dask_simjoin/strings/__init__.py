"""Joins of strings by their edit distance."""
