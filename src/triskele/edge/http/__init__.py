"""The HTTP API: operations, their OpenAPI document, users and keys, metrics, and a typed client."""
