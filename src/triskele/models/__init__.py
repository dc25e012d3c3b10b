"""Everything that runs or asks a model."""
