"""The API server's language: requests, selectors, statuses, resourceVersions. Pure."""
