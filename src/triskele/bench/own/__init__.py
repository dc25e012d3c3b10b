"""The user's own questions: build, judge, run, gate and tune; all of it is kept in the store."""
