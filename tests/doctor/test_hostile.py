"""Evidence as it is pasted at night: cut, packed, coloured, in other encodings, endless, made to break the reader."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doctor.cases import load_cases
from tests.doctor.healthy import bundle, joined

from muster.doctor.evidence import Evidence
from muster.doctor.packed import MOST_LINE
from muster.doctor.pile import read_pile, read_text
from muster.doctor.verdict import judge

LOST = "[ 8112.114021] NVRM: Xid (PCI:0000:0f:00): 79, pid=4411, name=python3, GPU has fallen off the bus.\n"
START = "[    9.114002] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n"


def archived(data: bytes) -> bytes:
    """A tar.gz that holds the text as one file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("logs/dmesg.txt")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


FORMS: dict[str, Callable[[str], bytes]] = {
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "CRLF and LF mixed": lambda text: text.replace("\n", "\r\n", 3).encode(),
    "CR only": lambda text: text.replace("\n", "\r").encode(),
    "a byte order mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16 with a mark": lambda text: text.encode("utf-16"),
    "UTF-16 without one": lambda text: text.encode("utf-16-le"),
    "UTF-16, big end first": lambda text: text.encode("utf-16-be"),
    "colours": lambda text: "".join(f"\x1b[1;31m{line}\x1b[0m\n" for line in text.splitlines()).encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "gzip, cut": lambda text: gzip.compress((text + "noise 1 2 3\n" * 90_000).encode(), 1)[:-40],
    "tar.gz": lambda text: archived(text.encode()),
    "broken characters": lambda text: text.encode().replace(b"python3", b"pyth\xff\xfe\x80on"),
    "cut in a line": lambda text: text.encode()[:-1] + b"\n[ 8113.",
}


def sign(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Signals by line, and causes in order: what must not depend on the form."""
    return sorted(evidence.lines), [each.id for each in judge(evidence).findings]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_does_not_change_the_verdict(form: str, tmp_path: Path) -> None:
    text = (START + LOST) * 40
    path = tmp_path / "dmesg"
    path.write_bytes(FORMS[form](text))
    found = sign(read_pile([str(path)]))
    assert found == sign(read_text(text))
    assert found[1][0] == "gpu-fell-off-bus"


def test_what_was_cut_is_told(tmp_path: Path) -> None:
    path = tmp_path / "dmesg.gz"
    path.write_bytes(FORMS["gzip, cut"](LOST))
    assert any("is cut" in each for each in read_pile([str(path)]).unread)


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "deep JSON": b"[" * 200_000,
    "deep JSON with messages": b'{"kind":"Pod","metadata":{},"a":' + b'{"a":' * 900 + b"1" + b"}" * 901,
    "lists in lists": b'{"items":[' * 5_000 + b"]}" * 5_000,
    "a YAML bomb": b"apiVersion: v1\nkind: Node\nmetadata: {name: x}\na: &a [x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (98 + at, 98 + at, b", ".join([b"*%c" % (97 + at)] * 9)) for at in range(9)),
    "YAML that holds itself": b"apiVersion: v1\nmetadata: {name: x}\nitems: &a\n- *a\n",
    "deep YAML": b"apiVersion: v1\na: " + b"[" * 20_000,
    "XML entities": b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    b"<nvidia_smi_log><gpu>&b;</gpu></nvidia_smi_log>",
    "deep XML": b"<nvidia_smi_log>" + b"<a>" * 50_000 + b"</nvidia_smi_log>",
    "one enormous line": b"NVRM: Xid " + b"x " * 3_000_000,
    "a packed nothing": b"\x1f\x8b" + b"\x07" * 90,
    "binary": bytes(range(256)) * 40,
    "kinds that are no kinds": b'{"kind":["Node"],"metadata":{"name":5,"labels":["x"]},"spec":{"taints":[3]},'
    b'"status":{"capacity":{"nvidia.com/gpu":[1]},"allocatable":{"nvidia.com/gpu":"1e9"},"conditions":3}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_gives_no_finding_and_no_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(HOSTILE[name])
    verdict = judge(read_pile([str(path)]))
    assert not verdict.findings


def test_a_long_kernel_log_is_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.doctor.pile.WHOLE_BYTES", 4096)
    monkeypatch.setattr("muster.doctor.pile.DOCUMENT_BYTES", 8192)
    path = tmp_path / "dmesg"
    path.write_text(START * 200 + LOST)
    evidence = read_pile([str(path)])
    assert not evidence.unread
    assert evidence.lines["dmesg.fallen_off"].quotes[0].line == 201


def test_a_long_line_is_read_to_a_limit() -> None:
    evidence = read_text("y " * MOST_LINE + LOST)
    assert not evidence.lines


def test_a_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    for at, data in enumerate(HOSTILE.values()):
        (tmp_path / f"{at:02d}").write_bytes(data)
    (tmp_path / "dmesg").write_text(LOST)
    assert judge(read_pile([str(tmp_path)])).findings[0].id == "gpu-fell-off-bus"


def test_two_nodes_in_one_pile_are_two() -> None:
    well = joined({"describe.txt": bundle_file(3)})
    ill = bundle_file(4).replace("nvidia.com/gpu:  8", "nvidia.com/gpu:  0")
    evidence = read_text(well + "\n" + ill)
    assert set(evidence.nodes) == {"gpu-003", "gpu-004"}
    assert "the evidence is about 2 nodes" in " ".join(judge(evidence).notes)


def bundle_file(seed: int) -> str:
    """The description of a node that is well."""
    from tests.doctor.healthy import describe, node_of

    return describe(node_of(seed))


WORDS = sorted({
    word for case in load_cases() for path in case.files for word in path.read_text().split()[:150] if len(word) < 60
})  # fmt: skip
LINES = sorted({line for case in load_cases() for path in case.files for line in path.read_text().splitlines()[:40]})


LIKE_ROWS = st.lists(st.sampled_from(WORDS), max_size=6).map("  ".join)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=40), LIKE_ROWS), max_size=30))
def test_any_text_gives_a_verdict_or_nothing(lines: list[str]) -> None:
    judge(read_text("\n".join(lines)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.floats(0, 1), st.floats(0, 1))
def test_a_part_of_a_healthy_paste_is_never_certain(seed: int, start: float, end: float) -> None:
    text = joined(bundle(seed))
    part = text[int(min(start, end) * len(text)) : int(max(start, end) * len(text))]
    assert all(each.called != "certain" for each in judge(read_text(part)).findings)
