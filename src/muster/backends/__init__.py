"""Clusters that are there: take a snapshot of one, and carry out a plan on it."""
