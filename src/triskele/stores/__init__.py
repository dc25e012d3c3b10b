"""Where memories are kept: the only room that speaks SQL."""
