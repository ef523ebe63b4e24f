"""What Slurm's files, records and scripts mean: text in, values out. No I/O."""
