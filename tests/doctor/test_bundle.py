"""Secrets are in no output; an anonymous bundle gives the verdict of the original, and names nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.doctor.cases import Case, load_cases
from tests.doctor.healthy import bundle, node_of

from muster.cli.main import main
from muster.doctor.bundle import clean
from muster.doctor.pile import read_pile
from muster.doctor.verdict import judge
from muster.errors import InputError

X = "Q7w9Zk3LmN0pRtV2bX4c"  # no secret of anybody
PLANTED = {
    "JWT": (f"eyJhbGciOiJSUzI1NiIs.{X}.{X}", X),
    "bearer": (f"Authorization: Bearer {X}{X}", X),
    "registry auth": (f'"auth": "{X}=="', X),
    "dockerconfigjson": (f'".dockerconfigjson": "{X * 5}"', X),
    "escaped dockerconfig": (f'{{\\"auths\\":{{\\"r.example\\":{{\\"auth\\":\\"{X}\\"}}}}}}', X),
    "AWS id": ("key AKIA" + X[:16].upper(), X[:16].upper()),
    "AWS secret": (f"aws_secret_access_key = {X}{X}", X),
    "Google": (f"AIza{X}{X[:15]}", X),
    "Azure": (f"DefaultEndpointsProtocol=https;AccountKey={X}{X}==;", X),
    "Azure SAS": (f"https://a.blob.example/c?sv=2024&sig={X}%3D", X),
    "Hugging Face": (f"hf_{X}", X),
    "NGC": (f"nvapi-{X}", X),
    "NGC by name": (f"NGC_API_KEY={X}", X),
    "kubeconfig": (f"client-key-data: {X}{X}", X),
    "URL": (f"https://anna:{X}@git.example/x.git", X),
    "URL without a user": (f"redis://:{X}@cache.example:6379", X),
    "option": (f"curl -u anna:{X} https://x.example", X),
    "long option": (f"helm --password {X}", X),
    "e-mail": (f"mail {X}@corp.example", X),
    "private key": (f"-----BEGIN RSA PRIVATE KEY-----{X}-----END RSA PRIVATE KEY-----", X),
}
SHAPES = {
    "log": "NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus. {}\n",
    "plugin": "I0310 09:12:01.4 1 main.go:235] Marking all devices as unhealthy {}\n",
    "describe": "Name:               gpu-7\nLabels:             nvidia.com/gpu.product={0}\nTaints:             {0}\n"
                "Unschedulable:      false\nCapacity:\n  nvidia.com/gpu:  8\nAllocatable:\n  nvidia.com/gpu:  0\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("shape", [*SHAPES, "json"])
def test_a_planted_secret_is_in_no_output(kind: str, shape: str, tmp_path: Path) -> None:
    line, secret = PLANTED[kind]
    told = {"kind": "Node", "metadata": {"name": "gpu-7", "labels": {"nvidia.com/gpu.product": line}},
            "status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "0"},
                       "conditions": [{"type": "Ready", "status": "False", "message": line}]}}  # fmt: skip
    path = tmp_path / "it.txt"
    path.write_text(
        json.dumps(told, indent=1) if shape == "json" else SHAPES[shape].replace("{0}", "{}").replace("{}", line)
    )
    for arguments in (["doctor", "--from", str(path)], ["doctor", "--from", str(path), "-o", "json"]):
        assert secret not in CliRunner().invoke(main, arguments).output
    out = tmp_path / "out.txt"
    result = CliRunner().invoke(main, ["doctor", "bundle", str(path), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert secret not in out.read_text()


def test_a_key_over_several_lines_is_hidden() -> None:
    text = f"a\n-----BEGIN PRIVATE KEY-----\n{X}\n{X}\n-----END PRIVATE KEY-----\nb"
    [(_, found)] = clean([("x", text)], anonymize=False)
    assert X not in found
    assert found.count("\n") == text.count("\n")
    assert found.startswith("a\n")
    assert found.endswith("\nb")


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_the_verdict_on_an_anonymous_bundle_is_the_same(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "case.tar.gz"
    paths = [str(path) for path in case.files]
    result = CliRunner().invoke(main, ["doctor", "bundle", *paths, "--anonymize", "-o", str(out)])
    assert result.exit_code == 0, result.output
    before, after = judge(read_pile(paths)), judge(read_pile([str(out)]))
    assert [(each.id, each.called) for each in after.findings] == [(each.id, each.called) for each in before.findings]
    assert [each.share for each in after.findings] == pytest.approx([each.share for each in before.findings])


def test_names_and_addresses_are_gone_and_consistent() -> None:
    for seed in range(20):
        node = node_of(seed)
        texts = list(bundle(seed).items())
        done = clean(texts, [node.name], anonymize=True)
        whole = "\n".join(text for _, text in done)
        assert node.name not in whole
        assert "10.2.0." not in whole
    text = "pod research/llama-7 on host 10.9.8.7 of img registry.corp.example/team/llama:v2, 10.9.8.7 again"
    [(_, found)] = clean([("x", text)], anonymize=True)
    assert "llama-7" not in found
    assert "corp" not in found
    assert found.count("10.0.0.1") == 2
    assert "llama:v2" in found


@pytest.mark.parametrize(
    "arguments", [[], ["nothing-there", "-o", "x.txt"], [".", "-o", "x.zip"], ["."], [".", "-o", "x.txt"]]
)
def test_mistakes_are_told(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["doctor", "bundle", *arguments])
    assert isinstance(result.exception, InputError)
    assert not list(tmp_path.iterdir())
