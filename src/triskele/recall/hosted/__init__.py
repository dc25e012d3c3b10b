"""Models that the settings name besides the local one: what they may read, and what was sent to them."""
