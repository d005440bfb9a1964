"""The cache: store, history, reflector, informers."""
