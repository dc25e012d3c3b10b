"""Many users: Postgres, accounts, sharing, quotas, the corpus inside the database."""
