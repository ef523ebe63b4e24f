"""Muster: one engine that schedules gangs of GPUs on Kubernetes, on Slurm and in simulation.

The rooms, from the bottom up (imports point downwards only; ``tests/test_imports.py`` holds it):
``model`` and ``catalog``, ``policy``, ``engine``, ``sim``/``traces``/``planning``, ``report``, ``cli``.
"""

__version__ = "0.1.0"
