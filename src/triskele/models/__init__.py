"""Everything that runs or calls a model: embedders, cross-encoders, language models, egress."""
