"""Policies, one file each: how nodes and devices are scored. Pure functions of what they are shown."""
