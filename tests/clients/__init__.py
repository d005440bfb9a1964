"""Programs in Go that use the proxy as controllers do."""
