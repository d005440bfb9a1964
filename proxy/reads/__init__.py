"""Serve a read from an informer or forward it, and why."""
