"""Cross-encoders: models that read the question and a candidate together and say how well they fit."""
