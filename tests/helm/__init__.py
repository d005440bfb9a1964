"""The helm of the chart's tests."""
