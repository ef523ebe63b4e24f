"""The decision engine: array state, undo log, placement and verdicts. Pure: no clock, no I/O."""
