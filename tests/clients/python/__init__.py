"""Programs in Python that follow resources through the proxy as their library's users do."""
