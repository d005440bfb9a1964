"""ASGI apps, listeners, settings and metrics."""
