"""Limits of NVIDIA's Multi-Process Service (MPS), by which processes share a GPU."""

from __future__ import annotations

MOST_MPS_CLIENTS = 48
"""Clients of one GPU, from Volta on; CUDA 13.1 allows 60, but the device plugin checks this. Source: SOURCE."""

SOURCE = "mps"
"""Key in `muster.catalog.sources.SOURCES`."""
