"""Where each fact of the catalog comes from: document and date, said once and referred to by key."""

from __future__ import annotations

from msgspec import Struct


class Source(Struct, frozen=True):
    """A document and its date.

    Attributes:
        title: the document, with its version or commit where it has one.
        date: publication date, or ``read YYYY-MM-DD`` for a page without one.
    """

    title: str
    date: str

    def __str__(self) -> str:
        return f"{self.title}, {self.date}"


_READ = "read 2026-11-30"

SOURCES: dict[str, Source] = {
    # NVIDIA
    "cuda-gpus": Source("NVIDIA, CUDA GPU Compute Capability (current and legacy pages)", _READ),
    "cuda-family": Source("NVIDIA, CUDA compute capability of the same chip (current page)", _READ),
    "nv-arch": Source("NVIDIA, CUDA Compatibility and GPU Operator platform support", _READ),
    "mig-gpus": Source("NVIDIA MIG User Guide, Supported GPUs", _READ),
    "mig-min": Source("NVIDIA MIG User Guide, Supported GPUs: compute capability below 8.0", _READ),
    "mig-unlisted": Source("NVIDIA MIG User Guide, Supported GPUs: model not listed", _READ),
    "mig-profiles": Source("NVIDIA MIG User Guide, Supported MIG Profiles", _READ),
    "mig-operator": Source("NVIDIA/gpu-operator a22dbf6, default mig-parted configuration", "2026-08-21"),
    "mig-lgipp": Source("nvidia-smi mig -lgipp on A100, H100 and H100 NVL, as in NVIDIA MIG User Guide", _READ),
    "mig-lgipp-a30": Source("nvidia-smi mig -lgip and -lgipp on A30, public logs", _READ),
    "mig-rtx": Source("NVIDIA MIG User Guide, RTX PRO 6000 profiles and slice configurations", _READ),
    "mig-toggle": Source("NVIDIA MIG User Guide, Getting Started with MIG (GPU reset on A100)", _READ),
    "containerd-pull": Source("containerd CRI configuration (max_concurrent_downloads, max_concurrent_unpacks)", _READ),
    "soci-parallel": Source("awslabs/soci-snapshotter, parallel pull and unpack mode, suggested settings", _READ),
    "slacker": Source("Harter et al., Slacker: Fast Distribution with Lazy Docker Containers (FAST'16)", "2016-02"),
    "operator-chain": Source("NVIDIA/gpu-operator a22dbf6 (states, probes, issue 707) and its docs", "2026-08-21"),
    "mps": Source("NVIDIA MPS guide, and NVIDIA/k8s-device-plugin 1b826ac (v0.20.0): at most 48 replicas", _READ),
    "go-nvml": Source("NVIDIA/go-nvml mock tables (pkg/nvml/mock/shared/gpus)", "2025"),
    "test-infra": Source("NVIDIA/k8s-test-infra 3b2b865, mock NVML configurations", "2026"),
    "parted": Source("NVIDIA/mig-parted configuration and NVIDIA/gpu-operator a22dbf6", "2026-08-21"),
    "driver-list": Source("NVIDIA/open-gpu-kernel-modules df1c9a3 (595.45), list of boards", "2026"),
    "dcgm": Source("NVIDIA/DCGM 72fa3fe (4.6.0), diag-skus.yaml", "2026"),
    "smi": Source("nvidia-smi on the board (power cap, total memory), public logs", _READ),
    "nvbench-a30": Source("NVIDIA nvbench device report of A30, public logs", _READ),
    "h100-brief": Source("NVIDIA H100 PCIe Product Brief PB-11133-001_v02", "2022-11-30"),
    "p100-brief": Source("NVIDIA Tesla P100 PCIe Product Brief PB-08248-001_v01", "2016-10-03"),
    "rtxpro-sheet": Source("NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet", "2025-12"),
    "l40-sheet": Source("NVIDIA L40 and L40S datasheet, quoted by a reseller", _READ),
    "a40-sheet": Source("NVIDIA A40 datasheet, quoted by a reseller", _READ),
    "mlperf-4.1": Source("MLPerf Inference v4.1, system description H200-SXM-141GBx8", "2024"),
    "mlperf-6.0": Source("MLPerf Inference v6.0, system description Nebius B200", "2026"),
    "mlperf-6.1": Source("MLPerf Inference v6.1, system description Crusoe GB200 NVL72", "2026"),
    # Other vendors
    "rocm": Source("AMD ROCm documentation, GPU specifications", _READ),
    "mi250x": Source("AMD Instinct MI200 series announcement, reported by meterpreter.org", "2021-11"),
    "mi300x": Source("AMD Instinct MI300X figures, gpu.blog", _READ),
    "mi325x": Source("AMD Instinct MI325X figures, awesomeagents.ai", _READ),
    "mi355x": Source("AMD Instinct MI355X launch, The Register", "2025-06-12"),
    "mi325x-host": Source("AMD Instinct MI325X product page, quoted by wiaix.com", _READ),
    "mi350-form": Source("AMD Instinct MI350 series notes, jaredwatkins.com", _READ),
    "gaudi3": Source("Intel Gaudi 3 at Hot Chips (R. Kaplan)", "2024-08"),
    # Books, articles, traces
    "stas-net": Source("S. Bekman, Machine Learning Engineering, network chapter", "2026"),
    "stas-acc": Source("S. Bekman, Machine Learning Engineering, accelerator chapter", "2024"),
    "pcie": Source("PCI Express 3.0: 8 GT/s, 16 lanes, 128b/130b coding (computed)", "2010"),
    "thunder-a100": Source("Thunder Compute, NVIDIA A100 specs", "2026-05-21"),
    "baseten-a10g": Source("Baseten, NVIDIA A10 vs A10G", _READ),
    "sysrqmts": Source("sysrqmts.com GPU comparison tables", _READ),
    "techworm-p100": Source("TechWorm, Tesla P100 for PCI Express", "2016-06"),
    "toms-p100": Source("Tom's Hardware, Tesla P100 PCIe", "2016-06"),
    "l4-list": Source("NVIDIA L4 figures, Source Code product comparison", _READ),
    "l4-power": Source("NVIDIA L4 vs L40S, grokipedia.com", _READ),
    "ada-nvlink": Source("Statement that NVIDIA removed NVLink from Ada Lovelace, public notes", _READ),
    "h20-tweak": Source("TweakTown, NVIDIA's H20", "2024"),
    "h800-tpu": Source("TechPowerUp, A800 and H800 interconnect", "2023-03"),
    "h800-link": Source("H800 vs H100 (NVLink 400 GB/s, both directions), tumgag.com", _READ),
    "h800-philisun": Source("Philisun, NVIDIA H800 vs H100", _READ),
    "lockwood": Source("G. Lockwood, digital garden: B200 and B300", _READ),
    "lockwood-a100": Source("G. Lockwood, digital garden: A100", _READ),
    "openb": Source("Alibaba cluster-trace-gpu-v2023 (openb), anonymised models", "2023"),
    "fgd-sim": Source("hkust-adsl/kubernetes-scheduler-simulator, GPU types of openb", "2023"),
    "spot-trace": Source("Alibaba cluster-trace-v2026-spot-gpu, node_info_df.csv", "2026"),
    "p3": Source("SkyPilot spot traces: AWS p3.16xlarge, 8 x V100", "2022-10"),
    "nccl-tests": Source("NVIDIA/nccl-tests issues 212 and 290; S. Bekman's measurements", "2026"),
    "nccl-tuning": Source("NVIDIA/nccl b647562, src/graph/tuning.cc: hardware latencies of rings", "2026"),
    "llama3-failures": Source("Llama Team, The Llama 3 Herd of Models, table 5 (419 in 54 days)", "2024-07"),
    "rsc": Source("Kokolis et al., Revisiting Reliability in Large-Scale ML Research Clusters (HPCA)", "2025-03"),
    "opt-logbook": Source("Zhang et al., OPT-175B logbook (more than 100 hosts replaced in two months)", "2022-05"),
    "llama3": Source("Llama Team, The Llama 3 Herd of Models, table 4 (MFU 38 to 43 % of H100)", "2024-07"),
    "gpt3": Source("T. Brown et al., Language Models are Few-Shot Learners, table 2.1", "2020-05"),
    "ib-write": Source("NVIDIA/nccl issue 2409 (ib_write_bw)", "2026-09"),
    "sandbox-runtimes": Source(
        "kata-deploy RuntimeClasses 7c6ba40c54, Firecracker specification, kubernetes-sigs/agent-sandbox benchmarks",
        "2026-08",
    ),
    "cuda-notes": Source("NVIDIA CUDA Toolkit release notes, tables 2 and 3, and CUDA Compatibility guide", _READ),
    "upgrade-docs": Source("NVIDIA GPU Operator documentation, driver upgrades: about 4 minutes a node", "2026-08"),
    "xid-catalogue": Source("NVIDIA Xid catalogue, immediate actions, as in leptonai/gpud 4a8de33", "2025-10-29"),
    "xid-kernel": Source("NVIDIA/open-gpu-kernel-modules df1c9a3 (595.45), nverror.h", "2026"),
    "xid-plugin": Source("NVIDIA/k8s-device-plugin 1b826ac (v0.20.0), internal/rm/health.go", "2026-08-19"),
    "xid-eks": Source("aws/eks-node-monitoring-agent 51af549, fatal Xids", "2026"),
    "xid-azure": Source("Azure/azurehpc-health-checks 0e0a1ac, Xid list of a two-hour window", "2026"),
    "azure-nhc": Source("Azure/azurehpc-health-checks 0e0a1ac, host-device floors", "2026"),
    "gpu-boot": Source("Tensorfuse, cold starts of GPU nodes and lazy loading of images", "read 2026-08"),
    "image-minutes": Source("AWS, quoted in Convox's documentation: 15 to 20 GB in 4 to 6 minutes", "read 2026-08"),
    "vllm-start": Source("vLLM issues 19824 (Llama-70B FP8, 8 GPUs), 17280 and 20264", "2025"),
    "weights-streamer": Source("run-ai/runai-model-streamer, docs/src/benchmarks.md", "read 2026-08"),
    "modelexpress": Source("ModelExpress, docs/BENCHMARKS.md: DeepSeek-V4-Pro on 8 B200", "read 2026-08"),
    "vllm-sleep": Source("llm-d fast model actuation: waking vLLM takes about 3 s for 64 GiB", "read 2026-08"),
    "snapshots": Source("Modal, GPU memory snapshots", "read 2026-08"),
    "notebook-culling": Source(
        "zero-to-jupyterhub and Kubeflow notebook controller, defaults of culling", "read 2026-08"
    ),
}
"""Source key to document. A fact without a key here does not enter the catalog (a test holds it)."""
