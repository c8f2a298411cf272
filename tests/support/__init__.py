"""Helpers that tests share: the definition by brute force, points, frames, clusters,
profiles.
"""
