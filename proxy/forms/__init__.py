"""Representations of a resource: how its objects are decoded, kept and encoded. Pure."""
