"""Writes: passed on once, acknowledged to the cache, their conflicts explained."""
