"""Lets hypothesis take its time: the machine that runs the tests may be a slow or busy one."""

from hypothesis import settings

settings.register_profile("unit", parent=settings(), deadline=None)
settings.load_profile("unit")
