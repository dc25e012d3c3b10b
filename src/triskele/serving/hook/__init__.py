"""Answers to agent hooks: a few memories, fenced as data, or nothing."""

# What a server needs to know of an event; everything else stays on the machine of the agent.
FORWARDED = ("prompt", "session_id", "source", "reason", "agent_id")
