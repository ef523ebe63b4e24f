"""Evidence of nodes that are well: GPU models, counts, sharing, drivers, clouds, operator versions, log formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec import Struct

MODELS = {  # product label, name in nvidia-smi, PCI id, MiB, NVSwitch, MIG
    "h100": ("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3", "2330", 81559, True, "1g.10gb"),
    "h200": ("NVIDIA-H200", "NVIDIA H200", "2335", 143771, True, "1g.18gb"),
    "a100": ("NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "20b2", 81920, True, "1g.10gb"),
    "b200": ("NVIDIA-B200", "NVIDIA B200", "2901", 183359, True, "1g.23gb"),
    "l40s": ("NVIDIA-L40S", "NVIDIA L40S", "26b9", 46068, False, ""),
    "t4": ("Tesla-T4", "Tesla T4", "1eb8", 15360, False, ""),
    "a10": ("NVIDIA-A10", "NVIDIA A10", "2236", 23028, False, ""),
}
DRIVERS = {"535.183.01": "12.2", "550.90.07": "12.4", "570.124.06": "12.8", "580.95.05": "13.0"}
CLOUDS: dict[str, dict[str, str]] = {
    "bare": {},
    "eks": {"eks.amazonaws.com/nodegroup": "gpu", "topology.kubernetes.io/zone": "us-east-1c"},
    "gke": {"cloud.google.com/gke-accelerator": "x", "cloud.google.com/gke-nodepool": "pool-2"},
    "aks": {"kubernetes.azure.com/agentpool": "gpunp", "kubernetes.azure.com/accelerator": "nvidia"},
}


class Node(Struct, frozen=True):
    """What a healthy node is made of."""

    name: str
    model: str
    gpus: int
    sharing: str
    driver: str
    cloud: str
    operator: str
    rng: Random

    @property
    def resources(self) -> dict[str, str]:
        """Its extended resources."""
        if self.sharing == "mig-mixed":
            return {"nvidia.com/gpu": "0", f"nvidia.com/mig-{MODELS[self.model][5]}": str(7 * self.gpus)}
        times = {"mig-single": 7, "time-slicing": 4}.get(self.sharing, 1)
        return {"nvidia.com/gpu": str(times * self.gpus)}


def node_of(seed: int) -> Node:
    """One of the variations."""
    rng = Random(seed)
    model = rng.choice(sorted(MODELS))
    ways = ["none", "none", "time-slicing"] + (["mig-single", "mig-mixed"] if MODELS[model][5] else [])
    return Node(
        f"gpu-{seed:03d}", model, rng.choice((1, 2, 4, 8, 8, 16)), rng.choice(ways), rng.choice(sorted(DRIVERS)),
        rng.choice(sorted(CLOUDS)), rng.choice(("v24.9.2", "v25.3.4", "v25.10.0")), rng,
    )  # fmt: skip


def labels(node: Node) -> dict[str, str]:
    """As discovery and the operator set them."""
    product = MODELS[node.model][0] + ("-SHARED" if node.sharing == "time-slicing" else "")
    major, minor, *rev = node.driver.split(".")
    found = {
        "kubernetes.io/hostname": node.name, "feature.node.kubernetes.io/pci-10de.present": "true",
        "nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": str(node.gpus), "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.replicas": "4" if node.sharing == "time-slicing" else "1",
        "nvidia.com/cuda.driver.major": major, "nvidia.com/cuda.driver.minor": minor,
        "nvidia.com/cuda.driver.rev": rev[0], "nvidia.com/cuda.driver-version.full": node.driver,
        "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
        "nvidia.com/mig.capable": str(bool(MODELS[node.model][5])).lower(),
        "nvidia.com/mig.strategy": "mixed" if node.sharing == "mig-mixed" else "single",
        **{f"nvidia.com/gpu.deploy.{part}": "true" for part in (
            "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver", "gpu-feature-discovery",
            "node-status-exporter", "operator-validator")},
        **CLOUDS[node.cloud],
    }  # fmt: skip
    if MODELS[node.model][5]:
        found["nvidia.com/gpu.deploy.mig-manager"] = "true"
        found["nvidia.com/mig.config"] = "all-" + MODELS[node.model][5] if "mig" in node.sharing else "all-disabled"
        found["nvidia.com/mig.config.state"] = "success"
    if node.sharing == "mig-single":
        found["nvidia.com/gpu.count"] = str(7 * node.gpus)
        found["nvidia.com/gpu.product"] += f"-MIG-{MODELS[node.model][5]}"
    return found


def manifest(node: Node) -> dict[str, Any]:
    """The node as an object."""
    amounts = {"cpu": "192", "memory": "2113400104Ki", "pods": "110", **node.resources}
    conditions = [{"type": kind, "status": "False", "reason": "KubeletHas", "message": "kubelet has enough"}
                  for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")]  # fmt: skip
    conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready"})
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}] if node.cloud == "gke" else []
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels(node)},
        "spec": {"taints": taints},
        "status": {"capacity": amounts, "allocatable": dict(amounts), "conditions": conditions,
                   "nodeInfo": {"containerRuntimeVersion": "containerd://1.7.24", "kubeletVersion": "v1.31.4"}},
    }  # fmt: skip


def describe(node: Node) -> str:
    """`kubectl describe node`."""
    told = manifest(node)
    rows = [f"Name:               {node.name}", "Roles:              <none>"]
    pairs = [f"{key}={value}" for key, value in labels(node).items()]
    rows += [("Labels:             " if not at else " " * 20) + pair for at, pair in enumerate(pairs)]
    taint = "nvidia.com/gpu=present:NoSchedule" if told["spec"]["taints"] else "<none>"
    rows += [f"Taints:             {taint}", "Unschedulable:      false", "Conditions:"]
    rows += ["  Type             Status  Reason        Message", "  ----             ------  ------        -------"]
    rows += [f"  {each['type']:<16} {each['status']:<7} {each['reason']}  {each['message']}"
             for each in told["status"]["conditions"]]  # fmt: skip
    for section in ("capacity", "allocatable"):
        rows += [f"{section.title()}:"] + [f"  {key}:  {value}" for key, value in told["status"][section].items()]
    rows += ["Allocated resources:", "  Resource           Requests     Limits",
             "  --------           --------     ------", "  cpu                1250m (0%)   2 (1%)"]  # fmt: skip
    rows += [f"  {key}     0            0" for key in node.resources]
    return "\n".join([*rows, "Events:              <none>", ""])


def pods(node: Node) -> str:
    """`kubectl get pods -o wide` of the operator's namespace."""
    names = ["gpu-feature-discovery", "nvidia-container-toolkit-daemonset", "nvidia-dcgm-exporter",
             "nvidia-device-plugin-daemonset", "nvidia-driver-daemonset", "nvidia-operator-validator"]  # fmt: skip
    rows = ["NAME                                       READY   STATUS      RESTARTS      AGE   IP           NODE"]
    for at, name in enumerate(names):
        pod = f"{name}-{node.rng.choice('bcdfg')}{at}x7k"
        ago = node.rng.choice(("0            ", "1 (41d ago)  "))
        rows.append(f"{pod:<42} 1/1     Running     {ago} 62d   10.2.0.{at + 4}     {node.name}")
    rows.append(f"{'nvidia-cuda-validator-q8s2k':<42} 0/1     Completed   0             62d   10.2.0.31    {node.name}")
    return "\n".join([*rows, ""])


