"""Secret detection, the vault, and what may leave this machine."""
