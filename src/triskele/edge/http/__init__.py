"""The HTTP API: operations, OpenAPI document, metrics and client."""
