"""Requests that go through to the API server."""
