"""Selectors of devices: what Kubernetes would say of each expression about one H100."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert
from tests.kube.dra.building import DRIVER, gpu

from muster.kube.dra.cel import CelError, Evaluator
from muster.kube.dra.objects import DraDevice

PUBLISHED = gpu("gpu-3", index=3, resource_dot_kubernetes_dot_io__numaNode=1, ready=True)
H100 = convert(PUBLISHED | {"allowMultipleAllocations": False}, DraDevice)
A, C = f"device.attributes['{DRIVER}']", f'device.capacity["{DRIVER}"]'


EXPRESSIONS: list[tuple[str, bool]] = [
    ("device.driver == 'gpu.nvidia.com'", True),
    (f"{A}.productName == 'NVIDIA H100 80GB HBM3'", True),
    (f"{A}.productName.lowerAscii().matches('^.*h100.*$')", True),
    (f"{A}.productName.split(' ')[1] in ['H100', 'H200']", True),
    (f"{A}.productName.startsWith('NVIDIA') && {A}.index < 4", True),
    (f"{A}.ready && !device.allowMultipleAllocations", True),
    ("device.attributes['resource.kubernetes.io'].numaNode == 1", True),
    (f"'{DRIVER}' in device.attributes", True),
    ("'nic.example.com' in device.attributes", False),
    ("has(device.attributes['nic.example.com'].speed)", False),
    (f"has({A}.index) && !has({A}.absent)", True),
    ("'nic.example.com' in device.attributes && device.attributes['nic.example.com'].speed > 1", False),
    (f"{A}.absent == 1 || true", True),
    (f"{C}.memory.isGreaterThan(quantity('40Gi'))", True),
    (f"{C}.memory.compareTo(quantity('81920Mi')) == 0", True),
    (f"{C}.memory == quantity('80Gi')", True),
    (f"{C}.memory.sub(quantity('79Gi')).isLessThan(quantity('1G'))", False),
    (f"{C}.memory.add(quantity('2Gi')).asInteger() == 88046829568", True),
    ("quantity('1500m').isInteger()", False),
    ("isQuantity('12Gi') && !isQuantity('twelve')", True),
    ("sign(quantity('-1')) == -1", True),
    (f"{A}.cudaComputeCapability.isGreaterThan(semver('8.9.9'))", True),
    (f"{A}.cudaComputeCapability.compareTo(semver('v9', true)) == 0", True),
    (f"{A}.cudaComputeCapability.major() == 9 && {A}.cudaComputeCapability.minor() == 0", True),
    ("semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.10'))", True),
    ("semver('1.0.0-rc.2').isLessThan(semver('1.0.0'))", True),
    ("isSemver('1.2') || isSemver('01.2.3')", False),
    (f"{A}.exists(name, name == 'index')", True),
    ("device.driver.find('[a-z]+') == 'gpu'", True),
]


# the last is too dear for a claim, as the server estimates it
@pytest.mark.parametrize(("expression", "answer"), [*EXPRESSIONS, ("['a', 'b'].isSorted()", True)])
def test_what_an_expression_says(expression: str, answer: bool) -> None:
    assert Evaluator().matches(expression, DRIVER, H100) is answer


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f"{A}.absent == 1", "the device has no absent"),
        ("device.attributes['nic.example.com'].speed == 1", "the device has no speed"),
        (f"{A}.index", "it is int, not true or false"),
        ("device.driver ==", "it is not valid CEL"),
        (f"{A}.index.compareTo(semver('1.0.0')) == 0", "Function 'compareTo' error"),
        ("sign(quantity('twelve')) > 0", "Function 'quantity' error"),
        (f"{A}.?index.orValue(0) == 3", "it is not valid CEL"),
    ],
)
def test_what_cannot_be_said(expression: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CelError, match=f"^{why}"):
        Evaluator().matches(expression, DRIVER, H100)
    assert capfd.readouterr().err == ""


def test_devices_that_differ_in_what_is_not_named_are_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    evaluator = Evaluator()
    inner = evaluator._matches  # pyright: ignore[reportPrivateUsage]

    def counted(expression: str, driver: str, device: DraDevice) -> bool:
        asked.append(device.name)
        return inner(expression, driver, device)

    monkeypatch.setattr(evaluator, "_matches", counted)
    alike: list[Any] = [convert(gpu(f"gpu-{at}", uuid=f"GPU-{at}", index=at), DraDevice) for at in range(8)]
    for expression, times in ((f"{A}.type == 'gpu'", 1), (f"{A}.index == 7", 8), (f"{A}.exists(x, x == 'y')", 8)):
        asked.clear()
        for device in alike * 2:
            evaluator.matches(expression, DRIVER, device)
        assert len(asked) == times, expression
