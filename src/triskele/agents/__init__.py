"""What agents are given without asking: a few memories, fenced as data, or nothing."""
