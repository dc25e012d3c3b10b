"""Entries of triskele in the configuration files of agents."""
