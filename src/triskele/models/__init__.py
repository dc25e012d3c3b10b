"""Everything that runs or calls a model: embedders, cross-encoders, language models, the egress client."""
