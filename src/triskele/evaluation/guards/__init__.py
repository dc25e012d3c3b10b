"""Guards against self-deception: what a benchmark must say about itself before it says anything else."""
