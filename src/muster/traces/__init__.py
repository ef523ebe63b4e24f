"""Readers and writers of public formats, and the generator of synthetic workloads."""
