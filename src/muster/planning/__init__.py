"""Closed forms and bounds; each says its formula and what was put in."""
