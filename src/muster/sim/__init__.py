"""Simulation: event kernel, placement experiments, replay of recorded work, metrics, sweeps."""
