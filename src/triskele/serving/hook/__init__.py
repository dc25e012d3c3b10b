"""What agents are told unasked: few memories, fenced as data, silence otherwise."""