def bus(at: int) -> str:
    """A PCI address."""
    return f"{0x0F + 0x0D * at:02x}:00.0"


def smi(node: Node) -> str:
    """The table of nvidia-smi."""
    _, name, _, memory, _, _ = MODELS[node.model]
    rule = "+-----------------------------------------+------------------------+----------------------+"
    rows = ["Tue Mar 10 09:14:02 2026", "+" + "-" * 89 + "+",
            f"| NVIDIA-SMI {node.driver:<22} Driver Version: {node.driver:<14} "
            f"CUDA Version: {DRIVERS[node.driver]:<8} |", rule,
            "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
            "|=========================================+========================+======================|"]  # fmt: skip
    mig = "Enabled" if node.sharing.startswith("mig") else "Disabled" if MODELS[node.model][5] else "N/A"
    for at in range(node.gpus):
        rows += [f"| {at:>3}  {name:<26} On      |   00000000:{bus(at).upper()} Off |                    0 |",
                 f"| N/A   31C    P0             71W /  700W |       4MiB / {memory:>6}MiB |      0%      Default |",
                 f"|                                         |                        | {mig:>20} |", rule]  # fmt: skip
    if mig == "Enabled":
        rows += ["", "+" + "-" * 89 + "+", "| MIG devices:" + " " * 76 + "|",
                 "| GPU  GI  CI  MIG |         Memory-Usage |        Vol|      Shared           |",
                 "|==================+======================+===========+=======================|"]  # fmt: skip
        rows += [f"|{at:>3}    {7 + part}   0  {part:>2}  |     12MiB /  9856MiB | 14      0 |  1   0    0    0    0 |"
                 for at in range(node.gpus) for part in range(7)]  # fmt: skip
    rows += ["", "+" + "-" * 89 + "+", "| Processes:" + " " * 78 + "|",
             "|  No running processes found" + " " * 61 + "|", "+" + "-" * 89 + "+", ""]  # fmt: skip
    return "\n".join(rows)


def query(node: Node) -> str:
    """A part of `nvidia-smi -q`."""
    rows = ["", "==============NVSMI LOG==============", "", "Timestamp                : Tue Mar 10 09:15:11 2026",
            f"Driver Version           : {node.driver}", f"CUDA Version             : {DRIVERS[node.driver]}", "",
            f"Attached GPUs            : {node.gpus}"]  # fmt: skip
    mig = "Enabled" if node.sharing.startswith("mig") else "Disabled"
    for at in range(node.gpus):
        rows += [f"GPU 00000000:{bus(at).upper()}", f"    Product Name         : {MODELS[node.model][1]}",
                 "    MIG Mode", f"        Current          : {mig}", f"        Pending          : {mig}",
                 "    GPU Recovery Action  : None", "    PCI", "        GPU Link Info",
                 "            Link Width", "                Max      : 16x", "                Current  : 16x",
                 "    Remapped Rows", "        Correctable Error             : 0",
                 "        Pending                       : No",
                 "        Remapping Failure Occurred    : No"]  # fmt: skip
        if mig == "Enabled":
            rows += [row for part in range(7) for row in ("    MIG Device", f"        Index          : {part}")]
        if MODELS[node.model][4]:
            rows += ["    Fabric", "        State            : Completed", "        Status           : Success"]
    return "\n".join([*rows, ""])


