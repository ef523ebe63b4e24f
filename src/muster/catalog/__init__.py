"""Facts from outside (GPU models, MIG profiles, links), each with its source and said once."""

from muster.catalog.gpu import FACTS, Gpu
from muster.catalog.gpus import GPUS
from muster.catalog.links import LINKS, Link, find_link
from muster.catalog.mig import MIG_TABLES, MigProfile, MigTable, mig_table
from muster.catalog.mig_layouts import Layout, can_add, check_layout, legal_layouts, room_for
from muster.catalog.names import find_gpu, near_names
from muster.catalog.sources import SOURCES, Source
from muster.catalog.training import hop_latency_s, training_tflops, usual_shape

__all__ = [
    "FACTS",
    "GPUS",
    "LINKS",
    "MIG_TABLES",
    "SOURCES",
    "Gpu",
    "Layout",
    "Link",
    "MigProfile",
    "MigTable",
    "Source",
    "can_add",
    "check_layout",
    "find_gpu",
    "find_link",
    "hop_latency_s",
    "legal_layouts",
    "mig_table",
    "near_names",
    "room_for",
    "training_tflops",
    "usual_shape",
]
