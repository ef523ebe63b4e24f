"""The process of `muster scheduler`: a live cluster in, the engine's cycle, and its plan carried out."""
