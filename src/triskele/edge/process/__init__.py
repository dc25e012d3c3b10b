"""The background process of a store, and the choice between a store and a server."""
