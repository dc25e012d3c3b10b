"""Answers to agent hooks: a few memories, fenced as data, or nothing."""
