"""A stand-in API server and a tour of the proxy in front of it."""
