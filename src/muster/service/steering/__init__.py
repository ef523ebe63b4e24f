"""The process of `muster slurm schedule`: a live Slurm in, the engine's plan, and the writes that bring it about."""
