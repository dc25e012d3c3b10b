"""The user's own evaluation set: questions, judgements, measurements, gates and tuning, kept in the store."""
