"""Training of triskele's own models; nothing here is imported at run time."""
