"""A Slurm as a backend: its commands and slurmrestd are asked here, and nowhere else."""
