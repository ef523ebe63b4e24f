"""Batch scripts of Slurm as objects of Kubernetes, and back."""
