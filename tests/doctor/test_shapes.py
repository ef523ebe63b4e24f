"""Shapes of output as facts: each shape in the form in which its command prints it, with own names and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster.cli.doctor import command
from muster.doctor.pile import read_text
from muster.doctor.verdict import judge

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Mon Nov 30 09:15:20 2026</timestamp>
\t<driver_version>570.124.06</driver_version>
\t<cuda_version>12.8</cuda_version>
\t<attached_gpus>2</attached_gpus>
\t<gpu id="00000000:1B:00.0">
\t\t<mig_mode><current_mig>Disabled</current_mig></mig_mode>
\t\t<gpu_recovery_action>None</gpu_recovery_action>
\t\t<pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>
\t\t<current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info></pci>
\t\t<remapped_rows><remapped_row_pending>No</remapped_row_pending>
\t\t<remapped_row_failure>No</remapped_row_failure></remapped_rows>
\t\t<fabric><state>Completed</state></fabric>
\t</gpu>
\t<gpu id="00000000:43:00.0">
\t\t<mig_mode><current_mig>Disabled</current_mig></mig_mode>
\t\t<gpu_recovery_action>Reset</gpu_recovery_action>
\t\t<pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>
\t\t<current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info></pci>
\t\t<remapped_rows><remapped_row_pending>No</remapped_row_pending>
\t\t<remapped_row_failure>Yes</remapped_row_failure></remapped_rows>
\t\t<fabric><state>Completed</state></fabric>
\t</gpu>
</nvidia_smi_log>
"""
TOPO = """        \x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\tSYS\t0-47,96-143\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tNODE\t48-95,144-191\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tNODE\tSYS\t X
"""
DCGMI = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
| Software                  | Pass                                           |
| Memory                    | Fail - GPU: 3                                  |
| Warning                   | GPU 3 uncorrectable errors                     |
| PCIe                      | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""
EXPORTER = """# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a1",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",hostname="n1"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-a2",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",hostname="n1"} 79
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="1",UUID="GPU-a2",device="nvidia1",hostname="n1"} 1
"""
CONFIG = """version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "nvidia"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime"
"""
CDI = """cdiVersion: 0.5.0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "1"
kind: nvidia.com/gpu
"""
SLICE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: n1-gpu.nvidia.com-x2k8p
spec:
  driver: gpu.nvidia.com
  nodeName: n1
  devices:
  - name: gpu-0
  - name: gpu-1
"""
CSV = """index, name, pci.bus_id, pcie.link.width.current, pcie.link.width.max
0, NVIDIA L40S, 00000000:01:00.0, 16, 16
1, NVIDIA L40S, 00000000:41:00.0, 8, 16
"""
PERFTEST = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          5000             0.06               0.06                 3.9
 65536      5000             392.21             391.96               0.747
"""
MEGABYTES = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             12000.50           11500.00             0.18
"""
FM = """● nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)
     Active: inactive (dead)
"""
CHECKPOINT = (
    '{"Data":{"PodDeviceEntries":[{"PodUID":"a","ResourceName":"nvidia.com/gpu","DeviceIDs":["GPU-1","GPU-2"]},'
    '{"PodUID":"b","ResourceName":"rdma/hca","DeviceIDs":["x"]}],"RegisteredDevices":{}},"Checksum":1}'
)
SLURM = """NodeName=gn1 Arch=x86_64
   Gres=gpu:h100:8(S:0-1)
   State=IDLE+DRAIN
   Reason=swap cable [alice@2026-11-30T05:58:41]
"""

JOB = """JobId=4711 JobName=train
   UserId=alice(1001) GroupId=users(100) MCS_label=N/A
   ReqTRES=cpu=8,mem=64G,node=1,billing=8{}
   MinCPUsNode=8 MinMemoryNode=64G
"""

SAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    ("nvidia-smi -q -x", XML, {"smi.gpus": 2, "smi.driver": "570.124.06", "smi.remap_failure": "Yes",
                               "smi.pcie_width": 8, "smi.recovery_action": "Reset", "smi.fabric_state": "Completed"}),
    ("topo -m, with colours", TOPO, {"topo.gpus": 2, "topo.gpus_without_near_nic": 1}),
    ("dcgmi diag", DCGMI, {"dcgmi.failed": 1}),
    ("dcgm-exporter", EXPORTER, {"dcgm.xids": [79], "dcgm.hardware_xid": True, "dcgm.remap_failures": 1}),
    ("containerd", CONFIG, {"containerd.nvidia_runtime": True, "containerd.nvidia_no_type": False}),
    ("cdi list", "INFO[0000] Found 9 CDI devices\nnvidia.com/gpu=0\n", {"cdi.devices": 9}),
    ("cdi specification", CDI, {"cdi.devices": 2}),
    ("resource slice", SLICE, {"dra.gpus": 2}),
    ("lanes", CSV, {"smi.pcie_width": 8, "smi.pcie_width_max": 16, "smi.gpus": 2}),
    ("nccl-tests", "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 373.4\n", {"nccl.busbw_gb_per_s": 373.4}),
    ("ib_write_bw", PERFTEST, {"perftest.gbit_per_s": 391.96}),
    ("ib_write_bw in MB/s", MEGABYTES, {"perftest.gbit_per_s": 92.0}),
    ("fabric manager", FM, {"fm.active": False}),
    ("no fabric manager", "Unit nvidia-fabricmanager.service could not be found.\n", {"fm.unit": False}),
    ("validations", "$ ls -A /run/nvidia/validations\n.driver-ctr-ready  driver-ready  toolkit-ready\n",
     {"validation.driver": True, "validation.toolkit": True, "validation.plugin": False}),
    ("validations, one a line", "driver-ready\ntoolkit-ready\nplugin-ready\n", {"validation.plugin": True}),
    ("checkpoint", CHECKPOINT, {"checkpoint.held": 2}),
    ("a job with GPUs", JOB.format(",gres/gpu=4"), {"slurm.job_gpus": 4}),
    ("a job without", JOB.format(""), {"slurm.job_gpus": 0}),
    ("scontrol", SLURM, {"slurm.gpus": 8, "slurm.drained": True, "slurm.by_person": True,
                         "slurm.reason": "swap cable"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [each[1:] for each in SAMPLES], ids=[each[0] for each in SAMPLES])
def test_facts(text: str, expected: dict[str, Any]) -> None:
    found = dict(read_text(text).values())
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("text", [each[1] for each in SAMPLES], ids=[each[0] for each in SAMPLES])
def test_amid_other_text(text: str) -> None:
    """A piece within a mail or a ticket is found as well, but for whole documents."""
    if text.startswith(("<?xml", "{")):
        pytest.skip("a document is a file of its own")
    alone, amid = read_text(text), read_text(f"see below\n\n{text}\nregards\n")
    assert dict(amid.values()) == dict(alone.values())


def test_part_of_a_configuration_says_nothing() -> None:
    """A part that was cut out of containerd's configuration is no proof that it has no runtime nvidia."""
    found = dict(read_text('[plugins."io.containerd.gc.v1.scheduler"]\n  pause_threshold = 0.02\n').values())
    assert "containerd.nvidia_runtime" not in found


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log><gpu id="&a;"/></nvidia_smi_log>'
    assert "smi.gpus" not in dict(read_text(bomb).values())


