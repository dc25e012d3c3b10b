"""The engine: the service that remembers and recalls."""
