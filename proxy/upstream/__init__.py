"""The only door to the API server: credentials, connections, list and watch."""
