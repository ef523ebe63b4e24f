"""Times of starts of model servers, and what shortens them: measured and published figures with their sources.

Each belongs to the case in which it was measured; `muster plan coldstart` takes them as examples, and yours win.
"""

from __future__ import annotations

NODE_BOOT_S = 100.0
"""A cloud VM with a GPU: 80 to 120 s. Source ``gpu-boot``."""

PULL_BYTES_PER_S = 60e6
"""15 to 20 GB in 4 to 6 minutes. Source ``image-minutes``."""

IMPORTS_S = 75.0
"""Import of vLLM and the check of peers (60 s of it). Source ``vllm-start``."""

IMPORTS_UNCHECKED_S = 15.0
"""The same with ``VLLM_SKIP_P2P_CHECK=1``. Source ``vllm-start``."""

COMPILE_S = 85.0
"""torch.compile of Llama-70B in FP8 on 8 GPUs: dynamo 15 s, compilation 70 s. Source ``vllm-start``."""

COMPILE_CACHED_S = 8.0
"""The same with a warm cache: dynamo still takes 7.5 s of a small model. Source ``vllm-start``."""

GRAPHS_S = 60.0
"""Capture of CUDA graphs, Llama-70B in FP8 on 8 GPUs. Source ``vllm-start``."""

WARM_UP_S = 40.0
"""The first request after a start took 30 to 60 s more. Source ``vllm-start``."""

START_SOURCE = "vllm-start"

LOCAL_DISK_BYTES_PER_S = 5e9
"""Weights from local NVMe or a snapshot, well read; io2 gave 4 GB/s. Source ``weights-streamer``."""

PEER_BYTES_PER_S = 40e9
"""Weights from a running replica over RDMA, an example: one model took 11 s on 8 GPUs. Source ``modelexpress``."""

WAKE_BYTES_PER_S = 21e9
"""Waking weights that sleep in host memory: about 3 s for 64 GiB. Source ``vllm-sleep``."""

LAZY_GAIN = 2.0
"""How much faster lazy loading pulls images of models: 1.5 to 3 times; slower in one report. Source ``gpu-boot``."""

RESTORED_S = 2.0
"""Process and context of a restored snapshot, an example; SGLang took 12 to 20 s in all. Source ``snapshots``."""

SOURCE_KEYS = (
    "gpu-boot", "image-minutes", START_SOURCE, "weights-streamer", "modelexpress", "vllm-sleep", "snapshots",
)  # fmt: skip
"""Keys of `muster.catalog.sources.SOURCES` that are used here."""
