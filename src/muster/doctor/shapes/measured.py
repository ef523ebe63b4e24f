"""Measured rates and monitoring: nccl-tests, ib_write_bw, nvidia-smi topo -m, dcgmi diag, dcgm-exporter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.doctor.evidence import Evidence, Fact, Piece, Quote
from muster.doctor.lines import LineReader

_FAR = ("SYS", "NODE", "PHB")


def read_nccl_tests(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """The last line of nccl-tests: `# Avg bus bandwidth : N` in GB/s."""
    found = re.search(r"Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)", lines[at])
    if found:
        evidence.pieces.append(Piece("nccl-tests", file, at + 1))
        evidence.add(Fact("nccl.busbw_gb_per_s", float(found[1]), Quote(file, at + 1, lines[at].strip())))
    return 1


def read_perftest(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """The table of ib_write_bw and its like: the largest average, in Gbit/s (MB/s are converted)."""
    best, end, where = 0.0, at + 1, at
    scale = 1.0 if "Gb/sec" in lines[at] else 8e-3 if "MB/sec" in lines[at] else 0.0
    while end < len(lines) and re.match(r"\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+", lines[end]):
        if (value := float(lines[end].split()[3]) * scale) > best:
            best, where = value, end
        end += 1
    if best:
        evidence.pieces.append(Piece("perftest", file, at + 1))
        evidence.add(Fact("perftest.gbit_per_s", best, Quote(file, where + 1, lines[where].strip())))
    return end - at


def read_topo(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """`nvidia-smi topo -m`: whether each GPU has an adapter near (PIX or PXB), and whether GPUs share NVLink."""
    titles = [each for each in lines[at].split() if re.fullmatch(r"(?:GPU|NIC|mlx5_)\w*\d+", each)]
    end, far, links, gpus = at + 1, 0, 0, 0
    while end < len(lines) and (cells := lines[end].split()) and re.fullmatch(r"(?:GPU|NIC|mlx5_)\w*\d+", cells[0]):
        if cells[0].startswith("GPU"):
            row = dict(zip(titles, cells[1:], strict=False))
            nics = [value for title, value in row.items() if not title.startswith("GPU")]
            far += bool(nics) and all(value in _FAR for value in nics)
            links += any(value.startswith("NV") for value in row.values())
            gpus += 1
        end += 1
    if gpus:
        quote = Quote(file, at + 1, f"topo -m: {gpus} GPUs, {links} with NVLink, {far} with no adapter near")
        evidence.pieces.append(Piece("topo", file, at + 1))
        evidence.add(Fact("topo.gpus", gpus, quote))
        evidence.add(Fact("topo.gpus_without_near_nic", far, quote))
    return end - at


def read_dcgmi(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """`dcgmi diag`: the tests that failed."""
    failed: list[str] = []
    end, name, where = at + 1, "", at
    while end < len(lines) and (not lines[end].strip() or lines[end].lstrip()[:1] in "|+-"):
        cells = [each.strip() for each in lines[end].strip().strip("|+").split("|")]
        if len(cells) == 2:
            name = cells[0] or name
            if cells[1].startswith("Fail"):
                failed.append(name)
                where = end
        end += 1
    evidence.pieces.append(Piece("dcgmi", file, at + 1))
    told = f"dcgmi diag: failed {', '.join(dict.fromkeys(failed)) or 'nothing'}"
    evidence.add(Fact("dcgmi.failed", len(failed), Quote(file, where + 1, told)))
    return end - at


def read_exporter(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """dcgm-exporter's text: each GPU's last Xid, and whether a row remap has failed."""
    end = at
    xids: set[int] = set()
    count = named = 0
    failed, where = 0, at
    while end < len(lines) and lines[end].startswith(("DCGM_FI_", "DCGM_EXP_", "# ")):
        name, _, rest = lines[end].partition("{")
        value = rest.rpartition(" ")[2]
        count += name.startswith("DCGM_")
        named += 'pod="' in rest and 'pod=""' not in rest
        if name == "DCGM_FI_DEV_XID_ERRORS" and value.isdigit() and value != "0":
            xids.add(int(value))
            where = end
        elif name == "DCGM_FI_DEV_ROW_REMAP_FAILURE" and value == "1":
            failed, where = failed + 1, end
        end += 1
    evidence.pieces.append(Piece("dcgm-exporter", file, at + 1))
    quote = Quote(file, where + 1, lines[where].strip()[:300])
    evidence.add(Fact("dcgm.lines", count, quote))
    evidence.add(Fact("dcgm.lines_with_pod", named, quote))
    evidence.add(Fact("dcgm.xids", sorted(xids), quote))
    evidence.add(Fact("dcgm.hardware_xid", bool(xids & {48, 64, 79, 95, 140}), quote))
    evidence.add(Fact("dcgm.remap_failures", failed, quote))
    return end - at


def read_events(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """A table of events: its lines are read as lines of logs are; here it is only recognised."""
    evidence.pieces.append(Piece("events", file, at + 1))
    return 1


def read_values(evidence: Evidence, file: str, lines: Sequence[str], at: int) -> int:
    """Values of the device plugin's or operator's chart (YAML): each line counts, whatever it holds."""
    evidence.pieces.append(Piece("helm-values", file, at + 1))
    reader, end = LineReader(evidence, file), at
    while end < len(lines) and (not lines[end].strip() or ":" in lines[end] or lines[end].lstrip()[:1] in "-#"):
        reader.take(lines[end], end + 1)
        end += 1
    return max(1, end - at)
