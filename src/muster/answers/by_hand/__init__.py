"""What a change of a snapshot is on Kubernetes and on Slurm: the commands that do the same by hand."""
