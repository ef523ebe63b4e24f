"""What GPU Feature Discovery writes into the label ``nvidia.com/gpu.product``: nvidia-smi's name, with dashes.

Source: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery; device names as nvidia-smi prints them.
"""

from __future__ import annotations

NVIDIA_PRODUCTS = {
    "P100-PCIe-16GB": "Tesla-P100-PCIE-16GB",
    "V100-SXM2-16GB": "Tesla-V100-SXM2-16GB",
    "V100-SXM2-32GB": "Tesla-V100-SXM2-32GB",
    "T4-PCIe-16GB": "Tesla-T4",
    "A10-PCIe-24GB": "NVIDIA-A10",
    "A10G-24GB": "NVIDIA-A10G",
    "A30-PCIe-24GB": "NVIDIA-A30",
    "A40-PCIe-48GB": "NVIDIA-A40",
    "A100-PCIe-40GB": "NVIDIA-A100-PCIE-40GB",
    "A100-PCIe-80GB": "NVIDIA-A100-80GB-PCIe",
    "A100-SXM4-40GB": "NVIDIA-A100-SXM4-40GB",
    "A100-SXM4-80GB": "NVIDIA-A100-SXM4-80GB",
    "L4-PCIe-24GB": "NVIDIA-L4",
    "L40-PCIe-48GB": "NVIDIA-L40",
    "L40S-PCIe-48GB": "NVIDIA-L40S",
    "H100-PCIe-80GB": "NVIDIA-H100-PCIe",
    "H100-NVL-94GB": "NVIDIA-H100-NVL",
    "H100-SXM5-80GB": "NVIDIA-H100-80GB-HBM3",
    "H200-SXM5-141GB": "NVIDIA-H200",
    "B200-SXM6-180GB": "NVIDIA-B200",
    "GB200-186GB": "NVIDIA-GB200",
}
"""By the catalog's name of the model."""
