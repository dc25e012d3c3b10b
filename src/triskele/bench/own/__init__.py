"""The user's own questions: build, judge, run, gate and tune."""
