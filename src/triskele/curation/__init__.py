"""Undo, sensitivity changes, usage, the recall log, adopted plans, and the health check of a store."""
