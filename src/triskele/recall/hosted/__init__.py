"""Models that the settings name besides the local one: who they are, what they may read, what was sent to them."""
