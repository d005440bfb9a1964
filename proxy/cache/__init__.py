"""Informers: a reflector keeps a store and a history of events current."""
