"""Answers about a snapshot, by the engine's own code: why, when, fit, what if."""
