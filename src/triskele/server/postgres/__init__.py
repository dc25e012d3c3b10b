"""The store of a server: one Postgres database with the memories of any number of owners."""
