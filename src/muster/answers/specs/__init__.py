"""What users submit, read into gangs: Kubernetes objects and sbatch scripts."""
