"""Ordering policies, one file each: whose pending work comes first among equals in priority."""