@pytest.mark.parametrize("noise", ["", "\x1b[31m", "2026-11-30T09:00:00Z "])
def test_a_plugin_in_a_table_of_pods_is_no_log_of_it(noise: str) -> None:
    row = "nvidia-device-plugin-daemonset-x 1/1 Running 0 4d 10.0.0.1 n1"
    table = f"NAME READY STATUS RESTARTS AGE IP NODE\n{noise}{row}\n"
    assert "plugin-log" not in read_text(table).kinds


CAUSES = [
    ("Failed to initialize NVML: Unknown Error\n", "cgroup-devices-lost"),
    ("CUDA error: system has unsupported display driver / cuda driver combination\n", "compat-library-mismatch"),
    ("CUDA error: forward compatibility was attempted on non supported HW\n", "forward-compatibility-unsupported"),
    ("n1:21:33 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n", "gpudirect-off"),
    ("n1:21:33 [0] misc/ibvwrap.cc:200 NCCL WARN Call to ibv_create_cq failed\n", "memlock-limit"),
    ("n1:21:33 [0] NCCL INFO P2P is disabled between NVLINK connected GPUs 0 and 1.\n", "p2p-off"),
    ("n1:21:33 [0] NCCL INFO NVLS multicast support is not available on dev 0\n", "nvls-off"),
    ("[ 12.1] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM\n", "nvswitch-or-nvlink-fault"),
    ("error waiting for MPS daemon: error checking MPS daemon health: failed to send command\n", "mps-daemon-missing"),
    ("slurmd: error: MIG mode is enabled, but no MIG devices were found.\n", "mig-without-instances"),
    (SLURM, "slurm-drained-by-hand"),
    (JOB.format("") + "\nRuntimeError: No CUDA GPUs are available\n", "slurm-job-without-gpus"),
    (SLURM.replace("swap cable [alice", "Kill task failed [root"), "slurm-unkillable-job"),
    ("Warning UnexpectedAdmissionError 5s kubelet Allocate failed due to rpc error: code = Unknown desc = request for "
     "'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1, which is unexpected\n",
     "request-too-large-for-shared"),
]  # fmt: skip


def test_a_line_of_a_container_is_not_one_of_slurmd() -> None:
    evidence = read_text("Failed to initialize NVML: Unknown Error\n")
    assert "slurmd.nvml_failed" not in evidence.lines
    assert not evidence.kinds & {"slurmd-log", "slurm-node"}


def test_one_line_is_enough(tmp_path: Path) -> None:
    """A line that several commands may show belongs to no piece, and is read all the same."""
    (tmp_path / "x").write_text("Failed to initialize NVML: Unknown Error\n")
    said = CliRunner().invoke(command, ["--from", str(tmp_path / "x")])
    assert said.exit_code == 1
    assert "A running container has lost its GPUs" in said.stdout


def test_two_faults_are_both_told() -> None:
    """A GPU with half its lanes and one with a failed remap: each has its proof, so that neither hides the other."""
    findings = judge(read_text(XML)).findings[:2]
    assert {each.id for each in findings} == {"gpu-memory-fault", "pcie-degraded"}
    assert [each.called for each in findings] == ["certain", "certain"]
    assert [each.besides for each in findings] == [False, True]


@pytest.mark.parametrize(("text", "cause"), CAUSES, ids=[cause for _, cause in CAUSES])
def test_one_piece_points_to_its_cause(text: str, cause: str) -> None:
    assert judge(read_text(text)).findings[0].id == cause


def test_the_next_command_names_causes_by_the_numbers_of_the_findings() -> None:
    case = Path(__file__).parent / "cases/02-sticky-unhealthy"
    page = CliRunner().invoke(command, ["--from", str(case / "node.txt"), "--from", str(case / "nvidia-smi.txt")])
    assert "tells plugin-sticky-unhealthy (1) from kubelet-lost-registration (2)" in page.stdout