def plugin_log(node: Node) -> str:
    """The device plugin's, plain or as the runtime keeps it on disk."""
    told = ["Starting FS watcher for /var/lib/kubelet/device-plugins", "Starting OS watcher.",
            "Loading configuration.", "Updating config with default resource matching patterns.",
            "Retrieving plugins.", "Starting GRPC server for 'nvidia.com/gpu'",
            "Starting to serve 'nvidia.com/gpu' on /var/lib/kubelet/device-plugins/nvidia-gpu.sock",
            "Registered device plugin for 'nvidia.com/gpu' with Kubelet"]  # fmt: skip
    form = node.rng.choice(("klog", "cri", "timestamps"))
    lead = {
        "klog": "I0310 09:12:{:02d}.481920       1 main.go:235] ",
        "cri": "2026-03-10T09:12:{:02d}.481920133Z stderr F I0310 09:12:00.4       1 main.go:235] ",
        "timestamps": "2026-03-10T10:12:{:02d}.481920133+01:00 I0310 09:12:00.4       1 main.go:235] ",
    }[form]
    return "\n".join([lead.format(at) + line for at, line in enumerate(told)]) + "\n"


def dmesg(node: Node) -> str:
    """The driver's start, and noise."""
    rows = [f"[    8.2{at}1000] nvidia 0000:{bus(at)}: enabling device (0140 -> 0142)" for at in range(node.gpus)]
    rows += [f"[    9.114002] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {node.driver}  Release Build",
             "[    9.300211] nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver",
             "[    9.310022] [drm] [nvidia-drm] [GPU ID 0x00000f00] Loading driver",
             "[   11.554021] nvidia-uvm: Loaded the UVM driver, major device number 509.",
             "[   60.002001] eth0: link up, 100000 Mbps",
             "[  812.112233] mlx5_core 0000:18:00.0: firmware version: 28.39"]  # fmt: skip
    return "\n".join(rows) + "\n"


def nccl(node: Node) -> str:
    """NCCL that took the fabric."""
    rows = ["NCCL version 2.21.5+cuda12.4", "NCCL INFO Bootstrap : Using eth0:10.2.0.8<0>",
            "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.2.0.8<0>",
            "NCCL INFO Using network IB", "NCCL INFO GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
            "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
            "NCCL INFO comm 0x55 rank 0 nranks 16 cudaDev 0 busId f000 - Init COMPLETE"]  # fmt: skip
    return "\n".join(f"{node.name}:412:412 [0] {row}" for row in rows) + "\n"


def bundle(seed: int) -> dict[str, str]:
    """Files of a healthy node: some of all that there could be, never none."""
    node = node_of(seed)
    lspci = [f"{bus(at)} 3D controller: NVIDIA Corporation Device {MODELS[node.model][2]} (rev a1)"
             for at in range(node.gpus)]  # fmt: skip
    uuids = [f"GPU-{node.rng.getrandbits(32):08x}-0d11-7a3e-9c5d-00000000{at:04d}" for at in range(node.gpus)]
    listed = [f"GPU {at}: {MODELS[node.model][1]} (UUID: {uuid})" for at, uuid in enumerate(uuids)]
    files: dict[str, str] = {
        "node.json": json.dumps(manifest(node), indent=2), "describe.txt": describe(node), "pods.txt": pods(node),
        "smi.txt": smi(node), "smi-q.txt": query(node), "plugin.log": plugin_log(node), "dmesg.txt": dmesg(node),
        "lspci.txt": "\n".join(lspci) + "\n", "nvidia-smi.list": "\n".join(listed) + "\n",
        "validations.txt": "$ ls -A /run/nvidia/validations\n"
                           "cuda-ready  driver-ready  plugin-ready  toolkit-ready  workload-type\n",
    }  # fmt: skip
    if MODELS[node.model][4]:
        files["fm.txt"] = ("● nvidia-fabricmanager.service - NVIDIA fabric manager service\n"
                           "     Active: active (running) since Mon 2026-03-09 08:00:11 UTC; 1 day ago\n")  # fmt: skip
        files["nccl.log"] = nccl(node)
    count = node.rng.randint(1, len(files))
    return {name: files[name] for name in sorted(node.rng.sample(sorted(files), count))}


def joined(files: Mapping[str, str]) -> str:
    """One paste of all, as a terminal would show it."""
    return "\n".join(f"$ cat {name}\n{text}" for name, text in files.items())
