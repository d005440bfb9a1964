"""Unit tests: nothing is opened, nothing is waited for."""
