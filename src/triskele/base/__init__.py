"""Helpers that every room may use: ids, timestamps, text, files, deadlines, threads, project names."""
